"""``calving maintain --task manifests`` as a user runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import open_catalog
from tests.cli import maintaining
from tests.cli.maintaining import lines
from tests.cli.test_compact import SIZE, sink_of, table_with
from tests.iceberg.histories import pyiceberg_rows
from tests.maintenance.merging import manifests_of

TASKS = ("manifests",)
THREE = {"iceberg.maintenance.manifests": "3"}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})


def test_a_dry_run_says_how_many_manifests_would_be_merged_and_changes_nothing(
    catalog: Catalog, tmp_path: Path
) -> None:
    table = table_with(catalog, 4)
    before = table.table.metadata_location
    (line,) = lines(sink_of(tmp_path, table.name, **THREE), (), TASKS, dry_run=True)
    expected = rf"table {table.name}: 4 manifests of 4 data files \({SIZE}\) would become about 1 manifest"
    assert re.fullmatch(expected, line)
    assert table.table.metadata_location == before


def test_manifests_that_are_due_are_merged_and_no_row_changes(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 4)
    sink = sink_of(tmp_path, table.name, **THREE)
    (step,) = maintaining.steps(sink, (), TASKS, now_ms=0, dry_run=False)
    became = rf"table {table.name}: 4 manifests of 4 data files \({SIZE}\) became 1 manifest \({SIZE}\)"
    assert re.fullmatch(became, step.line())
    told = {"content": "data", "manifests": 4, "files": 4, "outputs": 1}
    assert step.outcome == "done" and told.items() <= step.numbers.items()
    assert len(manifests_of(table.table)) == 1 and pyiceberg_rows(table.table) == table.rows()
    assert lines(sink, (), TASKS) == [f"table {table.name}: no manifests to merge"]


def test_a_table_has_a_number_of_its_own(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 4)
    assert lines(sink_of(tmp_path, table.name), (), TASKS) == [f"table {table.name}: no manifests to merge"]
    own = {f"iceberg.table.{table.name}.maintenance.manifests": "4"}
    assert "became 1 manifest" in lines(sink_of(tmp_path, table.name, **own), (), TASKS)[0]


def test_a_manifest_that_cannot_be_read_is_named(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 4)
    Path(manifests_of(table.table)[0].manifest_path.removeprefix("file://")).unlink()
    sink = sink_of(tmp_path, table.name, **THREE)
    step = next(maintaining.steps(sink, (), TASKS, now_ms=0, dry_run=False))
    assert step.outcome == "failed" and ".avro" in step.text
    assert len(manifests_of(table.table)) == 4


def test_a_table_that_is_not_there_yet_has_no_manifests_to_merge(tmp_path: Path) -> None:
    assert lines(sink_of(tmp_path, "db.later"), (), TASKS) == ["table db.later: no manifests to merge"]
