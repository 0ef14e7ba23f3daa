"""``python -m bench.audit``: how long ``calving audit`` takes for a table of 100 million rows, and how much memory.

The rows are really there: each data file is a link to one of 10,000 rows and 20 columns, and 200 commits have
added them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.types import LongType, NestedField

from calving.audit.metadata import TableMetadataFile
from calving.audit.storage import AuditedStore
from calving.audit.table import TableAuditor
from calving.iceberg.catalog import open_catalog
from calving.iceberg.lineage import new_snapshot
from calving.model.files import DataFile

COLUMNS, ROWS = 20, 10_000


def table_of(folder: Path, files: int, commits: int) -> Table:
    """A table of so many files of ``ROWS`` rows."""
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(folder)})
    catalog.create_namespace("db")
    schema = Schema(*(NestedField(i, f"c{i}", LongType(), required=False) for i in range(1, COLUMNS + 1)))
    table = catalog.create_table("db.t", schema, properties={"commit.manifest-merge.enabled": "true"})
    data = folder / "db" / "t" / "data"
    data.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table([pa.array(range(ROWS))] * COLUMNS, schema=schema.as_arrow()), folder / "one.parquet")
    size = (folder / "one.parquet").stat().st_size
    ids = range(1, COLUMNS + 1)
    bounds = [dict.fromkeys(ids, value.to_bytes(8, "little")) for value in (0, ROWS - 1)]
    offset = 0
    for number in range(commits):
        added = []
        for _ in range(files // commits):
            os.link(folder / "one.parquet", path := data / f"{uuid4()}.parquet")
            added.append(
                DataFile(
                    f"file://{path}",
                    "PARQUET",
                    ROWS,
                    size,
                    value_counts=dict.fromkeys(ids, ROWS),
                    null_value_counts=dict.fromkeys(ids, 0),
                    lower_bounds=bounds[0],
                    upper_bounds=bounds[1],
                )
            )
        offset += len(added) * ROWS
        summary = {
            "kafka.connect.commit-id": "c",
            "kafka.connect.offsets.control.connect-x": json.dumps({"0": number}),
            "calving.control-log-id": "log",
            "calving.source-offsets": json.dumps({"orders": [offset]}),
        }
        table = catalog.load_table("db.t")
        snapshot = new_snapshot(table, summary, "main")
        snapshot.add(added)
        table._do_commit(snapshot.prepare()[0], (AssertTableUUID(uuid=table.metadata.table_uuid),))
    return catalog.load_table("db.t")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--commits", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="calving-audit-") as folder:
        table = table_of(Path(folder), args.files, args.commits)
        started = time.monotonic()
        store = AuditedStore(table.io)
        if child := os.fork():  # whose memory is that of the audit alone, above what the table's making has left
            _, status = os.waitpid(child, 0)
            sys.exit(os.waitstatus_to_exitcode(status))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = TableAuditor(store, TableMetadataFile.load(store, table.metadata_location)).audit("db.t")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"{found.rows:,} rows, {found.files:,} files, {found.snapshots} snapshots: {len(found.findings)} findings"
        )
        print(f"{time.monotonic() - started:.1f} s, {peak / 1024:.0f} MiB, {(peak - before) / 1024:.0f} of them new")
        os._exit(0)


if __name__ == "__main__":
    main()
