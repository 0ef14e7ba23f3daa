"""Two queries of Spark write one table beside a sink of Kafka and ``calving maintain``: every reader finds each row once.

``CALVING_BATCHES=500`` takes as many batches of each query.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from calving.iceberg.catalog import find_table
from calving.services.process import Process
from harness.duckdb_extensions import duckdb_rows
from harness.run import Run
from harness.spark_reader import spark_on
from harness.waiting import wait_for
from tests.spark.sessions import is_connect

pytestmark = [pytest.mark.services, pytest.mark.long]

BATCHES = int(os.environ.get("CALVING_BATCHES", "10"))
ROWS = 10
"""Rows of a batch."""
NAME = "db.t"
FIRST = {"north": 1_000_000, "south": 2_000_000}
"""The first id of each query; those of the sink begin with 0."""
SECONDS = 300 + 3 * BATCHES
MAINTENANCE = {
    "iceberg.maintenance.pause-ms": "1000",
    "iceberg.maintenance.small-files": "8",
    "iceberg.maintenance.manifests": "8",
}


@pytest.fixture
def sink(servers: str, tmp_path: Path, unique: str) -> Iterator[Run]:
    made = Run(tmp_path, servers, unique, settings=MAINTENANCE, tables=(NAME,))
    yield made
    made.close()


@contextlib.contextmanager
def maintained(sink: Run) -> Iterator[None]:
    """``calving maintain`` runs all the time."""
    process = Process(sink.command("maintain", "--watch"), sink.folder / "maintain.log")
    try:
        yield
        assert process.returncode is None, process.log.read_text()
    finally:
        process.stop()


def catalog_of(sink: Run) -> dict[str, str]:
    """The options of the sink's catalog."""
    return {f"catalog.{key}": text for key, text in sink.catalog_keys.items()}


def started(session: SparkSession, sink: Run, name: str) -> StreamingQuery:
    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2)
    rows = source.load().selectExpr(f"value + {FIRST[name]} AS id", f"'{name}' AS route", "'' AS proof")
    writer = rows.writeStream.format("calving").queryName(name).options(**catalog_of(sink))
    writer = writer.option("checkpointLocation", str(sink.folder / name)).trigger(processingTime="1 second")
    return writer.start(NAME)


def batches(table: Table) -> dict[str, int]:
    """By query, how many it has written."""
    prefix = "calving.spark-batch."
    ledgers = {name: json.loads(text) for name, text in table.properties.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): ledger["batch"] + 1 for name, ledger in ledgers.items()}


def ids_of(session: SparkSession, sink: Run, table: Table) -> dict[str, list[int]]:
    """The ids, by reader. Iceberg's own runtime is for PySpark 4.1 alone, and needs a session of its own process."""
    rows = session.read.format("calving").options(**catalog_of(sink), columns="id").load(NAME).collect()
    ids: dict[str, list[int]] = {
        "pyiceberg": table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist(),
        "duckdb": [each[0] for each in duckdb_rows(table, "id")],
        "calving": [row["id"] for row in rows],
    }
    if pyspark.__version__.startswith("4.1.") and not is_connect():
        (answer,) = spark_on(sink.catalog_keys["warehouse"], f"select id from iceberg.{NAME}")
        ids["iceberg"] = [row["id"] for row in answer]
    return ids


def test_every_reader_finds_each_row_of_two_queries_and_a_sink_once(session: SparkSession, sink: Run) -> None:
    sink.start()
    sink.produce(20)
    wait_for(lambda: find_table(sink.catalog, ("db", "t")) is not None, SECONDS)

    def progress() -> dict[str, int]:
        table = find_table(sink.catalog, ("db", "t"))
        assert table is not None
        return batches(table)

    queries = [started(session, sink, name) for name in FIRST]
    with maintained(sink):

        def are_done() -> bool:
            sink.produce(20)
            assert all(query.isActive for query in queries), "\n".join(str(query.exception()) for query in queries)
            return all(progress().get(name, 0) >= BATCHES for name in FIRST)

        wait_for(are_done, SECONDS)
        for query in queries:
            query.stop()
            assert query.exception() is None
        wait_for(lambda: sink.verdict()["GAP"] == 0, SECONDS)
    sink.stop()
    table = find_table(sink.catalog, ("db", "t"))
    assert table is not None
    written = batches(table)
    expected = [*range(sink.sent)]
    for name, first in FIRST.items():
        expected += range(first, first + written[name] * ROWS)
    for reader, ids in ids_of(session, sink, table).items():
        assert sorted(ids) == expected, reader
    assert "became" in (sink.folder / "maintain.log").read_text()
    print(f"{written} batches beside {sink.sent} records: {len(table.metadata.snapshots)} snapshots")
