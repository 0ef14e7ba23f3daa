"""Tasks as one Spark job: a row per task, mapped by the task function. Classic Spark and Spark Connect alike."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from calving.data import task
from calving.data.shuffle import Parcel
from calving.data.spec import TaskResult, TaskSpec
from calving.engine.interface import Engine
from calving.errors import ConfigError, Unavailable

log = logging.getLogger(__name__)

_DEFAULTS = {
    "spark.ui.enabled": "false",
    # A job here is one map over a handful of rows: to compile or to re-plan it costs more than to run it.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # The heavy imports happen once, before workers are forked.
    "spark.python.daemon.module": "calving.engine.daemon",
}
_LOCAL_DEFAULTS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    # The JVM only schedules here: to compile it well would cost more than it saves.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
}


_PARCELS = 64
"""Parcels that a receiver is handed at once; Spark's own 10,000 could be gigabytes."""


class SparkEngine(Engine):
    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        """:raises ConfigError: Spark does not start."""
        self._remote = "spark.remote" in properties
        builder = SparkSession.builder.appName(f"calving-{name}")
        for key, value in self._settings(properties).items():
            builder = builder.config(key, value)
        try:
            self._spark = builder.getOrCreate()
        except Exception as error:  # py4j, gRPC and Spark each have their own
            raise ConfigError(f"spark.*: Spark does not start: {error}") from error
        self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(_PARCELS))
        if not self._remote:
            self._spark.sparkContext.setLogLevel("ERROR")

    @property
    def slots(self) -> int:
        if self._remote:
            return int(self._spark.conf.get("spark.calving.slots", "2") or 2)
        return int(self._spark.sparkContext.defaultParallelism)

    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        if not tasks:
            return []
        shuffle = len(tasks) > 1 and any(table.distribute for spec in tasks for table in spec.tables.values())
        texts = [replace(spec, shuffle=shuffle).to_json() for spec in tasks]
        frame = self._spark.range(len(texts), numPartitions=len(texts))
        try:
            if shuffle:
                sent = frame.mapInArrow(partial(send_partition, texts), _SENT)
                # Sorted, so that a receiver has one file open at a time.
                received = sent.repartition(self.slots, *_PLACE).sortWithinPartitions(*_PLACE)
                done = received.mapInArrow(partial(receive_partition, texts[0]), "result string")
            else:
                done = frame.mapInArrow(partial(run_partition, texts), "result string")
            rows = done.collect()
        except PySparkException as error:
            raise Unavailable(f"the Spark job failed: {_reason(str(error))}") from error
        except Exception as error:  # py4j errors of a JVM that is going down
            raise Unavailable(f"the Spark job failed: {type(error).__name__}: {_reason(str(error))}") from error
        return [TaskResult.from_json(row.result) for row in rows]

    def close(self) -> None:
        self._spark.stop()

    def _settings(self, properties: Mapping[str, str]) -> dict[str, str]:
        if self._remote:
            if properties["spark.remote"].startswith("local"):
                os.environ["PYSPARK_PYTHON"] = sys.executable
            return dict(properties)
        master = properties.get("spark.master") or os.environ.get("SPARK_MASTER") or "local[*]"
        settings = {**_DEFAULTS, **properties}
        if "spark.master" in properties or not _submitted():
            settings["spark.master"] = master
        if master.startswith("local"):
            settings = {**_LOCAL_DEFAULTS, **settings}
            # On local masters workers would use whatever `python3` is on PATH.
            os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python", sys.executable)
        return settings


def run_partition(texts: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a Spark worker: the tasks whose numbers arrive as rows."""
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield pa.RecordBatch.from_pydict({"result": [task.run_json(texts[number])]})


_PLACE = ("tbl", "part")
_SENT = "tbl string, part string, content binary"
_RESULTS = ""
"""In the place of a table: the result of a task, which passes through the shuffle beside its rows."""


def send_partition(texts: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a Spark worker: the tasks whose numbers arrive as rows, their rows by table and partition."""
    for batch in batches:
        for number in batch.column("id").to_pylist():
            for sent in task.stream(TaskSpec.from_json(texts[number])):
                if isinstance(sent, Parcel):
                    row = (sent.table, sent.partition, sent.rows)
                else:
                    row = (_RESULTS, str(number), sent.to_json().encode())
                yield pa.RecordBatch.from_arrays([[value] for value in row], names=[*_PLACE, "content"])


def receive_partition(text: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a Spark worker: writes what others have read, and hands on their results."""
    results: list[str] = []

    def parcels() -> Iterator[Parcel]:
        for batch in batches:
            for table, partition, content in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if table == _RESULTS:
                    results.append(content.decode())
                else:
                    yield Parcel(table, partition, content)

    results.append(task.receive(TaskSpec.from_json(text), parcels()).to_json())
    yield pa.RecordBatch.from_pydict({"result": results})


def _submitted() -> bool:
    """Whether spark-submit has started this driver and chosen its master."""
    return "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ


def _reason(text: str) -> str:
    """The line that says why, out of a Spark stack trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("calving.errors.")]
    return (ours or lines or ["no reason given"])[0]
