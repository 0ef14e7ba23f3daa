"""What Spark asks of a writer whose commit has failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from tests.spark.lake import SparkLake
from tests.spark.written import Batches

SCHEMA = StructType().add("value", "long")


def test_an_abort_deletes_no_file_because_the_commit_may_have_landed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Batches(SparkLake.create(tmp_path / "warehouse"), SCHEMA, monkeypatch.setattr)
    messages = written.write([{"value": 1}, {"value": 2}], [{"value": 3}])
    written.source().streamWriter(SCHEMA, False).abort(messages, 0)
    written.source().writer(SCHEMA, False).abort(messages)
    assert written.rows == [(1,), (2,), (3,)]
