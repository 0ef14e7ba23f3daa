"""What tables say of themselves: a test that waits for rows asks again and again, and a scan costs twenty times as much."""

from __future__ import annotations

from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import find_table, table_id


def row_count(catalog: Catalog, name: str) -> int:
    """The rows of the data files in the newest snapshot, deleted rows among them; 0 without a table."""
    table = find_table(catalog, table_id(name))
    head = table.current_snapshot() if table is not None else None
    return int(head.summary["total-records"] or 0) if head is not None and head.summary is not None else 0
