"""Pages of the manual whose statements Spark and DuckDB run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from calving.iceberg.catalog import open_catalog
from harness.duckdb_extensions import connected
from harness.forms import forms
from harness.spark_reader import spark_on
from tests.cli.pages import DOCS, blocks, follow

pytestmark = pytest.mark.services


@pytest.mark.parametrize("page", forms(["how-to/mirror-a-table.md", "how-to/upsert.md"], ["how-to/mirror-a-table.md"]))
def test_spark_finds_what_the_page_says_and_duckdb_has_found(
    page: str, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert follow(page, tmp_path, {"localhost:9092": servers})
    query, *_ = [block.text for block in blocks(page) if block.kind == "sql"]  # others ask for former versions
    (found,) = spark_on(str(tmp_path / "warehouse"), query)
    (said,) = [block.text.splitlines() for block in blocks(page) if block.kind == "text" and block.title is None]
    assert sorted(" ".join(map(str, row.values())) for row in found) == said


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_the_statements_of_the_page_on_wrong_units_find_and_correct_the_rows(kind: str, tmp_path: Path) -> None:
    page, folder = "how-to/wrong-units.md", str(tmp_path / "warehouse")
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": folder})
    catalog.create_namespace("shop")
    find, in_duckdb, correct, correct_some = (block.text for block in blocks(page) if block.kind == "sql")
    (roll_back,) = re.findall("`(CALL [^`]+)`", (DOCS / page).read_text())
    right = {1: 1_780_000_000_123_456, 2: 151_000_000_000_000, 3: -1_000_000}
    wrong = {number: micros * 1_000 for number, micros in right.items()}

    def insert(rows: Mapping[int, int]) -> str:
        found = ", ".join(f"({number}, {micros})" for number, micros in rows.items())
        return f"INSERT INTO iceberg.shop.orders SELECT col1, timestamp_micros(col2) FROM VALUES {found}"

    def spark(*statements: str) -> list[list[dict[str, Any]]]:
        return spark_on(folder, *(each for block in statements for each in block.split(";")))

    rows = "SELECT id, unix_micros(CAST(created AS timestamp)) AS micros FROM iceberg.shop.orders ORDER BY id, micros"
    made = f"CREATE TABLE iceberg.shop.orders (id BIGINT, created {kind})"
    *_, (count,) = spark(made, insert(wrong), find)
    before = catalog.load_table("shop.orders")
    (in_file,) = (
        connected().execute(in_duckdb.replace("...", before.metadata_location.removeprefix("file://"))).fetchall()
    )
    assert [*count.values()] == [*in_file] == [1]
    *_, after = spark(correct, rows)
    assert {row["id"]: row["micros"] for row in after} == right
    assert before.metadata.current_snapshot_id is not None
    *_, again = spark(roll_back.replace("1234567890", str(before.metadata.current_snapshot_id)), rows)
    assert {row["id"]: row["micros"] for row in again} == wrong
    *_, after = spark(insert({4: right[1]}), correct_some, rows)
    assert {row["id"]: row["micros"] for row in after} == {**wrong, 1: right[1], 4: right[1]}
