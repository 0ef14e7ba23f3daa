"""Tasks as one Spark job, on classic Spark and on Spark Connect."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from calving.data.spec import TaskResult, TaskSpec
from calving.engine import frames, rdds
from calving.engine.class_archive import ClassArchive
from calving.engine.interface import Engine
from calving.errors import ConfigError, Unavailable

log = logging.getLogger(__name__)

_DEFAULTS = {
    "spark.ui.enabled": "false",
    # The heavy imports happen once, before workers are forked.
    "spark.python.daemon.module": "calving.engine.daemon",
}
_LOCAL_DEFAULTS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
}
_JAVA = "spark.driver.extraJavaOptions"
# A local JVM only schedules: to compile it well would cost more than it saves.
_LOCAL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"


class SparkEngine(Engine):
    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        """:raises ConfigError: Spark does not start."""
        self._remote = "spark.remote" in properties
        self._archive: ClassArchive | None = None
        builder = SparkSession.builder.appName(f"calving-{name}")
        for key, value in self._settings(properties).items():
            builder = builder.config(key, value)
        try:
            self._spark = builder.getOrCreate()
        except Exception as error:  # py4j, gRPC and Spark each have their own
            raise ConfigError(f"spark.*: Spark does not start: {error}") from error
        if self._remote:
            frames.prepare(self._spark)
        else:
            self._spark.sparkContext.setLogLevel("ERROR")

    @property
    def slots(self) -> int:
        if self._remote:
            return int(self._spark.conf.get("spark.calving.slots", "2") or 2)
        return int(self._spark.sparkContext.defaultParallelism)

    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        if not tasks:
            return []
        shuffle = len(tasks) > 1 and any(
            table.distribution != "none" for spec in tasks for table in spec.tables.values()
        )
        texts = [replace(spec, shuffle=shuffle).to_json() for spec in tasks]
        try:
            if self._remote:
                found = frames.shuffle(self._spark, texts, self.slots) if shuffle else frames.run(self._spark, texts)
            else:
                context = self._spark.sparkContext
                found = rdds.shuffle(context, texts, self.slots) if shuffle else rdds.run(context, texts)
        except Exception as error:  # of py4j, gRPC or Spark: the job's, or those of a JVM that is going down
            raise Unavailable(f"the Spark job failed: {_reason(str(error)) or type(error).__name__}") from error
        return [TaskResult.from_json(text) for text in found]

    def close(self) -> None:
        self._spark.stop()
        if self._archive is not None:
            self._archive.close()

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
            if _JAVA not in settings:
                self._archive = ClassArchive(_LOCAL_JAVA)
                settings[_JAVA] = self._archive.options
            # On local masters workers would use whatever `python3` is on PATH.
            os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python", sys.executable)
        return settings


def _submitted() -> bool:
    """Whether spark-submit has started this driver and chosen its master."""
    return "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ


def _reason(text: str) -> str:
    """What a task said, out of a Spark stack trace; else the first line that says anything."""
    _, found, after = text.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in (after if found else text).splitlines() if line.strip(": ")]
    told = [line for line in lines if not line.startswith((" ", "\t", "An error occurred while calling"))]
    return next(iter(told or lines), "").strip(": ")
