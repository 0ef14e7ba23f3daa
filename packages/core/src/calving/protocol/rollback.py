"""Whether a table shows an older state: its branch was rolled back to a snapshot from before the sink's last commit
(rule R2), or the catalog is a stale replica or a restored backup.

A ledger stands in the summary of the snapshot that it describes. The table properties repeat the newest ledger, because
snapshots expire, and name that snapshot (R1). A rollback moves the head and leaves the properties as they are. So if
the branch shows no ledger, either the snapshots with one have expired, and the properties are true; or they were rolled
back, and the properties claim records that are in no snapshot.

After a rollback another engine may cherry-pick: add the files of an abandoned snapshot, its source, in a new one. The
summary of the new snapshot names the source, and has no ledger. So what the source had added to the sink's ledger is in
the table again.

A catalog that fails over to a stale replica, or is restored from a backup, shows an older state of a table: with fewer
rows, and the ledger of that time. No operation on a table lowers its last sequence number, not even a rollback. (Tables
of format version 1 have no sequence number.)
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from typing import NamedTuple

from calving.model.events import Envelope, TableId
from calving.model.marks import TableMark
from calving.model.offsets import Coverage, decode_coverage, encode_coverage, less, merged, size, text_of
from calving.model.tables import OnRollback, SnapshotPlace
from calving.model.text import counted

SOURCE_SNAPSHOT_ID = "source-snapshot-id"
"""The summary entry of a cherry-pick. Iceberg writes it."""
PUBLISHED_WAP_ID = "published-wap-id"
"""The same, of a cherry-pick of a staged snapshot. A sink stages none."""
PUBLISHED_BY = "calving.published-by"
"""The summary entry of a cherry-pick that names the backfill whose records it has; none of them is another sink's."""
_ID_DIGITS = 19
"""The most digits of a snapshot's id."""
_MOST_SOURCES = 200
"""The most cherry-picks, one above the other, that are told apart."""


class Ancestor(NamedTuple):
    """A snapshot of a branch. ``parent``: the id of its parent, which may have expired."""

    place: SnapshotPlace
    parent: int | None
    summary: Mapping[str, str]


def _has_lower_number(snapshot: SnapshotPlace, other: SnapshotPlace) -> bool:
    return snapshot.number < other.number


@dataclass(frozen=True, slots=True)
class Line:
    """The snapshots of a branch, head first, as far as the table's metadata has them.

    ``heads``: snapshots that were the branch's head at some time, newest first, as far as this is known.
    ``is_earlier``: whether the first snapshot was surely made before the second one. ``parent_of``: the parent that a
    snapshot had when it was made; some catalogs remove a snapshot's parent when the parent expires. ``expired``: an
    expired snapshot by its id, if an earlier version of the metadata is still there that has it. ``has_files_of``:
    whether the head has a live file or a manifest of a snapshot. These three read files, so they are only called if
    nothing else decides. ``snapshot``: a snapshot of the table by its id, also of another branch or of none; None if it
    has expired. ``taken_over``: the same of one that a restoration has removed; of its summary only the ledger is left.
    """

    snapshots: Iterable[Ancestor]
    heads: Callable[[], Iterable[Ancestor]] = tuple
    is_earlier: Callable[[SnapshotPlace, SnapshotPlace], bool] = _has_lower_number
    parent_of: Callable[[SnapshotPlace], int | None] = lambda snapshot: None
    expired: Callable[[int], Ancestor | None] = lambda snapshot_id: None
    has_files_of: Callable[[SnapshotPlace], bool] = lambda snapshot: False
    snapshot: Callable[[int], Ancestor | None] = lambda snapshot_id: None
    taken_over: Callable[[int], Ancestor | None] = lambda snapshot_id: None

    @property
    def head(self) -> Ancestor | None:
        """The newest snapshot; None for an empty branch."""
        return next(iter(self.snapshots), None)

    def has(self, place: SnapshotPlace) -> bool:
        """Whether a snapshot is in the branch."""
        return any(snapshot.place.id == place.id for snapshot in self.snapshots)

    def below(self) -> int | None:
        """The id of the snapshot below the last one, which has expired; None if the branch is known from its
        beginning.
        """
        last = next(iter(deque(self.snapshots, maxlen=1)), None)
        if last is None:
            return None
        return last.parent if last.parent is not None else self.parent_of(last.place)

    def past(self) -> Iterator[Ancestor]:
        """The expired snapshots below the last one, as far as they are known."""
        below, seen = self.below(), set[int]()
        while below is not None and below not in seen and (snapshot := self.expired(below)) is not None:
            yield snapshot
            seen.add(below)
            below = snapshot.parent


class Verdict(Enum):
    """``DOUBT``: a rollback whose target has expired, and a compaction with expiry, look alike."""

    INTACT = "the branch has the commit"
    ROLLED_BACK = "the branch was rolled back to before the commit"
    DOUBT = "the branch has the commit, or was rolled back"


def verdict(line: Line, last: SnapshotPlace) -> Verdict:
    """Whether a branch has the sink's ``last`` commit: walk from the head along the parents, as far as they are
    known.
    """
    for each in line.snapshots:
        if each.place.id == last.id:
            return Verdict.INTACT
        if line.is_earlier(each.place, last):
            return Verdict.ROLLED_BACK
    below = line.below()
    if below is None:
        return Verdict.ROLLED_BACK
    for each in line.past():
        if line.is_earlier(each.place, last):
            return Verdict.ROLLED_BACK
        if last.id in (each.place.id, each.parent):
            return Verdict.INTACT
    return Verdict.INTACT if below == last.id or line.has_files_of(last) else Verdict.DOUBT


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A rollback of a table that nobody has answered. ``doubt``: the commit that the table may have lost, if it is
    not known whether the table was rolled back.
    """

    gone: Coverage
    doubt: SnapshotPlace | None = None

    @staticmethod
    def of(gone: Coverage, doubt: SnapshotPlace | None) -> RolledBack | None:
        """The state of a table that lacks ``gone``, or may lack what came up to ``doubt``; None if it lacks nothing."""
        return RolledBack(gone, doubt) if gone or doubt is not None else None

    def stops(self, policy: OnRollback) -> bool:
        """Whether the table takes nothing until somebody has answered (R6)."""
        return policy == "stop-on-doubt" or (policy == "stop" and bool(self.gone))

    @property
    def offsets(self) -> int:
        """The number of offsets that the table held, and no longer holds."""
        return size(self.gone)

    def text(self, table: str, answer: str | None = None) -> str:
        """A sentence on what is missing, and on what to do. ``answer``: of a backfill, which the commands of a sink do
        not answer for.
        """
        if not self.gone and answer is not None:
            return (
                f"table {table} may have been rolled back: snapshot {self.doubt and self.doubt.id}, the last commit"
                f" there, has expired; compare the rows with the topics; if some are missing, {answer}"
            )
        if not self.gone:
            return (
                f"table {table} may have been rolled back: snapshot {self.doubt and self.doubt.id}, this sink's last"
                " commit there, has expired, and so have the snapshots that would tell whether the table still has its"
                " rows; compare the rows with the topics; if none is missing, run `calving rollback FILE --table"
                f" {table} --as-is --then forget`; else stop all workers and run `calving recover FILE --table"
                f" {table}`, which says what is left to do"
            )
        commands = f"run `calving rollback FILE --table {table} --as-is --then restore`, or `reread`, or `forget`"
        return (
            f"table {table} was rolled back: it no longer holds {counted(self.offsets, 'offset')} that this sink had"
            f" committed ({text_of(self.gone)}); to have these records again"
            + (f", {answer}" if answer is not None else f", or to do without them, {commands}")
        )


@dataclass(frozen=True, slots=True)
class RollbackNote:
    """What ``calving rollback`` has done with a branch: the ids of the head that it met and of the head that it left,
    None if there was no snapshot; and the offsets that stay away, because nobody wants them again (R9).
    """

    before: int | None = None
    after: int | None = None
    forgotten: Coverage = field(default_factory=dict)

    def __str__(self) -> str:
        """As a table property holds it."""
        said: dict[str, object] = {"from": self.before, "to": self.after}
        if self.forgotten:
            said["forgotten"] = json.loads(encode_coverage(self.forgotten))
        return json.dumps(said, separators=(",", ":"))

    @staticmethod
    def parse(text: str) -> RollbackNote:
        """:raises ValueError, LookupError, TypeError: the text has another form."""
        said = dict(json.loads(text))
        before, after = (None if said.get(name) is None else int(said[name]) for name in ("from", "to"))
        return RollbackNote(before, after, decode_coverage(json.dumps(said.get("forgotten", {}))))


Held = Callable[[Ancestor], Coverage | None]
"""The source offsets that the ledger in a snapshot's summary holds; None if it has no ledger of the sink."""


def source_of(snapshot: Ancestor) -> int | None:
    """The id of the snapshot that this one is a cherry-pick of; None if it is none, or only has records of a
    backfill.
    """
    if PUBLISHED_BY in snapshot.summary:
        return None
    source = snapshot.summary.get(SOURCE_SNAPSHOT_ID, "")
    return int(source) if source.isdecimal() and len(source) <= _ID_DIGITS else None


def picked(line: Line, held: Held) -> Coverage:
    """The source offsets that the cherry-picks above the newest ledger of a branch have added to it, as far as their
    sources have not expired.
    """
    total: Coverage = {}
    for snapshot in takewhile(lambda each: held(each) is None, line.snapshots):
        if (source := source_of(snapshot)) is not None:
            added = added_by(line, source, held) or {}
            total = {tp: merged((*total.get(tp, ()), *added.get(tp, ()))) for tp in {*total, *added}}
    return total


def added_by(line: Line, snapshot_id: int, held: Held) -> Coverage | None:
    """The source offsets that a snapshot added to the ledger; None if it has expired, or the one with the ledger before
    it, or the source of a cherry-pick between the two: what that one brought back, this one has not added.
    """
    return _Additions(line, held).by(snapshot_id)


@dataclass(frozen=True, slots=True)
class _Additions:
    """What snapshots added to the ledger. Damaged metadata may call a snapshot its own source, or name very many
    sources: then it is unknown.
    """

    line: Line
    held: Held
    known: dict[int, Coverage | None] = field(default_factory=dict)

    def by(self, snapshot_id: int) -> Coverage | None:
        if snapshot_id not in self.known and len(self.known) < _MOST_SOURCES:
            self.known[snapshot_id] = None
            self.known[snapshot_id] = self._found(snapshot_id)
        return self.known.get(snapshot_id)

    def _found(self, snapshot_id: int) -> Coverage | None:
        shown = down_from(self.line, snapshot_id)
        first = next(shown)
        if first is None or (now := self.held(first)) is None:
            return None if first is None else {}
        for snapshot in shown:
            if snapshot is None:
                return None
            if (before := self.held(snapshot)) is not None:
                return less(now, before)
            if (source := source_of(snapshot)) is not None and PUBLISHED_WAP_ID not in snapshot.summary:
                if (brought := self.by(source)) is None:
                    return None
                now = less(now, brought)
        return now


def down_from(line: Line, snapshot_id: int | None) -> Iterator[Ancestor | None]:
    """A snapshot and those below it, to the first one of its branch; None in the place of one that has expired."""
    seen: set[int] = set()
    while snapshot_id is not None:
        # Damaged metadata may call a snapshot its own ancestor.
        snapshot = None
        if snapshot_id not in seen:
            snapshot = line.snapshot(snapshot_id) or line.taken_over(snapshot_id)
        yield snapshot
        if snapshot is None:
            return
        seen.add(snapshot_id)
        snapshot_id = snapshot.parent if snapshot.parent is not None else line.parent_of(snapshot.place)


_MOST = 1_000
"""How many tables have a mark, at most: the tables committed last. The number is limited, because every CommitComplete
carries all marks.
"""


def _confirms(found: TableMark, before: TableMark) -> bool:
    return found.uuid == before.uuid and not found.is_older_than(before)


class Marks:
    """The last mark of each table; if there are more than a thousand, of the thousand tables that were committed
    last.
    """

    def __init__(self) -> None:
        self._known: dict[TableId, TableMark] = {}

    def hear(self, envelope: Envelope) -> None:
        """An entry of the control log, with the marks that its coordinator knew."""
        for table, mark in envelope.attached.marks.items():
            self.note(table, mark)

    def note(self, table: TableId, mark: TableMark) -> None:
        """The table was loaded with this mark. It replaces the earlier mark unless it is of an older state."""
        before = self._known.pop(table, None)
        self._known[table] = before if before is not None and mark.is_older_than(before) else mark.after(before)
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]

    @property
    def known(self) -> Mapping[TableId, TableMark]:
        """The marks, in the order of the last commits."""
        return dict(self._known)

    def unconfirmed(self, seen: Mapping[TableId, TableMark]) -> set[TableId]:
        """Marked tables that ``seen`` lacks, or shows in an older state or with another UUID."""
        return {t for t, mark in self._known.items() if (now := seen.get(t)) is None or not _confirms(now, mark)}

    def older(self, tables: Mapping[TableId, TableMark]) -> set[TableId]:
        """The ``tables`` whose marks are of an older state than their last marks here."""
        return {table for table, mark in tables.items() if mark.is_older_than(self._known.get(table))}
