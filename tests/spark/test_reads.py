"""``spark.read.format("calving")``: the rows of one snapshot, as they are in the table, and no other ones."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from calving.iceberg.catalog import open_catalog
from tests.iceberg.histories import create, play
from tests.spark import faulty
from tests.spark.lake import SparkLake
from tests.spark.test_batch_writes import EVERY_TYPE, append

pytestmark = pytest.mark.services

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def reading(session: SparkSession, lake: SparkLake, name: str = "lake.t", **options: object) -> DataFrame:
    named = {key.replace("_", "-"): str(value) for key, value in options.items()}
    return session.read.format("calving").options(**{**lake.to_read, **named}).load(name)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def test_every_value_is_read_as_it_was_written(session: SparkSession, lake: SparkLake) -> None:
    written = session.sql(EVERY_TYPE)
    append(written, lake).save()
    found = reading(session, lake)
    assert sorted(map(repr, found.collect())) == sorted(map(repr, written.collect()))


def test_rows_that_deletion_vectors_delete_are_not_read(session: SparkSession, rest_uri: str) -> None:
    """Only a REST catalog has tables of format version 3."""
    catalog = {"type": "rest", "uri": rest_uri}
    table = create(open_catalog("iceberg", catalog), "by key", 3)
    play(table, "by key", 500, 8)
    options = {f"catalog.{key}": text for key, text in catalog.items()}
    found = session.read.format("calving").options(**options).load(table.name).collect()
    assert sorted(map(tuple, found), key=repr) == table.rows()


def test_the_columns_that_a_query_declares_are_read(session: SparkSession, lake: SparkLake) -> None:
    append(session.sql("SELECT id, id / 2 AS d, 'x' AS more FROM RANGE(3)"), lake).save()
    declared = session.read.format("calving").options(**lake.to_read).schema("d DOUBLE, id LONG").load("lake.t")
    assert [tuple(row) for row in sorted(declared.collect())] == [(0.0, 0), (0.5, 1), (1.0, 2)]


def test_a_filter_leaves_out_files_where_spark_hands_filters_over(session: SparkSession, lake: SparkLake) -> None:
    append(session.range(0, 5, 1, 1), lake).save()
    (former,) = lake.table("lake.t").scan().plan_files()
    append(session.range(5, 10, 1, 1), lake).save()
    session.conf.set(PUSHDOWN, "true")
    try:
        assert ids(reading(session, lake)) == [*range(10)]
        Path(former.file.file_path.removeprefix("file://")).unlink()  # a file that is left out is not opened
        assert ids(reading(session, lake).where("id IN (3, 7) AND id > 4 AND id % 2 = 1")) == [7]
    finally:
        session.conf.unset(PUSHDOWN)


def dies_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    for batch in batches:
        yield batch
        if context is not None and context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def test_each_row_is_read_once_if_a_worker_is_killed(session: SparkSession, lake: SparkLake) -> None:
    append(session.range(0, 1000, 1, 4), lake).save()
    assert ids(reading(session, lake).mapInArrow(dies_at_first, "id long")) == [*range(1000)]


def test_a_read_fails_with_the_catalog_and_the_next_one_reads(session: SparkSession, lake: SparkLake) -> None:
    append(session.range(5), lake).save()
    options = {name: text for name, text in lake.faulty.items() if name != "auto-create-enabled"}
    reader = session.read.format("calving").options(**options)
    faulty.plan(lake.folder, "load_table", 1, "raises before")
    with pytest.raises(PySparkException, match="the catalog failed"):
        reader.load("lake.t").collect()
    assert ids(reader.load("lake.t")) == [*range(5)]
