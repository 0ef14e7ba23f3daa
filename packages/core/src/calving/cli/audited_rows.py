"""``calving audit --full``: the rows of a table against those that the records of the topics make now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice

from calving.audit.comparison import RowComparison
from calving.audit.ledgers import CONTROL, SOURCE, Partition, Ranges, count, named, ranges_text, subtracted
from calving.audit.lines import SinkLine
from calving.audit.live import LiveRows
from calving.audit.metadata import SnapshotState, TableMetadataFile
from calving.audit.replay import KeyChange, KeyReplay
from calving.audit.rows import PlainRow, PlainRows, key_of, row_digest
from calving.audit.storage import AuditedStore, DamagedFileError
from calving.audit.table import TableAudit
from calving.audit.values import field_ids
from calving.model.offsets import Coverage, Span, TopicPartition
from calving.model.tables import RowMutations, TableSpec
from calving.records.fields import table_schema
from calving.records.positions import order_keys
from calving.runtime.reread import Reread, RereadRows, present, reread
from calving.settings.load import Sink
from calving.writing.changes import DELETE, INSERT, TRUNCATE, identity_of
from calving.writing.sources import truncate_column

Paths = list[tuple[int, ...]]


def compare(sink: Sink, store: AuditedStore, metadata: TableMetadataFile, found: TableAudit) -> None:
    """Compare a table as it is at the head of its audit. What is wrong, and what could not be compared, is added to
    ``found``.

    :raises CalvingError: the topics cannot be read.
    """
    snapshot = metadata.snapshots.get(found.head) if found.head is not None else None
    line = _own_line(sink, found)
    if snapshot is None or line is None or line.ledger is None or not line.ledger.source:
        found.notes.append("not compared with the topics: this sink has written no source offsets into it")
        return
    if found.table == sink.keys.dead_letter_table:
        found.notes.append("not compared with the topics: its rows are dead letters")
        return
    wanted, unread = _readable(sink, line)
    outcome = Reread(found.table)
    parts = reread(sink, wanted, outcome)
    first = [*islice(parts, 1)]  # with which the table's settings are known
    changes = _changes_of(outcome.spec, metadata)
    there = _there(LiveRows(store, metadata, snapshot), changes)
    if isinstance(there, str):
        found.notes.append(f"not compared with the topics: {there}")
        return
    others = _others(metadata, snapshot, line)
    comparison = RowComparison(found.table, snapshot.name, there, unread)
    comparison.deleted = _deleted(others)
    comparison.foreign = bool(others) or not line.taken or not line.taken[0].is_known
    reader = PlainRows(metadata.columns, {*field_ids(metadata.schema)})
    for part in chain(first, parts):
        rows = reader.of_arrow(part.rows.columns, list(part.rows.schema))
        if changes is None:
            _expect(comparison, part, rows)
        else:
            changes.see(part, rows)
    if changes is not None:
        is_whole = not (unread and changes.ordered) and not _ends_are_gone(wanted, line, unread)
        changes.expect(comparison, is_whole=is_whole, is_alone=not others)
    found.bad = outcome.bad
    found.findings += comparison.judge()
    found.notes += _notes(comparison, outcome, changes is not None)


def _there(live: LiveRows, changes: _RowChanges | None) -> Counter[bytes] | str:
    """How often each row is in the table; or why they are not compared."""
    if changes is not None and changes.mutations.has_versions:
        return "history = on keeps the versions of its rows, which are not made again"
    try:
        live.open()
        if live.has_deletes and changes is None:
            return "rows were deleted from it"
        return Counter(changes.named(row) if changes is not None else row_digest(row) for row in live.rows())
    except (FileNotFoundError, DamagedFileError):
        return "files cannot be read, which are among the findings"


def _expect(comparison: RowComparison, part: RereadRows, rows: list[PlainRow]) -> None:
    partition = part.tp.topic, part.tp.partition
    for offset, row in zip(part.offsets, rows, strict=True):
        comparison.expect([KeyChange(partition, offset, row_digest(row))])


@dataclass(frozen=True, slots=True)
class _RowChanges:
    """The changes of a table whose rows change. ``paths``: those of its id columns. ``source``: that of its
    truncate-field, if it has one.
    """

    spec: TableSpec
    mutations: RowMutations
    paths: Paths
    source: Paths
    replay: KeyReplay

    @property
    def ordered(self) -> bool:
        """Whether an order field decides."""
        return self.mutations.order_field is not None

    @property
    def appends(self) -> bool:
        """Whether inserts leave earlier rows of their keys."""
        return self.mutations.inserts == "append"

    def named(self, row: PlainRow) -> bytes:
        """The digests of a row's key and of the row."""
        return key_of(row, self.paths) + row_digest(row)

    def see(self, part: RereadRows, rows: list[PlainRow]) -> None:
        """The changes that records make."""
        partition = part.tp.topic, part.tp.partition
        order = identity_of(self.spec).order
        orders = (
            [None] * len(rows)
            if order is None
            else order_keys(order.of(part.rows), self.mutations.order_type).to_pylist()
        )
        operations = part.operations or []
        for offset, row, operation, value in zip(part.offsets, rows, operations, orders, strict=True):
            source = key_of(row, self.source) if self.source else None
            if operation == TRUNCATE:
                self.replay.empty(partition, offset, source)
                continue
            is_gone = operation == DELETE and self.mutations.delete_mode == "hard"
            replaces = operation != INSERT or not self.appends
            change = KeyChange(partition, offset, None if is_gone else row_digest(row), replaces, value, source)
            self.replay.see(key_of(row, self.paths), change)

    def expect(self, comparison: RowComparison, *, is_whole: bool, is_alone: bool) -> None:
        """The rows that all changes leave. ``is_alone``: no other writer changes rows of their keys."""
        if is_alone and is_whole and not (comparison.unread and self.appends):
            comparison.keys = self.replay
        for key, outcomes in self.replay.rows(whole=is_whole):
            comparison.expect(outcomes, key)


def _changes_of(spec: TableSpec | None, metadata: TableMetadataFile) -> _RowChanges | None:
    if spec is None or spec.mutations is None:
        return None
    paths = [tuple(metadata.paths[number]) for number in identity_of(spec).ids]
    truncate = truncate_column(spec.name, table_schema(spec.schema_json), spec.mutations)
    source = [] if truncate is None else [tuple(metadata.paths[truncate.field_id])]
    return _RowChanges(spec, spec.mutations, paths, source, KeyReplay(ordered=spec.mutations.order_field is not None))


def _own_line(sink: Sink, found: TableAudit) -> SinkLine | None:
    owner = f"{sink.keys.control_topic}.{sink.group}"
    return next((line for line in found.lines if line.owner == owner and line.branch in ("", "main")), None)


def _readable(sink: Sink, line: SinkLine) -> tuple[Coverage, Mapping[Partition, Ranges]]:
    """The offsets that the table holds: those that the topics still have, and the others. What a rollback has removed
    is among the others: older snapshots may have its rows.
    """
    begins, ends, identities = present(sink)
    wanted: dict[TopicPartition, tuple[Span, ...]] = {}
    unread: dict[Partition, Ranges] = {}
    for (topic, number), ranges in line.held().items():
        name, _, topic_id = topic.partition("@")
        tp = TopicPartition(name, number)
        is_there = tp in begins and identities.get(name, topic_id) in ("", topic_id)
        low, high = (begins[tp], ends[tp]) if is_there else (0, 0)
        kept = subtracted(ranges, (*line.gone.get((topic, number), ()), (0, low), (high, 2**63)))
        if kept:
            wanted[tp] = tuple(Span(start, end) for start, end in kept)
        if lacking := subtracted(ranges, kept):
            unread[topic, number] = lacking
    return wanted, unread


def _ends_are_gone(wanted: Coverage, line: SinkLine, unread: Mapping[Partition, Ranges]) -> bool:
    """Whether later records than those that can be read have changed rows: a topic has lost its end."""
    for partition, ranges in unread.items():
        lost = subtracted(ranges, line.gone.get(partition, ()))
        tp = TopicPartition(partition[0].partition("@")[0], partition[1])
        read = max((span.end for span in wanted.get(tp, ())), default=0)
        if any(read and start >= read for start, _ in lost):
            return True
    return False


def _others(metadata: TableMetadataFile, head: SnapshotState, line: SinkLine) -> list[SnapshotState]:
    """The snapshots in which rows may have come or gone of which the ledger does not tell: another writer's, or the
    Java sink's.
    """
    told = {f"{CONTROL}{line.owner}", SOURCE}
    snapshots = metadata.line(head.id)
    return [each for each in snapshots if told - each.summary.keys() and each.summary.get("operation") != "replace"]


def _deleted(others: list[SnapshotState]) -> int | None:
    """How many rows other writers have deleted, at most; None if their summaries do not tell."""
    total = 0
    for summary in (each.summary for each in others):
        if summary.get("operation") == "append":
            continue
        if "total-records" not in summary or summary.get("added-equality-deletes", "0") != "0":
            return None
        added, removed, positions = (
            int(summary.get(name, "0")) for name in ("added-records", "deleted-records", "added-position-deletes")
        )
        total += max(0, removed - added) + positions
    return total


def _notes(comparison: RowComparison, outcome: Reread, is_changed: bool) -> Iterator[str]:
    filtered = ", ".join(f"{number} filtered ({cause})" for cause, number in sorted(outcome.filtered.items()))
    makes = f"{comparison.compared} keys have a row" if is_changed else f"{comparison.compared} make a row of it"
    parts = [makes, f"{sum(map(len, outcome.bad.values()))} are bad", *([filtered] if filtered else [])]
    yield (
        f"compared with the topics: of {outcome.read} records {', '.join(parts)}, by the converters and transforms of"
        " the settings as they are now"
    )
    if outcome.changes:
        yield f"records ask for {outcome.changes} changes of columns, which were not made: their rows are not compared"
    for partition, ranges in sorted(comparison.unread.items()):
        yield (
            f"not compared: offsets {ranges_text(ranges)} of {named(partition)} ({count(ranges)}), which the topic does"
            " not have any more, or a rollback has removed"
        )
    yield from comparison.notes()
