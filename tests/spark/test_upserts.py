"""Changes of rows through Spark itself: its tasks, its commits, and the output mode that it refuses to Python sinks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from calving_spark import write_batch
from tests.spark.lake import SparkLake
from tests.spark.sessions import started
from tests.spark.test_batch_writes import append
from tests.spark.test_streams import BATCH, SECONDS

pytestmark = pytest.mark.services


def test_rows_in_any_task_replace_and_delete_by_their_order(session: SparkSession, lake: SparkLake) -> None:
    changes = session.sql("SELECT id % 5 AS id, id AS seq, IF(id % 4 = 0, 'D', 'U') AS op FROM RANGE(0, 40, 1, 4)")
    for frame in (changes.where("seq < 20"), changes.where("seq >= 18").orderBy("id"), changes):
        append(frame, lake, keys="id", sequence_by="seq", apply_as_deletes="op = 'D'").save()
    rows = lake.table("lake.t").scan().to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(0, 35), (2, 37), (3, 38), (4, 39)]


def test_an_aggregation_in_update_mode_replaces_the_rows_of_its_groups(
    session: SparkSession, lake: SparkLake, tmp_path: Path
) -> None:
    options, checkpoint = {**lake.options, "keys": "id"}, str(tmp_path / "checkpoint")

    def write(frame: DataFrame, batch: int) -> None:
        write_batch(frame, batch, table="lake.t", sink="sums", options=options, checkpoint=checkpoint)

    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH).load()
    sums = source.groupBy((source.value % 3).alias("id")).count()
    for _ in range(2):
        writer = sums.writeStream.outputMode("update").foreachBatch(write).trigger(availableNow=True)
        query = started(writer.option("checkpointLocation", checkpoint))
        query.awaitTermination(SECONDS)
    counts = lake.table("lake.t").scan().to_arrow().to_pylist()
    assert sorted(row["id"] for row in counts) == [0, 1, 2]
    assert sum(row["count"] for row in counts) % BATCH == 0
