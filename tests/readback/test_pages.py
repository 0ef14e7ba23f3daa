"""The pages on tables whose rows change, followed from the topic to a query in DuckDB, and in Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.spark_reader import spark_on
from tests.cli.pages import blocks, follow

pytestmark = pytest.mark.services


@pytest.mark.parametrize("page", ["how-to/mirror-a-table.md", "how-to/upsert.md"])
def test_spark_finds_what_the_page_says_and_duckdb_has_found(
    page: str, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert follow(page, tmp_path, servers)
    (query,) = [block.text for block in blocks(page) if block.kind == "sql"]
    (found,) = spark_on(str(tmp_path / "warehouse"), query)
    (said,) = [block.text.splitlines() for block in blocks(page) if block.kind == "text" and block.title is None]
    assert sorted(" ".join(map(str, row.values())) for row in found) == said
