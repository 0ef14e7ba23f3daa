"""Where a record is: the snapshot that took its offset, and the files that may have its row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from calving.audit.entries import ADDED, DATA, AuditedEntry, read_entries, read_list
from calving.audit.ledgers import Partition
from calving.audit.lines import LineJudge, TakenOffsets, sink_lines
from calving.audit.metadata import SnapshotState, TableMetadataFile
from calving.audit.storage import AuditedStore


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """The place of an offset in a table. ``files``: those that the snapshot has added, where they are still there.
    ``now``: the live files of the head with its sequence number, which a compaction keeps.
    """

    table: str
    sink: str
    branch: str
    taken: TakenOffsets
    snapshot: SnapshotState
    files: tuple[str, ...]
    now: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "table": self.table,
            "sink": self.sink,
            "branch": self.branch,
            "snapshot": self.snapshot.id,
            "exact": self.taken.is_known,
            "added": list(self.files),
            "live": list(self.now),
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        at = f"table {self.table}, branch {self.branch}, sink {self.sink}"
        if self.taken.is_known:
            yield f"{at}: {self.snapshot.name} has taken it"
        else:
            yield f"{at}: {self.snapshot.name} is the first one left that names it; it may be of one before"
        yield from (f"  added {path}" for path in self.files)
        yield from (f"  its rows may be in {path}" for path in self.now if path not in self.files)
        if self.taken.is_known and not self.files:
            yield "  it has added no data file: the record is filtered, a dead letter, or in another table"


def find_record(
    store: AuditedStore, metadata: TableMetadataFile, table: str, partition: Partition, offset: int, at: int | None
) -> Iterator[FoundRecord]:
    """Where a table's branches have an offset, if its ledgers say so. Each sink has its own answer.

    :raises DamagedFileError, FileNotFoundError: a manifest cannot be read. :raises UnavailableError: nor the store.
    """
    for line in sink_lines(metadata, at):
        head = at if at is not None else metadata.heads.get(line.branch)
        snapshots = list(metadata.line(head))
        begins = {snapshots[-1].id: _begins(store, snapshots[-1])} if snapshots else {}
        list(LineJudge(metadata, line, {}, begins).judge(head))  # what is wrong is not asked for
        taken = line.taker(partition, offset)
        if taken is None:
            continue
        snapshot = metadata.snapshots[taken.snapshot]
        added = [each.path for each in _entries(store, snapshot) if each.status == ADDED] if taken.is_known else []
        now = [each.path for each in _entries(store, snapshots[0], snapshot.sequence) if each.is_live]
        yield FoundRecord(
            table=table,
            sink=line.owner,
            branch=line.branch,
            taken=taken,
            snapshot=snapshot,
            files=tuple(added),
            now=tuple(now),
        )


def _begins(store: AuditedStore, snapshot: SnapshotState) -> bool:
    if snapshot.parent is not None or snapshot.manifest_list is None:
        return False
    return read_list(store, snapshot.manifest_list).parent == "null"


def _entries(store: AuditedStore, snapshot: SnapshotState, sequence: int | None = None) -> Iterator[AuditedEntry]:
    """The data files of a snapshot: those with a sequence number, or in manifests that it has made."""
    if snapshot.manifest_list is None or sequence == 0:
        return
    for manifest in read_list(store, snapshot.manifest_list).manifests:
        if manifest.content != DATA or (sequence is None and manifest.snapshot_id != snapshot.id):
            continue
        if sequence is not None and not manifest.min_sequence <= sequence <= manifest.sequence:
            continue
        for entry in read_entries(store, manifest):
            if sequence is None or entry.sequence == sequence:
                yield entry
