"""``write_batch`` in ``foreachBatch``: the same promise as a stream's, with the commit in the caller's process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from calving_spark import write_batch
from tests.spark.lake import SparkLake
from tests.spark.test_streams import BATCH, SECONDS

pytestmark = pytest.mark.services

Function = Callable[[DataFrame, int], None]


@pytest.fixture
def run(session: SparkSession, tmp_path: Path) -> Callable[[Function], str]:
    """Runs the function on batches of a stream that has a checkpoint; returns the id of the query."""

    def start(function: Function) -> str:
        source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH).load().select("value")
        writer = source.writeStream.foreachBatch(function).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination(SECONDS)
        return str(query.id)

    return start


def test_a_batch_that_fails_after_its_commit_is_not_written_again(
    run: Callable[[Function], str], lake: SparkLake
) -> None:
    def write(frame: DataFrame, batch: int) -> None:
        write_batch(frame, batch, table="lake.t", sink="numbers", options=lake.options)

    def write_and_fail(frame: DataFrame, batch: int) -> None:
        write(frame, batch)
        raise RuntimeError("after the commit")

    with pytest.raises(PySparkException):
        run(write_and_fail)
    assert lake.values("lake.t") == [*range(BATCH)]
    query = run(write)
    values = lake.values("lake.t")
    assert values == [*range(len(values))]
    assert lake.orphans("lake.t") == set()
    assert json.loads(lake.table("lake.t").properties["calving.spark-batch.numbers"])["query"] == query
