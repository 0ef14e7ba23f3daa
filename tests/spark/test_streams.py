"""``df.writeStream.format("calving")``: each micro-batch once, whatever fails, and no batch that would double rows."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark import faulty
from tests.spark.lake import SparkLake

pytestmark = pytest.mark.services

BATCH = 10
SECONDS = 600
"""The first batch imports libraries in four processes, beside whatever else runs on the machine."""


class Stream:
    """A query that writes the numbers from 0 on into ``lake.t``, ten in each micro-batch."""

    def __init__(self, session: SparkSession, lake: SparkLake, folder: Path) -> None:
        self._session, self.lake, self.checkpoint = session, lake, folder / "checkpoint"
        self.catalog: Mapping[str, str] = lake.options
        self._query: StreamingQuery | None = None

    def start(self, **options: str) -> StreamingQuery:
        named = {name.replace("_", "-"): text for name, text in options.items()}
        source = self._session.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH)
        numbers = source.option("numPartitions", 2).load().select("value")
        writer = numbers.writeStream.format("calving").options(**{**self.catalog, "sink": "numbers", **named})
        return (
            writer.option("checkpointLocation", str(self.checkpoint))
            .trigger(processingTime="100 milliseconds")
            .start("lake.t")
        )

    def run(self, batches: int, **options: str) -> None:
        """Write until the table has rows of so many more batches."""
        before = len(self.lake.values("lake.t"))
        query = self.start(**options)
        wait(lambda: not query.isActive or len(self.lake.values("lake.t")) >= before + batches * BATCH)
        query.stop()
        assert query.exception() is None, query.exception()

    def go_on(self) -> None:
        """Have the query write two batches more; it is started if it does not run, and again whenever it fails."""
        wanted = len(self.lake.values("lake.t")) + 2 * BATCH

        def is_done() -> bool:
            if self._query is None or not self._query.isActive:
                self._query = self.start()
            return len(self.lake.values("lake.t")) >= wanted

        wait(is_done)

    def fail(self, **options: str) -> str:
        """Start, and wait until the query has failed."""
        query = self.start(**options)
        wait(lambda: not query.isActive)
        return str(query.exception())

    def assert_each_once(self) -> None:
        values = self.lake.values("lake.t")
        assert values == [*range(len(values))]

    @property
    def ledger(self) -> dict[str, object]:
        made: dict[str, object] = json.loads(self.lake.table("lake.t").properties["calving.spark-batch.numbers"])
        return made


def wait(done: object) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


@pytest.fixture
def stream(session: SparkSession, lake: SparkLake, tmp_path: Path) -> Iterator[Stream]:
    yield Stream(session, lake, tmp_path)
    for query in session.streams.active:
        query.stop()


FAULTS = [
    *(pytest.param("load_table", number, "raises after", marks=pytest.mark.long) for number in (1, 2)),
    ("load_table", 3, "raises after"),
    ("commit_table", 1, "raises before"),
    ("commit_table", 1, "raises after"),
    pytest.param("commit_table", 1, "dies before", marks=pytest.mark.long),
    ("commit_table", 1, "dies after"),
]


@pytest.fixture(scope="module")
def faulty_stream(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    """One table for all faults: a query goes on after them, and is started again only if one has ended it."""
    folder = tmp_path_factory.mktemp("faulty")
    made = Stream(session, SparkLake.create(folder / "warehouse"), folder)
    made.catalog = made.lake.faulty
    yield made
    for query in session.streams.active:
        query.stop()


@pytest.mark.parametrize(("call", "number", "when"), FAULTS)
def test_every_row_is_there_once_whatever_call_of_the_catalog_fails(
    faulty_stream: Stream, call: faulty.Call, number: int, when: faulty.When
) -> None:
    faulty_stream.go_on()
    faulty.plan(faulty_stream.lake.folder, call, number, when)
    wait(lambda: faulty.has_failed(faulty_stream.lake.folder))
    faulty_stream.go_on()
    faulty_stream.assert_each_once()


def test_every_row_is_there_once_after_restarts_of_which_one_repeats_a_batch_that_has_landed(stream: Stream) -> None:
    stream.run(2)
    stream.run(1)
    commits = sorted(
        (path for path in (stream.checkpoint / "commits").iterdir() if path.name.isdecimal()), key=lambda p: int(p.name)
    )
    landed = len(stream.lake.values("lake.t"))
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink(missing_ok=True)
    stream.run(1)
    stream.assert_each_once()
    assert len(stream.lake.values("lake.t")) > landed
    assert stream.ledger["batch"] == len(stream.lake.values("lake.t")) // BATCH - 1


def test_a_deleted_checkpoint_is_refused_until_somebody_says_that_rows_do_not_repeat(stream: Stream) -> None:
    stream.run(1)
    before = stream.lake.values("lake.t")
    shutil.rmtree(stream.checkpoint)
    said = stream.fail()
    assert "sink numbers was written by query" in said and "set on-new-checkpoint = continue" in said
    assert stream.lake.values("lake.t") == before
    shutil.rmtree(stream.checkpoint)
    stream.run(1, on_new_checkpoint="continue")
    assert stream.lake.values("lake.t")[: 2 * BATCH : 2] == [*range(BATCH)]  # this source does repeat, from 0 on


def test_a_query_without_a_name_has_its_id_in_the_ledger(stream: Stream) -> None:
    source = stream._session.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH).load().select("value")
    writer = source.writeStream.format("calving").options(**stream.lake.options)
    query = writer.option("checkpointLocation", str(stream.checkpoint)).trigger(availableNow=True).start("lake.t")
    query.awaitTermination(SECONDS)
    assert f"calving.spark-batch.{query.id}" in stream.lake.table("lake.t").properties


def test_the_name_of_a_query_is_that_of_its_sink(stream: Stream) -> None:
    source = stream._session.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH).load().select("value")
    writer = source.writeStream.format("calving").queryName("named").options(**stream.lake.options)
    query = writer.option("checkpointLocation", str(stream.checkpoint)).trigger(availableNow=True).start("lake.t")
    query.awaitTermination(SECONDS)
    assert "calving.spark-batch.named" in stream.lake.table("lake.t").properties


def test_complete_mode_is_refused_because_it_would_replace_the_table(stream: Stream) -> None:
    source = stream._session.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH).load()
    counts = source.groupBy((source.value % 3).alias("value")).count()
    writer = counts.writeStream.format("calving").outputMode("complete").options(**stream.lake.options)
    query = writer.option("checkpointLocation", str(stream.checkpoint)).start("lake.t")
    wait(lambda: not query.isActive)
    assert "output mode complete would replace the table" in str(query.exception())


def test_two_queries_into_one_table_have_ledgers_of_their_own(stream: Stream, tmp_path: Path) -> None:
    other = Stream(stream._session, stream.lake, tmp_path / "other")
    stream.run(1)
    queries = [stream.start(), other.start(sink="others")]
    wait(lambda: len(stream.lake.values("lake.t")) >= 8 * BATCH)
    for query in queries:
        query.stop()
        assert query.exception() is None
    counts = pa.table({"value": stream.lake.values("lake.t")}).group_by("value").aggregate([("value", "count")])
    assert max(counts["value_count"].to_pylist()) == 2
    ledgers = [
        json.loads(text) for name, text in stream.lake.table("lake.t").properties.items() if "spark-batch" in name
    ]
    assert sum(int(each["batch"]) + 1 for each in ledgers) * BATCH == len(stream.lake.values("lake.t"))
