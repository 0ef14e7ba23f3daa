"""A table that a sink writes to, and other engines change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.types import LongType, NestedField

from calving.iceberg.history import line_of, look
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.manifests import read_entries
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope, TableReference
from calving.model.files import DataFile, file_name
from calving.model.forms import OLDEST
from calving.model.marks import TableMark
from calving.model.offsets import Span, TopicPartition, merged
from calving.model.tables import OnRollback
from calving.protocol.commit import CommitLoop, Settled
from calving.protocol.ledger import Ledger, SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.ledger_updates import brought_back
from calving.protocol.recovery import recovery
from calving.protocol.replacement import LogExtent

KEY = LedgerKey("control", "connect-x", "log-1")
TP = TopicPartition("orders", 0, "id1")
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


class Lake:
    """One table, which a sink writes to, and other engines change."""

    def __init__(self, catalog: Catalog, version: str, branch: str, *, in_order: bool = False) -> None:
        self.catalog, self._branch, self._in_order = catalog, branch, in_order
        self.key = replace(KEY, branch=branch)
        self.form = OLDEST
        """The form in which the sink commits."""
        self.on_rollback: OnRollback = "continue"
        self.mark: TableMark | None = None
        """The table's mark, as far as the sink knows one."""
        self.snapshots: list[int] = []
        """Snapshots to which a test refers later."""
        self._at = 0
        catalog.create_namespace("db")
        made = catalog.create_table("db.t", SCHEMA, properties={"format-version": version})
        self._folder = Path(made.location().removeprefix("file://")) / "data"
        self._folder.mkdir(parents=True, exist_ok=True)

    @property
    def table(self) -> Table:
        return self.catalog.load_table("db.t")

    @property
    def head(self) -> int:
        return self.table.metadata.refs[self._branch].snapshot_id

    @property
    def rows(self) -> list[int]:
        return sorted(self.table.scan(snapshot_id=self.head).to_arrow()["id"].to_pylist())

    @property
    def ledger(self) -> Ledger:
        table = self.table
        return self.key.read(line_of(table, self._branch), table.properties)

    def file(self, rows: range, name: str = "") -> DataFile:
        """A file with these rows, which is in no table yet."""
        path = self._folder / (name or f"{uuid4()}.parquet")
        pq.write_table(pa.table([pa.array(rows, pa.int64())], schema=self.table.schema().as_arrow()), path)
        return DataFile(f"file://{path}", "PARQUET", len(rows), path.stat().st_size)

    def publish(self, start: int, end: int) -> Envelope:
        """A publication of these offsets; each record's row is its offset."""
        reference = TableReference("c", ("db",), "t", self.table.metadata.table_uuid)
        self._at += 2
        event = DataWritten(
            uuid4(), reference, (self.file(range(start, end), file_name(0, uuid4(), 1, "", "parquet")),)
        )
        return Envelope(0, self._at - 2, event, {TP: (Span(start, end),)})

    def commit(self, start: int, end: int) -> Settled:
        """The sink commits the records of these offsets."""
        return self.settle(self.publish(start, end))

    def settle(self, *entries: Envelope) -> Settled:
        """The sink commits these entries of its control log, in one commit."""
        summary = {"kafka.connect.commit-id": "c"}
        covered = merged(entry.spans[TP][-1] for entry in entries)
        settled = (Span(0, entries[0].spans[TP][-1].start),)
        progress = SourceProgress({TP: merged((*settled, *covered))}, {TP: settled})
        target = IcebergTarget(
            self.catalog,
            ("db", "t"),
            self._branch,
            self.key,
            summary,
            form=self.form,
            on_rollback=self.on_rollback,
            mark=self.mark,
            sleep=lambda _: None,
            extent=LogExtent({0: self._at}, progress.covered, lambda: entries),
        )
        return CommitLoop(target, self.key, 5, in_order=self._in_order).settle(entries, {0: self._at}, progress)

    def repeat(self, entry: Envelope, *spans: Span) -> Envelope:
        """The entry a second time, later in the control log; it says that it covers ``spans``."""
        self._at += 2
        return replace(entry, offset=self._at - 2, spans={TP: spans} if spans else entry.spans)

    def look(self) -> Ledger | None:
        return look(self.catalog, ("db", "t"), self.key)

    # Other engines

    def change(self, *updates: TableUpdate) -> None:
        table = self.table
        table._do_commit(updates, (AssertTableUUID(uuid=table.metadata.table_uuid),))

    def append(self, *rows: int) -> int:
        """Another writer's snapshot."""
        table = self.table
        snapshot = new_snapshot(table, {}, self._branch)
        snapshot.add([self.file(range(row, row + 1)) for row in rows])
        self.change(*snapshot.prepare()[0])
        return self.head

    def compact(self) -> int:
        """All rows in new files."""
        rows = pa.table({"id": self.rows})
        self.table.overwrite(rows, branch=self._branch)
        return self.head

    def cherry_pick(self, snapshot_id: int) -> int:
        """As Iceberg does: a new snapshot with the files that this one added."""
        table = self.table
        source = table.metadata.snapshot_by_id(snapshot_id)
        assert source is not None
        added = [
            entry.data_file
            for manifest in source.manifests(table.io)
            if manifest.added_snapshot_id == snapshot_id
            for entry in read_entries(table.io, manifest)
        ]
        snapshot = new_snapshot(table, {"source-snapshot-id": str(snapshot_id)}, self._branch)
        snapshot.add(DataFile(f.file_path, "PARQUET", f.record_count, f.file_size_in_bytes) for f in added)
        self.change(*snapshot.prepare()[0])
        return self.head

    def begin_again(self, *rows: int) -> int:
        """As CREATE OR REPLACE TABLE AS does: a snapshot without a parent."""
        self.change(RemoveSnapshotRefUpdate(ref_name=self._branch))
        return self.append(*rows)

    def roll_back(self, snapshot_id: int) -> None:
        ages = {"max_ref_age_ms": None, "max_snapshot_age_ms": None, "min_snapshots_to_keep": None}
        to = {"ref_name": self._branch, "type": SnapshotRefType.BRANCH, "snapshot_id": snapshot_id}
        self.change(SetSnapshotRefUpdate.model_validate({**to, **ages}))

    def expire(self, *but: int) -> None:
        """Expire all snapshots except the head and these."""
        kept = {*but, *(ref.snapshot_id for ref in self.table.metadata.refs.values())}
        ids = [s.snapshot_id for s in self.table.metadata.snapshots if s.snapshot_id not in kept]
        self.change(RemoveSnapshotsUpdate(snapshot_ids=ids))

    def drop_history(self) -> None:
        """Delete the earlier versions of the metadata, as the catalog does in time."""
        for entry in self.table.metadata.metadata_log:
            Path(entry.metadata_file.removeprefix("file://")).unlink(missing_ok=True)

    # The operator

    def recover(self, *, forgotten: bool = True) -> range:
        """As `calving recover --table` does; the offsets that are read again. Without those that were ``forgotten``: as
        `calving rollback --then reread` does.
        """
        ledger = replace(self.ledger, forgotten={}) if forgotten else self.ledger
        found = recovery({"db.t": ledger}, ["db.t"], complete=True)
        position, held = found.positions.get(TP, 0), found.held["db.t"]
        head = line_of(self.table, self._branch).head
        with self.table.transaction() as change:
            place = head.place if head else None
            change.set_properties(brought_back(self.key, ledger, self.table.properties, place))
        return range(position, held[TP][0].start if TP in held else 10**9)
