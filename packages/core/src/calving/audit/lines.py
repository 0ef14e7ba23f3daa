"""The ledgers of one sink along a branch: what each snapshot has taken, and whether anything was lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from calving.audit.findings import AuditFinding, FindingKind
from calving.audit.ledgers import (
    CONTROL,
    GONE,
    LEDGER_SNAPSHOT,
    MISSING,
    Partition,
    Ranges,
    StatedLedger,
    UnreadableLedgerError,
    count,
    named,
    owners,
    ranges_text,
    stated,
    subtracted,
)
from calving.audit.metadata import MAIN, SnapshotState, TableMetadataFile

_COMMIT = "kafka.connect.commit-id"
_RESTORED = "calving.restored-snapshots"


@dataclass(frozen=True, slots=True)
class TakenOffsets:
    """The offsets whose records a snapshot has brought. ``rows``: the rows of the data files that it has added; None
    if they are not known.
    """

    snapshot: int
    offsets: Mapping[Partition, Ranges]
    rows: int | None
    is_known: bool = True
    """False: these offsets are those of this snapshot and of some below it, whose ledgers have expired, or are of the
    Java sink.
    """

    def json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "snapshot": self.snapshot,
            "exact": self.is_known,
            "rows": self.rows,
            "offsets": [
                {"topic": partition[0], "partition": partition[1], "ranges": [list(each) for each in ranges]}
                for partition, ranges in sorted(self.offsets.items())
            ],
        }


@dataclass
class SinkLine:
    """What one sink has written into one branch. ``newest``: its ledger at the head, with its snapshot."""

    owner: str
    branch: str
    taken: list[TakenOffsets] = field(default_factory=list)
    newest: tuple[SnapshotState, StatedLedger] | None = None
    stored: StatedLedger | None = None
    """The ledger in the table properties."""
    gone: Mapping[Partition, Ranges] = field(default_factory=dict)
    """Offsets that a rollback has removed."""
    early: Mapping[Partition, Ranges] = field(default_factory=dict)
    """Offsets that were settled before the first commit, as by a first start elsewhere than at the beginning: the
    ledger counts them, and the table has none of their records. Empty if the first commit is not known.
    """

    @property
    def ledger(self) -> StatedLedger | None:
        """The one at the head; that of the properties if the snapshots with it have expired."""
        return self.newest[1] if self.newest is not None else self.stored

    def held(self) -> dict[Partition, Ranges]:
        """The offsets whose records the table holds, as far as they belong into it, by the ledger at the head."""
        held = self.ledger.held() if self.ledger is not None else {}
        return {partition: subtracted(ranges, self.early.get(partition, ())) for partition, ranges in held.items()}

    def taker(self, partition: Partition, offset: int) -> TakenOffsets | None:
        """The snapshot that has taken an offset. A partition without a topic id is that of any id."""
        for each in reversed(self.taken):
            for of, ranges in each.offsets.items():
                is_it = of == partition or (of[0].partition("@")[0], of[1]) == partition
                if is_it and any(start <= offset < end for start, end in ranges):
                    return each
        return None


def sink_lines(metadata: TableMetadataFile, at: int | None) -> list[SinkLine]:
    """A line for each sink and branch; with ``at`` only those that end in this snapshot."""
    lines = []
    for branch in metadata.branches if at is None else [""]:
        head = at if at is not None else metadata.heads[branch]
        found = {owner for snapshot in metadata.line(head) for owner in owners(snapshot.summary)}
        if at is None:
            end = "" if branch == MAIN else f"@{branch}"
            said = {name for name in owners(metadata.properties) if ("@" not in name) == (branch == MAIN)}
            found |= {name.removesuffix(end) for name in said if name.endswith(end)}
        lines += [SinkLine(owner, branch) for owner in sorted(found)]
    return lines


class LineJudge:
    """Judges the line of one sink. ``rows``: the rows that each snapshot has added; ``begins``: whether a snapshot is
    surely the first one of its table.
    """

    def __init__(
        self, metadata: TableMetadataFile, line: SinkLine, rows: Mapping[int, int], begins: Mapping[int, bool]
    ) -> None:
        self._metadata, self._line, self._rows, self._begins = metadata, line, rows, begins
        self._control: dict[str | None, Mapping[int, int]] = {}
        self._held: dict[Partition, Ranges] = {}
        self._is_known = False
        self._first: int | None = None
        """The first commit of any sink, if it is one of this sink, and surely began with new rows."""

    def judge(self, head: int | None) -> Iterator[AuditFinding]:
        """Walk from the oldest snapshot to the head."""
        snapshots = list(self._metadata.line(head))[::-1]
        self._is_known = bool(snapshots) and self._begins.get(snapshots[0].id, False)
        first = next((each for each in snapshots if owners(each.summary)), None)
        if self._is_known and first is not None and _RESTORED not in first.summary:
            self._first = first.id
        for snapshot in snapshots:
            if f"{CONTROL}{self._line.owner}" in snapshot.summary:
                for text in self._stated(snapshot):
                    yield self._wrong(snapshot.name, text)
                yield from self._more_rows(snapshot)
        texts = self._properties(snapshots) if self._line.branch else self._gone(f".{self._line.owner}")
        yield from (self._wrong(self._metadata.location, text) for text in texts)

    def _stated(self, snapshot: SnapshotState) -> Iterator[str]:
        try:
            ledger = stated(snapshot.summary, self._line.owner)
        except UnreadableLedgerError as error:
            yield str(error)
            return
        yield from ledger.faults()
        before = self._control.get(ledger.log_id, {})
        for partition, offset in before.items():
            if ledger.control.get(partition, 0) < offset:
                now = ledger.control.get(partition, 0)
                yield f"the control offset of {self._line.owner}, partition {partition}, went from {offset} to {now}"
        self._control[ledger.log_id] = ledger.control
        if ledger.source is not None and len(owners(snapshot.summary)) == 1:
            yield from self._take(snapshot, ledger)
            self._line.newest = snapshot, ledger
        elif ledger.source is None:
            self._is_known = False  # the Java sink has taken offsets, which it does not name
            self._line.newest = self._line.newest or (snapshot, ledger)

    def _take(self, snapshot: SnapshotState, ledger: StatedLedger) -> Iterator[str]:
        held = ledger.held()
        if snapshot.id == self._first:
            self._line.early = {of: ((0, end),) for of, end in ledger.settled.items() if end}
            self._held.update(self._line.early)
        for partition, ranges in held.items():
            if lost := subtracted(self._held.get(partition, ()), ranges):
                yield (
                    f"the table held offsets {ranges_text(lost)} of {named(partition)} before, and not here: the ledger"
                    " is wrong, or the offsets of the topic have restarted"
                )
        taken = {partition: subtracted(ranges, self._held.get(partition, ())) for partition, ranges in held.items()}
        taken = {partition: ranges for partition, ranges in taken.items() if ranges}
        if taken:
            found = TakenOffsets(snapshot.id, taken, self._rows.get(snapshot.id), self._is_known)
            self._line.taken.append(found)
        self._held.update(held)
        self._is_known = True

    def _more_rows(self, snapshot: SnapshotState) -> Iterator[AuditFinding]:
        """A record is at most one row of a table."""
        rows = self._rows.get(snapshot.id)
        if rows is None or _COMMIT not in snapshot.summary or self._line.newest is None:
            return
        if self._line.newest[0] is not snapshot or not self._line.newest[1].source:
            return
        last = self._line.taken[-1] if self._line.taken else None
        is_last = last is not None and last.snapshot == snapshot.id
        if is_last and last is not None and not last.is_known:
            return
        offsets = sum(map(count, last.offsets.values())) if is_last and last is not None else 0
        if rows > offsets:
            text = f"it has added {rows} rows, and its ledger has taken {offsets} offsets"
            yield AuditFinding(FindingKind.RECORDS, snapshot.name, text)

    def _properties(self, snapshots: Sequence[SnapshotState]) -> Iterator[str]:
        line, properties = self._line, self._metadata.properties
        branch = "" if line.branch == MAIN else f"@{line.branch}"
        if f"{CONTROL}{line.owner}{branch}" not in properties:
            return
        suffix = f".{line.owner}{branch}"
        try:
            line.stored = stored = stated(properties, line.owner, suffix)
        except UnreadableLedgerError as error:
            yield str(error)
            return
        yield from self._gone(suffix)
        yield from stored.faults()
        if line.newest is not None:
            yield from self._agree(stored, *line.newest)
            place = properties.get(f"{LEDGER_SNAPSHOT}{suffix}", "").partition(":")[0]
            ids = [str(each.id) for each in snapshots]
            if place in ids and ids.index(place) >= ids.index(str(line.newest[0].id)):
                yield from _same_source(stored, *line.newest, is_this=place == str(line.newest[0].id))

    def _gone(self, suffix: str) -> Iterator[str]:
        try:
            if gone := self._metadata.properties.get(f"{GONE}{suffix}"):
                self._line.gone = stated({MISSING: gone}, "").missing
        except UnreadableLedgerError:
            yield f"{GONE}{suffix} is not what a sink writes"

    def _agree(self, stored: StatedLedger, newest: SnapshotState, ledger: StatedLedger) -> Iterator[str]:
        """The control offsets in the properties never go back, whatever becomes of the branch. Those of another branch
        count, too: a branch that is fast-forwarded to it gets its snapshots, and no property.
        """
        if ledger.log_id != stored.log_id:
            return
        others = self._of_branches()
        for partition, offset in ledger.control.items():
            if max(stored.control.get(partition, 0), others.get(partition, 0)) < offset:
                yield (
                    f"the properties say control offset {stored.control.get(partition, 0)} of {self._line.owner},"
                    f" partition {partition}, and {newest.name} says {offset}"
                )

    def _of_branches(self) -> Mapping[int, int]:
        """The greatest control offsets that the properties have for this sink in any branch."""
        own, found = f"{CONTROL}{self._line.owner}", dict[int, int]()
        for name in self._metadata.properties:
            if name.startswith(f"{own}@"):
                branch = name.removeprefix(own)
                with suppress(UnreadableLedgerError):  # which is a finding of that branch
                    control = stated(
                        self._metadata.properties, self._line.owner, f".{self._line.owner}{branch}"
                    ).control
                    found |= {each: max(offset, found.get(each, 0)) for each, offset in control.items()}
        return found

    def _wrong(self, where: str, text: str) -> AuditFinding:
        return AuditFinding(FindingKind.LEDGER, where, text)


def _same_source(stored: StatedLedger, newest: SnapshotState, ledger: StatedLedger, *, is_this: bool) -> Iterator[str]:
    """Whether the source offsets in the properties are those of the newest ledger in a snapshot. ``is_this``: they say
    that they are of this snapshot, and not of a later one without a ledger, which a cherry-pick may have made.
    """
    if ledger.source is None:
        return
    if is_this:
        for name in ("source", "settled", "missing"):
            if getattr(stored, name) != getattr(ledger, name):
                yield f"the {name} offsets in the properties are not those of {newest.name}"
        return
    for of, ranges in ledger.held().items():
        if lost := subtracted(ranges, stored.held().get(of, ())):
            yield f"the properties lack offsets {ranges_text(lost)} of {named(of)}, which {newest.name} has"
