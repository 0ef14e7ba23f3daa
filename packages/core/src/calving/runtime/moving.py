"""Moves the stored positions of a stopped sink: ``calving offsets --to`` and ``--by``.

The steps, each of which may be done again: no coordinator can commit any more (``supersede``, which also notes the
move in each table); each ledger says what the move means for its table; the backend stores the positions and discards
its log, both or neither; each table is told that the move has ended. Before the first table is told so, the last one
notes that only this is left: a table that has been told takes commits, and its ledger must not be changed once more.

The plan is made before a coordinator is fenced, because it may be only looked at. So all that it was made from is read
again behind the fence. Of two commands at a time, one finds the note of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from pyiceberg.catalog import Catalog

from calving.backend.interface import Backend, ControlLog, Session
from calving.backend.sessions import read_to_end
from calving.errors import CommandFailedError, ConfigError, DataLossError
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.restating import restate
from calving.iceberg.summary import engine
from calving.iceberg.target import IcebergTarget
from calving.model.events import TargetState
from calving.model.offsets import (
    TRUNCATED,
    Coverage,
    SourceOffsets,
    encode_coverage,
    present,
    text_of,
)
from calving.protocol import moves
from calving.protocol import positions as unread_offsets
from calving.protocol.buffer import Buffer
from calving.protocol.ledger import Ledger
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.moves import PositionMove, TablePart
from calving.protocol.recovery import recovery, still_awaited
from calving.protocol.rollback import Marks
from calving.protocol.target_state import TargetStateInUse
from calving.runtime import components
from calving.runtime.destination import Destination
from calving.runtime.group_members import mind_members, running
from calving.runtime.log_view import keep, resumed
from calving.runtime.move_plan import plan_lines
from calving.runtime.positions import recreated_text, unread
from calving.runtime.preflight import TableRecord, before_first_commit, former_names, ledger_key, refuse_a_loss
from calving.runtime.recovered_tables import (
    mark_recovered,
    mind_other_names,
    said_by_tables,
    strangers,
    unfinished_move,
)
from calving.settings.load import Sink
from calving.source.interface import Bounds, Source
from calving.source.start import outside


@dataclass(frozen=True, slots=True)
class _Found:
    """What a move starts from."""

    sink: Sink
    catalog: Catalog
    topics: Source
    bounds: Bounds
    identities: Mapping[str, str]
    stored: SourceOffsets
    records: Mapping[str, TableRecord]
    log: ControlLog
    buffer: Buffer
    target: TargetStateInUse

    @property
    def ledgers(self) -> dict[str, Ledger]:
        """By table, of the topics that are there now."""
        return {name: record.ledger.present(self.identities) for name, record in self.records.items()}

    @property
    def basis(self) -> tuple[object, ...]:
        """What the plan depends on, apart from the bounds of topics, which move all the time."""
        progress = self.buffer.progress()
        return self.stored, self.ledgers, progress.covered, progress.settled, self.target.state

    def waiting(self) -> set[str]:
        """The tables for which an earlier recovery has not read all records again."""
        settled, begins = present(self.buffer.progress().settled, self.identities), self.bounds.begins
        return {
            name
            for name, ledger in self.ledgers.items()
            if still_awaited(present(self.records[name].awaited, self.identities), ledger, settled, begins)
        }


def move_positions(sink: Sink, destination: Destination, *, dry_run: bool, only_stopped: bool = False) -> Iterator[str]:
    """Store other positions; one line for each thing that it means. Run it again after an interruption.

    ``only_stopped``: refuse unless an operator has stopped the sink, by the control log.

    :raises CalvingError: it cannot be done; nothing has changed, or the text says what has.
    """
    topics, backend = components.source(sink), components.backend(sink)
    if not dry_run:
        mind_members(topics, (sink.group,))
    with closing(backend.open(str(uuid4()))) as session:
        found = _found(sink, topics, session)
        move = unfinished_move(found.catalog, sink, found.records, found.identities)
        if move is None:
            _mind_state(found, session)
            move = _planned(found, destination)
        elif move.said != destination.said:
            raise ConfigError(moves.interrupted(move))
        move = move.of_partitions(found.bounds.begins)
        if only_stopped and not (move.stopped or found.target.stopped):
            raise CommandFailedError("the sink was resumed meanwhile: stop it first")
    parts = _parts(found, move)
    _check(found, move, parts)
    yield from plan_lines(move, parts, _unheld(found, move, parts))
    if not (move.back or move.skipped):
        yield "the positions are there already"
    elif dry_run:
        yield from running(topics, sink.group)
    else:
        _do(found, backend, move, parts)
        yield "done: the next run starts there"


def _found(sink: Sink, topics: Source, session: Session) -> _Found:
    every = topics.partitions()
    stored = session.committed(every)
    catalog, names = components.catalog(sink), {tp.topic for tp in every}
    with closing(session.watch()) as cursor:
        buffer, marks, target = Buffer(cursor.log.start), Marks(), TargetStateInUse()
        for entry in read_to_end(cursor):
            buffer.hear(entry)
            marks.hear(entry)
            target.hear(entry)
        records = dict(said_by_tables(catalog, sink, cursor.log.identity, names, marks))
        identities = topics.identities(names)
        bounds, log = topics.bounds(every), cursor.log
        return _Found(
            sink, catalog, topics, bounds, identities, stored, records=records, log=log, buffer=buffer, target=target
        )


def _mind_state(found: _Found, session: Session) -> None:
    """:raises CalvingError: the sink would not start as it is, so it is unknown what its positions mean."""
    sink, topics, stored = found.sink, found.topics, found.stored
    refuse_a_loss(found.catalog, sink, topics, session, found.log, [*found.records])
    if not stored:
        raise ConfigError(
            f"group {sink.group} has no stored positions: the key iceberg.source.start says where the first start"
            " begins; if the sink has run before, run `calving recover FILE`"
        )
    for tp, identity in session.topic_ids(stored.keys()).items():
        before = identity.removesuffix(TRUNCATED)
        if before and found.identities.get(tp.topic, before) != before:
            raise DataLossError(f"{recreated_text(tp, stored[tp])}: start the sink first, which says what to do")
    for tp, at in stored.items():
        if at > found.bounds.ends[tp]:
            raise DataLossError(
                f"{tp} is stored at {at}, but the topic ends at {found.bounds.ends[tp]}: it was truncated or recreated;"
                " start the sink first, which says what to do"
            )
    by_tables = partial(resumed, found.catalog, sink, topics)
    for tp, each in unread(session, stored, found.identities, by_tables).items():
        raise DataLossError(unread_offsets.text_of(tp, each.span))
    for tp, spans in unread_offsets.passed_over(found.buffer.progress().covered).items():
        raise DataLossError(unread_offsets.text_of(tp, spans[0]))
    for name, ledger in found.ledgers.items():
        if ledger.doubt is not None:
            raise ConfigError(
                f"table {name} may have been rolled back, and its snapshots do not tell: say first what becomes of its"
                f" records, with `calving rollback FILE --table {name} --as-is`"
            )


def _planned(found: _Found, destination: Destination) -> PositionMove:
    """:raises ConfigError: a position would be outside its partition, or records would get lost."""
    sink, begins = found.sink, found.bounds.begins
    stored = {**begins, **found.stored}
    targets = _targets(found, destination, stored)
    ledgers, waiting = found.ledgers, found.waiting()
    by_tables = recovery(ledgers, (), waiting, complete=not sink.keys.routes_freely)
    progress = found.buffer.progress()
    told = replace(
        progress,
        covered=present(progress.covered, found.identities),
        settled=present(progress.settled, found.identities),
    )
    reached = moves.reached(stored, told, by_tables.positions)
    for tp, at in targets.items():
        if at > stored[tp] > reached[tp]:
            raise ConfigError(
                f"{tp}: records from offset {reached[tp]} to {stored[tp]} are published and not in all tables yet, so"
                f" later ones cannot be skipped: start the sink, and stop it by PUT /connectors/{sink.keys.name}/stop,"
                f" which commits them first; or go back to {reached[tp]} at most"
            )
    ahead = {tp: at for tp, at in targets.items() if at > stored[tp]}
    start = {tp: ahead.get(tp, min(at, targets.get(tp, at))) for tp, at in reached.items()}
    for tp, at in start.items():
        if at < begins[tp] and at < stored[tp]:
            raise ConfigError(
                f"{tp}: records from offset {at} on have to be read again, because they are published and not in all"
                f" tables yet, but the topic begins at {begins[tp]}: start the sink first, so that it commits them"
            )
    believed = (ledger.settled for name, ledger in ledgers.items() if name not in waiting)
    settled = dict(reached)
    for each in believed:
        settled = {tp: max(at, min(each.get(tp, 0), stored[tp])) for tp, at in settled.items()}
    said, again, stopped = destination.said, destination.again, found.target.stopped
    return PositionMove(said, stored, targets, start=start, settled=settled, again=again, stopped=stopped)


def _targets(found: _Found, destination: Destination, stored: SourceOffsets) -> SourceOffsets:
    """The new position of each partition that the options name."""
    (begins, ends), start = found.bounds, destination.start
    if destination.by is not None:
        by = destination.by
        return {tp: max(begins[tp], min(at + by, ends[tp])) for tp, at in stored.items()}
    if (why := outside(start, begins, ends)) is not None:
        raise ConfigError(f"--to: {why}; nothing was moved")
    named = dict(start.offsets)
    if not destination.moves_all:
        return named
    if isinstance(start.place, str):
        return {**(begins if start.place == "earliest" else ends), **named}
    return {**ends, **found.topics.first_at(ends.keys(), start.place), **named}


def _parts(found: _Found, move: PositionMove) -> dict[str, TablePart]:
    waiting = found.waiting()
    return {name: moves.part_of(move, ledger, waits=name in waiting) for name, ledger in found.ledgers.items()}


def _check(found: _Found, move: PositionMove, parts: Mapping[str, TablePart]) -> None:
    """:raises ConfigError: rows would be mixed up or doubled that nobody wants twice."""
    sink, begins = found.sink, found.bounds.begins
    others = former_names(found.records, begins.keys(), found.identities)
    again_there = ((name, owner) for name, owner, tp, end in others if move.start.get(tp, end) < end)
    mind_other_names(sink, strangers(found.catalog, sink, again_there))
    if move.again and move.skipped and not move.back:
        raise ConfigError("--again: no position goes back, so no record is read again")
    for name, part in parts.items():
        if move.again and sink.mutations(name) is not None and (doubled := part.doubles(move)):
            raise ConfigError(
                f"--again: table {name} holds {text_of(doubled)}, and records change its rows: older changes cannot be"
                " put beneath later ones. Roll the table back to before them instead:"
                f" `calving rollback FILE --table {name} --before TIME --then reread`; or leave --again out"
            )


def _unheld(found: _Found, move: PositionMove, parts: Mapping[str, TablePart]) -> dict[str, Coverage]:
    """What tables only seem to hold of the offsets to which positions go back."""
    unheld: dict[str, Coverage] = {}
    for name in (name for name, part in parts.items() if part.doubles(move)):
        if (table := find_table(found.catalog, table_id(name))) is not None:
            key = ledger_key(found.sink, found.log.identity, name)
            unheld[name] = present(before_first_commit(key, table), found.identities)
    return unheld


def _do(found: _Found, backend: Backend, move: PositionMove, parts: Mapping[str, TablePart]) -> None:
    move = move if move.rewound else _rewound(found, backend, move, parts)
    with closing(backend.open(str(uuid4()))) as session, closing(session.follow(replay=False)) as cursor:
        # What workers have published since the positions were stored is not from before the move.
        control = replace(cursor.log, end=move.end)
        for name in parts:
            mark_recovered(found.catalog, found.sink, name, control, None, again=False, forgotten=False)


def _rewound(found: _Found, backend: Backend, move: PositionMove, parts: Mapping[str, TablePart]) -> PositionMove:
    """The move once the positions are stored, and a table says so."""
    sink, topics, identities = found.sink, found.topics, found.identities
    with (
        closing(backend.open(str(uuid4()))) as session,
        closing(session.follow(replay=True)) as cursor,  # fences any running coordinator
    ):
        _mind_members_now(topics, sink.group)
        if _found(sink, topics, session).basis != found.basis:
            raise CommandFailedError("the sink has run since this was planned: nothing has moved; run it again")
        of_table = {name: ledger_key(sink, cursor.log.identity, name) for name in parts}
        move = replace(move, end=cursor.log.end)
        for name, key in of_table.items():
            _target(found, name, key).supersede(partial(moves.noted, key, move, identities))
        for name, part in parts.items():
            key = of_table[name]
            restate(
                _target(found, name, key),
                key,
                partial(moves.restated, move, part=part, topic_ids=identities),
                moves.with_ids(part.doubles(move), identities) if move.again else {},
                {key.holding: encode_coverage(moves.with_ids(part.leaves_out(move), identities))},
                partial(moves.mind_other, key, move),
            )
        _mind_members_now(topics, sink.group)  # a worker would store its own position over the new one
        cursor.rewind({**found.bounds.begins, **move.start})
    move = replace(move, rewound=True)
    with closing(backend.open(str(uuid4()))) as session, closing(session.follow(replay=move.stopped)) as cursor:
        keep(TargetStateInUse(TargetState.STOPPED if move.stopped else TargetState.RUNNING), cursor)
    for name in [*parts][1:][-1:]:  # the only table is told all at once
        with found.catalog.load_table(table_id(name)).transaction() as change:
            change.set_properties(moves.begun(move, of_table[name], identities))
    return move


def _mind_members_now(topics: Source, group: str) -> None:
    for refusal in running(topics, group):
        raise CommandFailedError(refusal)


def _target(found: _Found, name: str, key: LedgerKey) -> IcebergTarget:
    return IcebergTarget(found.catalog, table_id(name), key.branch, key, engine())
