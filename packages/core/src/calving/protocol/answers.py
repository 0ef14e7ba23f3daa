"""Answers to a rollback: where the head of a branch goes, and what becomes of the records that the branch loses (R7 to
R11).

All here is decided from the snapshots of a table and its properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from calving.errors import ConfigError, TableTroubleError
from calving.model.offsets import Coverage, Span, TopicPartition, common, less, text_of, union
from calving.protocol.ledger import Ledger
from calving.protocol.ledger_key import COMMIT_ID, LedgerKey
from calving.protocol.rollback import Ancestor, Line, added_by, down_from

_ADDED_FILES = "added-data-files"


@dataclass(frozen=True, slots=True)
class AsItIs:
    """The head stays: somebody has rolled the branch back already."""


@dataclass(frozen=True, slots=True)
class ToSnapshot:
    """The branch goes back to the snapshot with this id."""

    id: int


@dataclass(frozen=True, slots=True)
class BeforeTime:
    """The branch goes back to its newest snapshot from before this time, milliseconds since 1970."""

    ms: int


@dataclass(frozen=True, slots=True)
class WithoutRecord:
    """The branch goes back to its newest snapshot that does not hold the record with this source offset."""

    tp: TopicPartition
    offset: int


RollbackTarget = AsItIs | ToSnapshot | BeforeTime | WithoutRecord


def from_here(line: Line, snapshot_id: int | None) -> Line:
    """The part of a branch that begins with one of its snapshots; without any if the id is None."""
    shown = list(line.snapshots)
    places = [place for place, snapshot in enumerate(shown) if snapshot.place.id == snapshot_id]
    return replace(line, snapshots=shown[places[0] :] if places else ())


def newest_without(
    key: LedgerKey, line: Line, properties: Mapping[str, str], wanted: TopicPartition, offset: int
) -> Ancestor | None:
    """The newest snapshot of a branch that does not hold a record; None if none is left that surely does not."""
    shown = list(line.snapshots)
    for place, snapshot in enumerate(shown):
        ledger = key.read(replace(line, snapshots=shown[place:]), properties)
        if ledger.doubt is not None:
            return None
        same = (tp for tp in ledger.source if tp[:2] == wanted[:2] and tp.topic_id in ("", wanted.topic_id))
        if not any(span.start <= offset < span.end for tp in same for span in ledger.held(tp)):
            return snapshot
    return None


@dataclass(frozen=True, slots=True)
class AbandonedCommits:
    """The snapshots of a sink that a branch no longer has, oldest first, and the ``offsets`` that they bring back.
    ``left``: offsets that no such snapshot can bring back.
    """

    snapshots: tuple[Ancestor, ...] = ()
    offsets: Coverage = field(default_factory=dict)
    left: Coverage = field(default_factory=dict)


def abandoned(key: LedgerKey, line: Line, apart: Iterable[Ancestor], ledger: Ledger) -> AbandonedCommits:
    """The commits that bring back what the table lacks, each offset once (R10), and as the table had it last: records
    that were read again between two rollbacks may have other rows than before. What was forgotten stays away.
    ``apart``: the snapshots that the branch does not have, oldest first.

    :raises TableTroubleError: a snapshot has files of which no ledger tells the offsets.
    """
    snapshots: list[Ancestor] = []
    offsets: Coverage = {}
    lacking = ledger.unanswered
    for snapshot in reversed(list(apart)):
        if key.own((snapshot,)) is None:
            _mind_unknown_files(key, snapshot)
            continue
        added = _less_of_other_names(key, line, snapshot, added_by(line, snapshot.place.id, key.held_at) or {})
        # What has been read again, or brought back, since is in the table: its files must not come back.
        if added and not less(added, lacking):
            snapshots.append(snapshot)
            offsets, lacking = union(offsets, added), less(lacking, added)
    return AbandonedCommits(tuple(reversed(snapshots)), offsets, lacking)


def _less_of_other_names(key: LedgerKey, line: Line, snapshot: Ancestor, added: Coverage) -> Coverage:
    """What a snapshot added, without what a sink of another name had committed below the first one of this sink.
    ``calving recover --from`` takes the offsets of a former name over, and not its files.
    """
    theirs: Coverage | None = None
    for each in down_from(line, snapshot.parent):
        if each is not None:
            if key.own((each,)) is not None:  # mostly the next one: the walk is short
                return added
            theirs = key.any_held_at(each) if theirs is None else theirs
    return added if theirs is None else {tp: spans for tp, spans in less(added, theirs).items() if spans}


def _mind_unknown_files(key: LedgerKey, snapshot: Ancestor) -> None:
    """The Java sink tells control offsets alone. A sink of another name answers for its own records."""
    if COMMIT_ID in snapshot.summary and key.is_own(snapshot) and snapshot.summary.get(_ADDED_FILES, "0") != "0":
        raise TableTroubleError(
            f"snapshot {snapshot.place.id} was committed by a sink that tells no source offsets, so nobody knows which"
            " of its records the table lacks; what is left is `reread` or `forget`"
        )


def way_forward(
    key: LedgerKey, line: Line, apart: Iterable[Ancestor], now: Ledger, properties: Mapping[str, str]
) -> list[Ancestor]:
    """The newest snapshot of the sink that is built on the head of a branch, and that adds all that the table lacks and
    that was not forgotten, and nothing else; and those between the two, newest first. Empty if there is none. ``now``:
    what the branch holds. ``apart``: as of ``abandoned``.
    """
    head = line.head
    wanted = union(now.unanswered, {tp: now.held(tp) for tp in now.source})
    unrelated: set[int] = set()
    for snapshot in reversed(list(apart)):
        if key.own((snapshot,)) is None:
            continue
        shown = _down_to(line, snapshot, head, unrelated)
        if not shown:
            continue
        ledger = key.read(replace(line, snapshots=[*shown, *line.snapshots]), properties)
        held = {tp: ledger.held(tp) for tp in ledger.source}
        # What is read again since an earlier rollback is on its way to the table: it must not come back as well.
        if not less(held, wanted) and not less(now.unanswered, held) and ledger.doubt is None:
            return shown
    return []


def _down_to(line: Line, snapshot: Ancestor, head: Ancestor | None, unrelated: set[int]) -> list[Ancestor]:
    """A snapshot and those below it that are above the ``head``, newest first; empty if it is not built on the head.
    ``unrelated``: snapshots that are known not to be built on it; this one and those below it may join them. So many
    snapshots share one walk.
    """
    shown, end = [snapshot], head.place.id if head is not None else None
    seen = {snapshot.place.id}
    while (parent := shown[-1].parent) != end:
        below = None
        if parent is not None and parent not in seen and parent not in unrelated:
            below = line.snapshot(parent)
        if below is None:
            unrelated |= seen
            return []
        seen.add(below.place.id)
        shown.append(below)
    return shown


def mind_ends(table: str, gone: Coverage, begins: Mapping[TopicPartition, int]) -> None:
    """Refuse to read again what the topics no longer have (R11). ``begins``: their lowest offsets.

    :raises ConfigError: they lack a part of ``gone``.
    """
    lost = {tp: cut for tp, spans in gone.items() if (cut := common(spans, (Span(0, begins.get(tp, 2**63)),)))}
    if lost:
        starts = ", ".join(f"{tp} begins at offset {begins[tp]}" if tp in begins else f"{tp} is gone" for tp in lost)
        raise ConfigError(
            f"table {table}: {starts}, so {text_of(lost)} cannot be read again; the answers that are left are `restore`"
            " and `forget`"
        )
