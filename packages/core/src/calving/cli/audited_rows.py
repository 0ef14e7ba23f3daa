"""``calving audit --full``: the rows of a table against those that the records of the topics make now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from calving.audit.ledgers import CONTROL, SOURCE, Partition, Ranges, count, named, ranges_text, subtracted
from calving.audit.lines import SinkLine
from calving.audit.metadata import SnapshotState, TableMetadataFile
from calving.audit.rows import RowComparison, digests_of, live_rows
from calving.audit.storage import AuditedStore, DamagedFileError
from calving.audit.table import TableAudit
from calving.model.offsets import Coverage, Span, TopicPartition
from calving.runtime.reread import Reread, present, reread
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
    if sink.mutations(found.table) is not None:
        found.notes.append(
            "not compared with the topics: its rows change, and records say how only one after the other"
        )
        return
    try:
        there = live_rows(store, metadata, snapshot)
    except (FileNotFoundError, DamagedFileError):
        found.notes.append("not compared with the topics: files cannot be read, which are among the findings")
        return
    if there is None:
        found.notes.append("not compared with the topics: rows were deleted from it")
        return
    wanted, unread = _readable(sink, line)
    foreign = _has_other_writers(metadata, snapshot, line)
    comparison = RowComparison(found.table, snapshot.name, there, unread, foreign)
    outcome = Reread(found.table)
    for part in reread(sink, wanted, outcome):
        partition = part.tp.topic, part.tp.partition
        digests = digests_of(part.rows.columns, list(part.rows.schema))
        for offset, digest in zip(part.offsets, digests, strict=True):
            comparison.expect(partition, offset, digest)
    found.findings += comparison.judge()
    found.notes += _notes(comparison, outcome)


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
    for (topic, number), ranges in (line.ledger.held() if line.ledger is not None else {}).items():
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


def _has_other_writers(metadata: TableMetadataFile, head: SnapshotState, line: SinkLine) -> bool:
    """Whether rows may be there of which the ledger does not tell: another writer's, the Java sink's, or of snapshots
    that have expired.
    """
    told = {f"{CONTROL}{line.owner}", SOURCE}
    snapshots = list(metadata.line(head.id))
    others = [each for each in snapshots if told - each.summary.keys() and each.summary.get("operation") != "replace"]
    return bool(others) or not line.taken or not line.taken[0].is_known


def _notes(comparison: RowComparison, outcome: Reread) -> Iterator[str]:
    filtered = ", ".join(f"{number} filtered ({cause})" for cause, number in sorted(outcome.filtered.items()))
    parts = [f"{comparison.compared} make a row of it", f"{outcome.bad} are bad", *([filtered] if filtered else [])]
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
    left = sum(comparison.there.values())
    if left and (comparison.foreign or comparison.unread):
        yield f"not compared: {left} rows, which may be of other writers or of records that are gone"
