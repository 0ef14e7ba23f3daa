"""The second judge of a campaign: the product's own audit, which shares no code with the checker nor with the sink.

Where the checker knows the records and what becomes of each, the audit knows the specification of tables: both must
find nothing in the same tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.audit.metadata import TableMetadataFile
from calving.audit.storage import AuditedStore
from calving.audit.table import TableAudit, TableAuditor
from calving.iceberg.catalog import find_table, table_id

_TRIES = 5


def findings(catalog: Catalog, names: Sequence[str]) -> list[str]:
    """What the audit finds in these tables, with all files read as a whole; a table that was dropped has nothing."""
    return [f"{found.table}: {each.line()}" for found in _audited(catalog, names) for each in found.findings]


def _audited(catalog: Catalog, names: Sequence[str]) -> Iterator[TableAudit]:
    for name in names:
        table = find_table(catalog, table_id(name))
        for _ in range(_TRIES):
            if table is None:
                break
            found, table = _judged(name, table), find_table(catalog, table_id(name))
            if not found.findings or table is None or table.metadata_location == found.location:
                yield found
                break  # otherwise the sink has committed meanwhile, and may have deleted files


def _judged(name: str, table: Table) -> TableAudit:
    store = AuditedStore(table.io)
    return TableAuditor(store, TableMetadataFile.load(store, table.metadata_location), sample=None).audit(name)
