"""Catalogs: SQL in a file, and Apache's REST catalog server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import open_catalog
from harness.servers import HiveMetastore, SeaweedFs


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})


@pytest.fixture(params=["sql", pytest.param("rest", marks=pytest.mark.services)])
def catalog_keys(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "sql":
        return {"type": "embedded", "warehouse": str(tmp_path / "warehouse")}
    return {"type": "rest", "uri": request.getfixturevalue("rest_uri")}


@pytest.fixture(scope="session")
def hive_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("hive")
    server = HiveMetastore(folder / "hive")
    yield {"type": "hive", "uri": server.uri, "warehouse": f"file://{folder}/warehouse"}
    server.stop()


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFs]:
    """S3 and its REST catalog, without buckets."""
    server = SeaweedFs(tmp_path_factory.mktemp("seaweedfs") / "data")
    yield server
    server.stop()
