"""Tables of every kind, and the audit of one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.audit.findings import AuditFinding
from calving.audit.metadata import TableMetadataFile
from calving.audit.storage import AuditedStore
from calving.audit.table import TableAudit, TableAuditor
from calving.iceberg.catalog import open_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})


@pytest.fixture
def rest(rest_uri: str) -> Catalog:
    """Apache's REST catalog, which makes tables of version 3."""
    return open_catalog("rest", {"type": "rest", "uri": rest_uri})


def audited(table: Table, at: int | None = None, sample: int | None = None) -> TableAudit:
    store = AuditedStore(table.io)
    metadata = TableMetadataFile.load(store, table.metadata_location)
    return TableAuditor(store, metadata, sample, lambda: 0.5).audit("db.t", at)


def found(table: Table, sample: int | None = None) -> list[AuditFinding]:
    return audited(table, sample=sample).findings
