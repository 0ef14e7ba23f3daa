"""Catalogs: SQL in a file, and Apache's REST catalog server."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["sql", pytest.param("rest", marks=pytest.mark.services)])
def catalog_keys(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "sql":
        return {"type": "embedded", "warehouse": str(tmp_path / "warehouse")}
    return {"type": "rest", "uri": request.getfixturevalue("rest_uri")}
