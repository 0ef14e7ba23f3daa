"""Files of a table with partitions, by tasks whose rows Spark has distributed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from calving.model.record_path import Limits
from calving_spark import commits
from tests.spark.lake import SparkLake
from tests.spark.written import Batches


def test_a_task_with_rows_of_many_partitions_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(commits, "_TOLD", set())
    schema, count = StructType().add("value", "long"), Limits().open_files + 1
    options = {"default-partition-by": "value"}
    written = Batches(SparkLake.create(tmp_path / "warehouse"), schema, monkeypatch.setattr, options)
    written.write([{"value": number} for number in range(count - 1)])
    assert not caplog.messages
    for _ in range(2):
        written.write([{"value": number} for number in range(count)], [{"value": 0}])
    (said,) = caplog.messages
    assert f"one of 2 tasks of batch 1 has written {count} files" in said and "(value): repartition()" in said
