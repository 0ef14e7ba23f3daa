"""Commits of batches for a table that has changed since they were planned, and of batches that come again."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyiceberg.table.update import RemovePartitionSpecsUpdate
from pyiceberg.transforms import TruncateTransform
from pyspark.sql.types import StructType

from calving.errors import TableTroubleError
from tests.spark.lake import SparkLake
from tests.spark.written import Batches, Row


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Batches:
    return Batches(SparkLake.create(tmp_path / "warehouse"), StructType().add("id", "long"), monkeypatch.setattr)


def numbers(*values: int) -> list[Row]:
    return [{"id": each} for each in values]


def test_files_of_a_spec_that_was_removed_and_replaced_are_not_committed(written: Batches) -> None:
    written.write(numbers(1))
    with written.lake.table("lake.t").update_spec() as spec:
        spec.add_identity("id")
    messages = written.write(numbers(12), commits=False)
    with written.lake.table("lake.t").update_spec() as spec:
        spec.remove_field("id")
    written.lake.catalog.commit_table(written.lake.table("lake.t"), (), (RemovePartitionSpecsUpdate(spec_ids=[1]),))
    with written.lake.table("lake.t").update_spec() as spec:
        spec.add_field("id", TruncateTransform(10), "tens")
    assert 1 in written.lake.table("lake.t").specs()
    with pytest.raises(TableTroubleError, match=r"no longer has partition spec 1, .* or has it with other fields"):
        written.commit(messages)
    assert written.rows == [(1,)]


@pytest.mark.parametrize(("again", "warns"), [([2], False), ([2, 3], True), ([], False)])
def test_a_batch_that_comes_again_with_other_rows_is_told(
    written: Batches, caplog: pytest.LogCaptureFixture, again: list[int], warns: bool
) -> None:
    written.write(numbers(1))
    written.write(numbers(2))
    written.count = 1
    with caplog.at_level(logging.WARNING):
        written.write(numbers(*again))
    said = "table lake.t holds batch 1 already, with 1 row; it comes again with 2 rows, of which none is added"
    assert (said in caplog.text) is warns
    assert written.rows == [(1,), (2,)]


def test_a_batch_without_rows_creates_no_branch(written: Batches) -> None:
    written.write(numbers(1))
    written.options["branch"] = "audit"
    written.write([])
    assert {*written.lake.table("lake.t").refs()} == {"main"}
