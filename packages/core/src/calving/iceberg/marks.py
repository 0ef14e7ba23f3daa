"""The mark of a loaded table, and what is said of a table that went back."""

from __future__ import annotations

from pyiceberg.table import Table

from calving.iceberg.history import summary_of
from calving.model.marks import TableMark
from calving.model.offsets import furthest
from calving.protocol.ledger_key import LedgerKey


def mark_of(table: Table, key: LedgerKey) -> TableMark:
    """The table's mark: a later mark of the same table is never less. Format version 1 has no sequence numbers.

    :raises TableTroubleError: the ledger in the table's properties is not what calving writes.
    """
    metadata = table.metadata
    number = 0 if metadata.format_version == 1 else metadata.last_sequence_number
    control = key.stored_control(metadata.properties)
    if control is not None:
        # Somebody may have removed the properties by hand, or set former ones: nothing is lost by that.
        told = map(key.told_control, map(summary_of, reversed(metadata.snapshots)))
        control = furthest(control, next(filter(None, told), {}))
    return TableMark(str(metadata.table_uuid), number, control)


def went_back(table: str, mark: TableMark, before: TableMark | None) -> str:
    """A sentence on a table that shows an older state than ``before``, and on what to do."""
    told = before.sequence if before is not None else 0
    if mark.sequence < told:
        return (
            f"table {table} has sequence number {mark.sequence}, and had {told} before: the catalog shows an older"
            " state, as after a failover or a restored backup, or CREATE OR REPLACE TABLE has thrown away what the sink"
            " committed meanwhile; bring the catalog forward again, or stop all workers and run"
            " `calving recover FILE`, which reads the lost records again"
        )
    return (
        f"table {table} no longer has this sink's last commit: CREATE OR REPLACE TABLE has thrown away what the sink"
        " committed meanwhile, or the catalog shows an older state, as after a restored backup; bring the catalog"
        " forward again, or stop all workers and run `calving recover FILE`, which reads the lost records again"
    )
