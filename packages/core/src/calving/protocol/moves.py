"""Moves of the stored positions by an operator: what becomes of the records between the old and the new position, in
each table. Pure.

Where a position goes back, the records are read again. A table skips those that it holds; or its ledger lets go of
them, and then it gets them a second time. Either way the ledger calls no offset from the new position on settled any
more, so a recovery in between goes on there. Where a position goes forward, the records are in no table: each ledger
counts them as forgotten (R7).

The move stands in ``calving.recovered-at`` of each table from its first step to its last one, so that it can be ended
as it was begun.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from calving.errors import CommandFailedError
from calving.model.offsets import (
    ControlOffsets,
    Coverage,
    SourceOffsets,
    Span,
    TopicPartition,
    beyond,
    less,
    lowest_uncovered,
    merged,
    named,
    present,
    union,
    within,
    without,
)
from calving.protocol.ledger import (
    Ledger,
    SourceProgress,
    decode_recovered,
    decode_source,
    encode_source,
    entry_of,
)
from calving.protocol.ledger_key import RECOVERED_AT, LedgerKey

T = TypeVar("T")
_MOVE = "move"


@dataclass(frozen=True, slots=True)
class PositionMove:
    """``stored``: the positions before, ``targets``: those of the partitions that move. ``start``: where each partition
    is read from afterwards; below its target if records there are published and not in all tables yet. ``settled``: the
    offsets below which all records are in all tables before. ``again``: the tables get the records a second time.
    ``said``: the options of the command. ``stopped``: the sink is to stay stopped.

    ``end``: of the control log when the move began. ``rewound``: the positions are stored, and the ledgers are right;
    what is left is to tell the tables that the move has ended.
    """

    said: str
    stored: SourceOffsets
    targets: SourceOffsets
    start: SourceOffsets
    settled: SourceOffsets
    again: bool = False
    stopped: bool = False
    end: ControlOffsets = field(default_factory=dict, compare=False)
    rewound: bool = field(default=False, compare=False)

    def of_partitions(self, there: Collection[TopicPartition]) -> PositionMove:
        """The move without partitions that the sink does not read: their topic was deleted after it had begun."""

        def left(offsets: SourceOffsets) -> SourceOffsets:
            return {tp: at for tp, at in offsets.items() if tp in there}

        return replace(
            self,
            stored=left(self.stored),
            targets=left(self.targets),
            start=left(self.start),
            settled=left(self.settled),
        )

    @property
    def back(self) -> Coverage:
        """The offsets to which positions go back."""
        spans = {tp: (at, self.stored[tp]) for tp, at in self.targets.items()}
        return {tp: (Span(at, stored),) for tp, (at, stored) in spans.items() if at < stored}

    @property
    def skipped(self) -> Coverage:
        """The offsets that positions pass over."""
        spans = {tp: (self.stored[tp], at) for tp, at in self.targets.items()}
        return {tp: (Span(stored, at),) for tp, (stored, at) in spans.items() if stored < at}

    @property
    def restarted(self) -> SourceOffsets:
        """The partitions that are read from a lower offset than their target, and than their position before."""
        wanted = {**self.stored, **self.targets}
        return {tp: at for tp, at in self.start.items() if at < wanted.get(tp, at)}


@dataclass(frozen=True, slots=True)
class TablePart:
    """What a move means for one table. ``held``: what it holds, ``away``: what is to stay away from it."""

    held: Coverage
    away: Coverage = field(default_factory=dict)

    def doubles(self, move: PositionMove) -> Coverage:
        """The offsets to which positions go back and that the table holds."""
        return less(move.back, less(move.back, self.held))

    def leaves_out(self, move: PositionMove) -> Coverage:
        """The offsets that the table skips while they are read again."""
        kept = union(less(self.held, move.back) if move.again else self.held, self.away)
        later = {tp: beyond(spans, move.start.get(tp, 0)) for tp, spans in kept.items()}
        return {tp: spans for tp, spans in later.items() if spans}


def reached(stored: SourceOffsets, progress: SourceProgress, by_tables: SourceOffsets) -> SourceOffsets:
    """Where each partition must be read from if the control log is discarded and no position moves: below, all records
    are in all tables. ``progress``: what the log tells, of the present topics; ``by_tables``: what the tables tell of
    partitions of which the log tells nothing.
    """
    known = {tp: lowest_uncovered(progress.settled.get(tp, ())) for tp in progress.covered}
    return {tp: min(at, known.get(tp, by_tables.get(tp, at))) for tp, at in stored.items()}


def part_of(move: PositionMove, ledger: Ledger, *, waits: bool) -> TablePart:
    """``ledger``: of the present topics. ``waits``: an earlier recovery has not read all records again for the table.
    Then only its own ledger counts, as for a table that has never got a commit of the sink.
    """
    is_blank = not (ledger.source or ledger.control or ledger.gone)
    settled: SourceOffsets = {} if waits or is_blank else move.settled
    held = {
        tp: without(merged((Span(0, settled.get(tp, 0)), *ledger.held(tp))), ledger.gone.get(tp, ()))
        for tp in {*ledger.source, *settled}
    }
    return TablePart({tp: spans for tp, spans in held.items() if spans}, ledger.gone)


def restated(move: PositionMove, ledger: Ledger, *, part: TablePart, topic_ids: Mapping[str, str]) -> Ledger:
    """The ledger from the move on. ``part``: as before it, also if an earlier run of the command has restated the
    ledger.
    """
    source, settled, missing = dict(ledger.source), dict(ledger.settled), dict(ledger.missing)
    gone, forgotten = dict(ledger.gone), dict(ledger.forgotten)
    back, skipped = move.back, less(move.skipped, part.held)
    for tp in sorted({*back, *skipped}):
        for key in _keys(ledger, tp, topic_ids):
            mine = without(part.held.get(tp, ()), back.get(tp, ()) if move.again else ())
            below = min(settled.get(key, 0), move.targets[tp])
            if tp in back and mine:
                source[key], settled[key] = mine[-1].end, below
                missing[key] = without((Span(below, mine[-1].end),), mine)
            if tp in skipped:
                gone[key] = merged((*gone.get(key, ()), *skipped[tp]))
                forgotten[key] = merged((*forgotten.get(key, ()), *skipped[tp]))
            if tp in back and not mine and key in source:
                source[key], settled[key], missing[key] = below, below, ()
    missing = {tp: spans for tp, spans in missing.items() if spans}
    return replace(ledger, source=source, settled=settled, missing=missing, gone=gone, forgotten=forgotten)


def _keys(ledger: Ledger, tp: TopicPartition, topic_ids: Mapping[str, str]) -> Collection[TopicPartition]:
    """The partition as the ledger names it: one of a version that knew no topic ids may be without."""
    own = within(tp, topic_ids.get(tp.topic, ""))
    known = {each for each in (own, named(tp)) if each in {*ledger.source, *ledger.gone}}
    return sorted(known) or (own,)


def with_ids(values: Mapping[TopicPartition, T], topic_ids: Mapping[str, str]) -> dict[TopicPartition, T]:
    """The same values, by the partitions of the topics with these ids."""
    return {within(tp, topic_ids.get(tp.topic, "")): value for tp, value in values.items()}


def begun(move: PositionMove, key: LedgerKey, topic_ids: Mapping[str, str]) -> dict[str, str]:
    """The table property from the move's first step on: nothing is committed until the last one."""
    ((name, text),) = key.recovered_at("", move.end).items()
    positions = {"stored": move.stored, "targets": move.targets, "start": move.start, "settled": move.settled}
    said = {what: json.loads(encode_source(with_ids(each, topic_ids))) for what, each in positions.items()}
    of_move = {"said": move.said, "again": move.again, "stopped": move.stopped, "rewound": move.rewound, **said}
    return {name: json.dumps({**json.loads(text), _MOVE: of_move}, separators=(",", ":"))}


def unfinished(key: LedgerKey, properties: Mapping[str, str], topic_ids: Mapping[str, str]) -> PositionMove | None:
    """The move that has begun with this table and not ended, of the topics that are there now; None if there is none.

    :raises TableTroubleError: the property is not what calving writes.
    """
    return entry_of(properties, key.of_table(RECOVERED_AT), lambda text: _move(text, topic_ids))


def mind_other(key: LedgerKey, move: PositionMove, properties: Mapping[str, str], *, is_noted: bool = True) -> None:
    """:raises CommandFailedError: another command works on the positions at the same time. ``is_noted``: the table has
    had the note of this move.
    """
    other = unfinished(key, properties, {})
    if other is not None and other.said != move.said:
        raise CommandFailedError(
            f"`calving offsets FILE {other.said}` moves the positions of this sink at the same time: wait for its end,"
            " and run the command again"
        )
    if other is None and is_noted:
        raise CommandFailedError(
            "another command has moved the positions of this sink, or recovered it, at the same time: wait for its end,"
            " and run the command again"
        )


def noted(
    key: LedgerKey, move: PositionMove, topic_ids: Mapping[str, str], properties: Mapping[str, str]
) -> Mapping[str, str]:
    """The table property of the first step, for a table with these properties.

    :raises CommandFailedError: another move is noted there.
    """
    mind_other(key, move, properties, is_noted=False)
    return begun(move, key, topic_ids)


def _move(text: str, topic_ids: Mapping[str, str]) -> PositionMove | None:
    said = json.loads(text).get(_MOVE)
    if said is None:
        return None
    stored, targets, start, settled = (
        present(decode_source(json.dumps(said[what])), topic_ids) for what in ("stored", "targets", "start", "settled")
    )
    _, end = decode_recovered(text)
    again, stopped, rewound = (bool(said.get(what)) for what in ("again", "stopped", "rewound"))
    return PositionMove(
        str(said["said"]), stored, targets, start, settled, again=again, stopped=stopped, end=end, rewound=rewound
    )


def interrupted(move: PositionMove) -> str:
    """A sentence on a move that has not ended."""
    return f"`calving offsets FILE {move.said}` was interrupted: run it again, with these options, to its end"
