"""Tasks on Spark Connect, which knows only frames: Arrow batches of texts, mapped by functions."""

from __future__ import annotations

import copy
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from uuid import uuid4

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

from calving.engine import shipping
from calving.engine.interface import Function
from calving.engine.registry import Patience
from calving.engine.shipping import Sent
from calving.engine.spark import DAEMON, JAVA_OPTIONS, LOCAL_JAVA, PYTHON_DAEMON, SparkEngine, is_forgotten, not_started
from calving.tasks.shuffle import RangeBounds
from calving.version import __version__

_PLACE = ("tbl", "place")
_RESULT = "result string"
_SENT = "tbl string, place string, content binary"
_RETRIES = 5
"""How often PySpark repeats a call to a server that cannot be reached: for about 20 s. Then the sink tries again."""
_BLOCKS = 64
"""The most shuffle blocks that a receiver gets at once. Spark's default of 10,000 could be gigabytes."""


class ConnectEngine(SparkEngine):
    def __init__(self, name: str, properties: Mapping[str, str], patience: Patience) -> None:
        """:raises ConfigError: Spark does not start.
        :raises UnavailableError: the server cannot be reached, or has ended the session: try again.
        """
        super().__init__(patience)
        if properties["spark.remote"].startswith("local"):
            os.environ["PYSPARK_PYTHON"] = sys.executable
            properties = {JAVA_OPTIONS: LOCAL_JAVA, PYTHON_DAEMON: DAEMON, **properties}
        builder = SparkSession.builder.appName(f"calving-{name}")
        for key, value in properties.items():
            builder = builder.config(key, value)
        self._tag, self._thread, self._began = f"calving-{name}", 0, _Began()
        try:
            self._spark = builder.getOrCreate()
            self._spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
            interval = self._spark.conf.get("spark.connect.progress.reportInterval", "2s") or ""
            self._reports = not interval.startswith("-")
            self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(_BLOCKS))
        except Exception as error:  # gRPC and Spark each have their own
            if (broken := SparkSession.getActiveSession()) is not None:
                _drop(broken)  # otherwise the next attempt would get it again
            raise not_started(str(error)) from error
        self._spark.registerProgressHandler(self._began)

    def count_slots(self) -> int:
        return int(self._spark.conf.get("spark.calving.slots", "2") or 2)

    def map_job(self, function: Function, payloads: Sequence[str]) -> list[str]:
        return _results(self._tasks(payloads).mapInArrow(partial(_call, function, __version__, payloads), _RESULT))

    def for_other_jobs(self) -> ConnectEngine:
        other = copy.copy(self)
        other._tag = f"{self._tag}-{uuid4()}"
        return other

    def shuffle_job(self, texts: Sequence[str]) -> list[str]:
        sent = self._tasks(texts).mapInArrow(partial(_send, __version__, texts), _SENT)
        if not shipping.has_ranges(texts[0]):
            return self._received(sent, texts[0])
        sent = sent.persist(StorageLevel.DISK_ONLY)
        try:
            samples = [(row.tbl, row.place, row.content) for row in sent.filter(sent.tbl == shipping.SAMPLES).collect()]
            how = shipping.plan(texts[0], samples, self.count_slots())
            return self._received(sent.mapInArrow(partial(_cut, texts[0], how), _SENT), texts[0])
        finally:
            sent.unpersist()

    def began(self) -> bool:
        return self._thread in self._began.threads or not self._reports

    def is_lost(self, error: Exception) -> bool:
        return is_forgotten(str(error))  # PySpark's errors have their classes in the text

    def cancel(self) -> None:
        self._spark.interruptTag(self._tag)

    def close(self) -> None:
        self._spark.stop()

    def _tasks(self, texts: Sequence[str]) -> DataFrame:
        self._thread = threading.get_ident()
        self._began.threads.discard(self._thread)
        self._spark.addTag(self._tag)  # for jobs of this thread
        return self._spark.range(len(texts), numPartitions=len(texts))

    def _received(self, sent: DataFrame, text: str) -> list[str]:
        # Sorted, so that a receiver has one file open at a time.
        received = sent.repartition(self.count_slots(), *_PLACE).sortWithinPartitions(*_PLACE)
        return _results(received.mapInArrow(partial(_receive, text), _RESULT))


class _Began(ProgressHandler):
    """The threads in whose job a task runs or has run."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def __call__(
        self, stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        # PySpark calls it in the thread that waits for the job.
        if inflight_tasks or any(stage.num_completed_tasks for stage in stages or ()):
            self.threads.add(threading.get_ident())


def _drop(session: SparkSession) -> None:
    """Stop a session without a call to its server, which may be away."""
    session.release_session_on_close = False  # type: ignore[attr-defined]
    session.stop()


def _results(frame: DataFrame) -> list[str]:
    return [row.result for row in frame.collect()]


def _call(
    function: Function, version: str, payloads: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for number in _numbers(batches):
        yield pa.RecordBatch.from_pydict({"result": [shipping.call(function, version, payloads[number])]})


def _send(version: str, texts: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number in _numbers(batches):
        for sent in shipping.send(texts[number], version):
            yield _row(sent)


def _cut(text: str, how: RangeBounds, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from map(_row, shipping.cut(text, how, _rows(batches)))


def _receive(text: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"result": shipping.receive(text, _rows(batches))})


def _row(sent: Sent) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: [value] for name, value in zip((*_PLACE, "content"), sent, strict=True)})


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Sent]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column("id").to_pylist()
