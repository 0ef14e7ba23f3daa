"""Tasks on classic Spark: plain Python rows, and no session.

Planning SQL for a handful of tasks costs more than running them, and setting up SQL costs the JVM a second of CPU.
"""

from __future__ import annotations

import copy
import itertools
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from zlib import crc32

import pyspark
from pyspark import RDD, SparkConf, SparkContext, StorageLevel

from calving.engine import shipping
from calving.engine.interface import Function
from calving.engine.java import ask_about_numpy_alone, end_jvm, forget_a_dead_jvm, launch
from calving.engine.registry import Patience
from calving.engine.shipping import Sent
from calving.engine.spark import (
    DAEMON,
    JAVA_OPTIONS,
    LOCAL_JAVA,
    PYTHON_DAEMON,
    REDACTED,
    SparkEngine,
    not_started,
    redacted,
)
from calving.errors import UnavailableError
from calving.host import WRITING_SECONDS, ClassArchive, check_java
from calving.tasks.shuffle import TablePartition
from calving.version import __version__

log = logging.getLogger(__name__)

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Otherwise PySpark writes tasks, which hold credentials, to a temporary file.
    "spark.io.encryption.enabled": "true",
    PYTHON_DAEMON: DAEMON,
}
_LOCAL_DEFAULTS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
}


class ClassicEngine(SparkEngine):
    """Runs tasks on classic Spark. Uses the context of this process, if there is one already."""

    def __init__(self, name: str, properties: Mapping[str, str], patience: Patience) -> None:
        """:raises ConfigError: Spark does not start.
        :raises UnavailableError: its cluster does not answer, or has ended it: try again.
        """
        super().__init__(patience)
        self._name, self._jobs, self._group = f"calving-{name}", itertools.count(), ""
        self._archive: ClassArchive | None = None
        settings = self._settings(properties)
        self._slots = int(settings.get("spark.calving.slots", 0))
        ask_about_numpy_alone()
        forget_a_dead_jvm()
        conf = SparkConf().setAppName(self._name).setAll(list(settings.items()))
        try:
            self._context = _context(conf)
        except Exception as error:  # py4j and Spark each have their own
            check_java()
            raise not_started(str(error)) from error
        if self._is_stopped():
            self.close()
            raise UnavailableError(
                "Spark does not start yet: its cluster cannot be reached, or has ended the application"
            )
        if "spark.log.level" not in settings:
            self._context.setLogLevel("ERROR")

    def count_slots(self) -> int:
        # Spark counts only the present executors. With dynamic allocation there may be too few of them, or none.
        return self._slots or int(self._context.defaultParallelism)

    def map_job(self, function: Function, payloads: Sequence[str]) -> list[str]:
        return list(self._tasks(payloads).map(partial(shipping.call, function, __version__)).collect())

    def for_other_jobs(self) -> ClassicEngine:
        other = copy.copy(self)
        other._group = ""
        return other

    def shuffle_job(self, texts: Sequence[str]) -> list[str]:
        sent = self._tasks(texts).flatMap(partial(shipping.send, version=__version__))
        if not shipping.has_ranges(texts[0]):
            return self._received(sent, texts[0], {})
        sent = sent.persist(StorageLevel.DISK_ONLY)
        try:
            samples = sent.filter(lambda each: each[0] == shipping.SAMPLES).collect()
            how = shipping.plan(texts[0], samples, self.count_slots())
            return self._received(sent.mapPartitions(partial(shipping.cut, texts[0], how)), texts[0], how.receivers)
        finally:
            sent.unpersist()

    def _received(self, sent: RDD[Sent], text: str, receivers: Mapping[TablePartition, int]) -> list[str]:
        # Sorted, so that a receiver has one file open at a time. Rows that do not fit into memory are meanwhile on
        # disk.
        placed = sent.map(lambda each: (each[:2], each[2]))
        received = placed.repartitionAndSortWithinPartitions(self.count_slots(), partial(_receiver, receivers))
        return list(received.mapPartitions(partial(_receive, text)).collect())

    def began(self) -> bool:
        tracker = self._context.statusTracker()
        stages = [
            tracker.getStageInfo(stage)
            for number in tracker.getJobIdsForGroup(self._group)
            if (job := tracker.getJobInfo(number)) is not None and job.status == "RUNNING"
            for stage in job.stageIds
        ]
        return any(s is not None and s.numActiveTasks + s.numCompletedTasks + s.numFailedTasks > 0 for s in stages)

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._group)

    def is_lost(self, error: Exception) -> bool:
        return self._is_stopped()

    def _tasks(self, texts: Sequence[str]) -> RDD[str]:
        self._group = f"{self._name}-{next(self._jobs)}"
        self._context.setJobGroup(self._group, "a batch")  # for jobs of this thread
        return self._context.parallelize(texts, len(texts))

    def close(self) -> None:
        self._context.stop()
        if self._archive is not None and self._archive.will_be_written:
            has_run = next(self._jobs) > 0
            if has_run:
                log.info("writing an archive of Spark's classes for later starts, which takes some seconds, once")
            code = end_jvm(WRITING_SECONDS)
            self._archive.end(code if has_run else None)  # the classes of tasks would be missing, for ever

    def _is_stopped(self) -> bool:
        try:
            return bool(self._context._jsc.sc().isStopped())
        except Exception:  # py4j's: the JVM has ended
            return True

    def _settings(self, properties: Mapping[str, str]) -> dict[str, str]:
        master = properties.get("spark.master") or os.environ.get("SPARK_MASTER") or "local[*]"
        settings = {**_DEFAULTS, **properties}
        if "spark.master" in properties or not _submitted():
            settings["spark.master"] = master
        if master.startswith("local"):
            settings = {**_LOCAL_DEFAULTS, **settings}
            if JAVA_OPTIONS not in settings:
                # A JVM that runs already keeps its options.
                self._archive = class_archive() if SparkContext._gateway is None else None
                options = self._archive.options if self._archive is not None else []
                settings[JAVA_OPTIONS] = " ".join([LOCAL_JAVA, *options, *_quiet()])
            # Otherwise workers would use whatever `python3` is on PATH.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings[REDACTED] = redacted(settings)
        # Only spark-submit reads this setting, which takes precedence over the variable.
        if (python := settings.get("spark.pyspark.python")) is not None:
            os.environ["PYSPARK_PYTHON"] = python
        return settings


def _context(conf: SparkConf) -> SparkContext:
    if SparkContext._gateway is None and not _submitted():
        return SparkContext(conf=conf, gateway=launch(conf, LOCAL_JAVA))
    return SparkContext.getOrCreate(conf)


def class_archive() -> ClassArchive:
    """The archive of Spark's classes for a JVM with ``LOCAL_JAVA``.

    :raises ConfigError: Java is not installed.
    """
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent).resolve()
    return ClassArchive("spark", home, home.glob("jars/*.jar"), [LOCAL_JAVA])


def _quiet() -> list[str]:
    """Java's option to log only errors until Spark applies its configured log level."""
    path = Path(__file__).with_name("log4j2.properties")
    return [] if " " in str(path) else [f"-Dlog4j2.configurationFile={path}"]


def _submitted() -> bool:
    """Whether spark-submit has started this driver and chosen its master."""
    return "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ


def _receiver(receivers: Mapping[TablePartition, int], place: TablePartition) -> int:
    receiver = receivers.get(place)
    return crc32("\0".join(place).encode()) if receiver is None else receiver


def _receive(text: str, found: Iterable[tuple[TablePartition, bytes]]) -> list[str]:
    sent: Iterator[Sent] = ((*place, rows) for place, rows in found)
    return shipping.receive(text, sent)
