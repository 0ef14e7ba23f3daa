"""Merges manifests in processes of which each is killed (SIGKILL) one step later than the one before, until one ends.

``python -m tests.maintenance.killed_merging WAREHOUSE TABLE FILE``: the file has the rows that must be there after each.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyiceberg.catalog.sql  # noqa: F401 - once, and not in each process

from calving.iceberg.catalog import open_catalog
from harness.structure import check
from tests.iceberg.histories import MutationTable
from tests.iceberg.killed_maintenance import die_at, killed_at_each_step
from tests.iceberg.reader import rows_of
from tests.maintenance.merging import merger_of


def main() -> int:
    warehouse, name, file = sys.argv[1:]
    expected = Path(file).read_text()

    def table() -> MutationTable:
        return MutationTable(open_catalog("iceberg", {"type": "embedded", "warehouse": warehouse}), name)

    def merge(last: int) -> None:
        own = table()
        die_at(last)
        now = own.table
        for group in merger_of(own).plan(now):
            merger_of(own).merge(now, group)

    def look() -> None:
        now = table().table
        check(now)
        assert repr(rows_of(now)) == expected

    return killed_at_each_step(merge, look)


if __name__ == "__main__":
    sys.exit(main())
