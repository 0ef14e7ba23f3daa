"""A catalog in a file, which takes tables of all format versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.typedef import IcebergBaseModel

from calving.iceberg.catalog import open_catalog


def _dumped(metadata: TableMetadataV3, **how: Any) -> str:
    first = metadata if metadata.next_row_id is not None else metadata.model_copy(update={"next_row_id": 0})
    return IcebergBaseModel.model_dump_json(first, **how)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """pyiceberg refuses only to write metadata of version 3, which a server of a REST catalog writes."""
    monkeypatch.setattr(TableMetadataV3, "model_dump_json", _dumped)
    for module in ("iceberg.tables", "iceberg.maintenance"):
        monkeypatch.setattr(f"calving.{module}.is_rest", lambda catalog: True)
    return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
