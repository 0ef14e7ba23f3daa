"""Catalogs: SQL in a file, and Apache's REST catalog server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from calving.services.rest_catalog import RestCatalog


@pytest.fixture(scope="session")
def rest_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = RestCatalog(tmp_path_factory.mktemp("rest"))
    try:
        yield server.uri
    finally:
        server.stop()


@pytest.fixture(params=["sql", "rest"])
def catalog_keys(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "sql":
        return {"type": "embedded", "warehouse": str(tmp_path / "warehouse")}
    return {"type": "rest", "uri": request.getfixturevalue("rest_uri")}
