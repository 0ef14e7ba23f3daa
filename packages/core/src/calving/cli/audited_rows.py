"""``calving audit --full``: the rows of a table against those that the records of the topics make now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice

from calving.audit.comparison import RowComparison
from calving.audit.ledgers import CONTROL, SOURCE, Partition, Ranges, count, named, ranges_text, subtracted
from calving.audit.lines import SinkLine
from calving.audit.live import LiveRows
from calving.audit.metadata import SnapshotState, TableMetadataFile
from calving.audit.replay import KeyChange
from calving.audit.rows import PlainRow, PlainRows, row_digest
from calving.audit.storage import AuditedStore, DamagedFileError
from calving.audit.table import TableAudit
from calving.audit.values import field_ids
from calving.cli.audited_changes import AuditedChanges
from calving.model.offsets import Coverage, Span, TopicPartition
from calving.runtime.reread import Reread, RereadRows, present, reread
from calving.settings.load import Sink


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
    others = _others(metadata, snapshot, line)
    changes = AuditedChanges.of(outcome.spec, metadata, is_whole=not unread and not others)
    there = _there(LiveRows(store, metadata, snapshot), changes, has_all=not unread)
    if isinstance(there, str):
        found.notes.append(f"not compared with the topics: {there}")
        return
    comparison = RowComparison(found.table, snapshot.name, there, unread)
    comparison.deleted = _deleted(others)
    comparison.foreign = bool(others) or not line.taken or not line.taken[0].is_known
    _read(chain(first, parts), PlainRows(metadata.columns, {*field_ids(metadata.schema)}), comparison, changes)
    if changes is not None:
        is_whole = not (unread and changes.ordered) and not _ends_are_gone(wanted, line, unread)
        changes.expect(comparison, is_whole=is_whole, is_alone=not others)
    found.bad = outcome.bad
    found.findings += comparison.judge()
    makes = "make a row of it" if changes is None else changes.made
    found.notes += _notes(comparison, outcome, f"{comparison.compared} {makes}")


def _read(
    parts: Iterable[RereadRows], reader: PlainRows, comparison: RowComparison, changes: AuditedChanges | None
) -> None:
    """Take what the records make."""
    for part in parts:
        rows = reader.of_arrow(part.rows.columns, list(part.rows.schema))
        if changes is None:
            _expect(comparison, part, rows)
        else:
            changes.see(part, rows)


def _there(live: LiveRows, changes: AuditedChanges | None, *, has_all: bool) -> Counter[bytes] | str:
    """How often each row is in the table; or why they are not compared. ``has_all``: the topics have all records."""
    if changes is not None and changes.versions is not None and not has_all:
        return "it keeps versions, and some of its records are gone"
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


def _notes(comparison: RowComparison, outcome: Reread, makes: str) -> Iterator[str]:
    filtered = ", ".join(f"{number} filtered ({cause})" for cause, number in sorted(outcome.filtered.items()))
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
