"""Why a table is left alone."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.catalogs.foreign import refusal
from calving.iceberg.catalog import is_rest
from calving.iceberg.maintenance import rolled_back
from calving.iceberg.manifests import LINEAGE_VERSION
from calving.protocol.ledger_key import LedgerKey


def commit_refusal(catalog: Catalog, table: Table, key: LedgerKey) -> str | None:
    """Why nothing of a table is rewritten; None if its files or manifests may be (K14, K21)."""
    metadata = table.metadata
    if (why := refusal(metadata, rewrites=True)) is not None:
        return why
    if metadata.format_version >= LINEAGE_VERSION and not is_rest(catalog):
        return f"format version {metadata.format_version} can only be written through a REST catalog"
    return rolled_back(table, key)
