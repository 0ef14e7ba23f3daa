"""``write_batch`` in ``foreachBatch``: the same promise as a stream's, with the commit in the caller's process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from calving_spark import write_batch
from harness.forms import forms
from tests.spark.lake import SparkLake
from tests.spark.sessions import Kind, Sessions, chosen, started
from tests.spark.test_streams import BATCH, SECONDS

pytestmark = pytest.mark.services

Function = Callable[[DataFrame, int], None]
CONNECT: Kind = "connect local"


@pytest.fixture(scope="module", params=forms(sorted({chosen(), CONNECT}), [chosen()]))
def session(request: pytest.FixtureRequest, sessions: Sessions) -> SparkSession:
    """Also of Connect: there the function runs in a process beside the server, and tasks do not know their query."""
    return sessions.of(request.param)


@pytest.fixture
def run(session: SparkSession, tmp_path: Path) -> Callable[[Function], str]:
    """Runs the function on batches of a stream that has a checkpoint; returns the id of the query."""

    def start(function: Function) -> str:
        source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH).load().select("value")
        writer = source.writeStream.foreachBatch(function).trigger(availableNow=True)
        query = started(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
        query.awaitTermination(SECONDS)
        return str(query.id)

    return start


def test_a_batch_that_fails_after_its_commit_is_not_written_again_and_a_new_checkpoint_is_refused(
    run: Callable[[Function], str], lake: SparkLake, tmp_path: Path
) -> None:
    checkpoint = str(tmp_path / "checkpoint")

    def write(frame: DataFrame, batch: int) -> None:
        write_batch(frame, batch, table="lake.t", sink="numbers", options=lake.options, checkpoint=checkpoint)

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
    shutil.rmtree(checkpoint)
    with pytest.raises(PySparkException, match="sink numbers was written by query"):
        run(write)
    assert lake.values("lake.t") == values


def test_tables_are_written_in_threads_that_are_told_the_checkpoint(
    run: Callable[[Function], str], lake: SparkLake, tmp_path: Path
) -> None:
    def write(**checkpoint: str) -> Function:
        def in_threads(frame: DataFrame, batch: int) -> None:
            def into(table: str) -> None:
                write_batch(frame, batch, table=table, sink="numbers", options=lake.options, **checkpoint)

            with ThreadPoolExecutor(2) as pool:
                list(pool.map(into, ["lake.a", "lake.b"]))

        return in_threads

    with pytest.raises(PySparkException, match="call write_batch with checkpoint = the query's checkpointLocation"):
        run(write())
    query = run(write(checkpoint=str(tmp_path / "checkpoint")))
    for table in ("lake.a", "lake.b"):
        values = lake.values(table)
        assert values == [*range(len(values))] != []
        assert json.loads(lake.table(table).properties["calving.spark-batch.numbers"])["query"] == query


def test_a_second_call_with_other_rows_in_a_batch_is_refused_because_its_rows_would_be_lost(
    run: Callable[[Function], str], lake: SparkLake, tmp_path: Path
) -> None:
    checkpoint = str(tmp_path / "checkpoint")

    def write(frame: DataFrame, batch: int) -> None:
        # The second call has the rows of the first one, as of a function that tries again what has failed later.
        for part in ("value % 2 = 0", "value % 2 = 0", "value % 2 = 1"):
            rows = frame.where(part)
            write_batch(rows, batch, table="lake.t", sink="numbers", options=lake.options, checkpoint=checkpoint)

    for _ in range(2):
        with pytest.raises(PySparkException, match="write_batch was called before in batch 0 with the sink numbers"):
            run(write)
    assert lake.values("lake.t") == [*range(0, BATCH, 2)]


@pytest.mark.long
@pytest.mark.parametrize("session", [CONNECT], indirect=True)
def test_on_connect_a_batch_whose_checkpoint_is_not_named_is_refused(
    run: Callable[[Function], str], lake: SparkLake
) -> None:
    def write(frame: DataFrame, batch: int) -> None:
        write_batch(frame, batch, table="lake.t", sink="numbers", options=lake.options)

    with pytest.raises(PySparkException, match="call write_batch with checkpoint = the query's checkpointLocation"):
        run(write)
    assert not lake.catalog.table_exists("lake.t")
