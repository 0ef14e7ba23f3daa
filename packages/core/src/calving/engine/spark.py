"""Tasks as one Spark job: what classic Spark and Spark Connect have in common."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from calving.engine.failures import task_error, verdict
from calving.engine.interface import Engine, Function
from calving.engine.registry import Patience
from calving.engine.watch import Watch
from calving.errors import CalvingError, EngineLostError, NoResourcesError, UnavailableError
from calving.harmless import is_harmless
from calving.tasks.result import TaskResult
from calving.tasks.spec import TaskSpec
from calving.tasks.task import run_json

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOCAL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
"""A local JVM only schedules, so optimising its code would cost more than it saves."""

PYTHON_DAEMON, DAEMON = "spark.python.daemon.module", "calving.engine.daemon"
"""The heavy imports happen once, before workers are forked."""

REDACTED = "spark.redaction.regex"
_REDACTED = "(?i)secret|password|token|access[.]?key"
"""Spark's own default."""


def redacted(settings: Mapping[str, str]) -> str:
    """The value of ``REDACTED``, with which Spark's event log and page mask all settings that are not known to be
    harmless.
    """
    # The event log names settings of Hadoop without their prefix.
    secret = (re.escape(key.removeprefix("spark.hadoop.")) for key in sorted(settings) if not is_harmless(key))
    return "|".join([settings.get(REDACTED, _REDACTED), *secret])


class SparkEngine(Engine):
    """An engine on Spark. Tasks and results are sent as JSON, and each job is watched."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience

    @abstractmethod
    def count_slots(self) -> int:
        """Like ``slots``, but raises Spark's own errors."""

    @abstractmethod
    def map_job(self, function: Function, payloads: Sequence[str]) -> list[str]:
        """Like ``map``, but raises Spark's own errors."""

    @abstractmethod
    def shuffle_job(self, texts: Sequence[str]) -> list[str]:
        """The results of all tasks, and of the receiving tasks that write the shuffled rows, one in each slot."""

    @abstractmethod
    def began(self) -> bool:
        """Whether a task of the running job runs or has run. Called from another thread."""

    @abstractmethod
    def cancel(self) -> None:
        """End the running job. Called from another thread."""

    @abstractmethod
    def is_lost(self, error: Exception) -> bool:
        """Whether Spark takes no more jobs from this engine after this error."""

    @property
    def slots(self) -> int:
        try:
            return self.count_slots()
        except Exception as error:  # from py4j, gRPC or Spark
            raise self._verdict(error) from error

    def map(self, function: Function, payloads: Sequence[str]) -> list[str]:
        return self._watched(lambda: self.map_job(function, payloads)) if payloads else []

    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        shuffle = len(tasks) > 1 and any(
            table.distribution != "none" for spec in tasks for table in spec.tables.values()
        )
        texts = [replace(spec, shuffle=shuffle).to_json() for spec in tasks]
        answers = self._watched(lambda: self.shuffle_job(texts)) if shuffle else self.map(run_json, texts)
        return [TaskResult.from_json(text) for text in answers]

    def _watched(self, job: Callable[[], list[str]]) -> list[str]:
        with Watch(self._patience, self.began, self.cancel) as watch:
            try:
                answers = job()
            except Exception as error:  # from py4j, gRPC or Spark: the job failed, or its JVM is ending
                raise self._cancelled(watch) or self._verdict(error) from error
        return answers

    def _verdict(self, error: Exception) -> CalvingError:
        if self.is_lost(error):
            return EngineLostError(f"Spark is gone, and is started again: {task_error(str(error))}")
        return verdict(str(error))

    def _cancelled(self, watch: Watch) -> CalvingError | None:
        if watch.no_resources:
            return NoResourcesError(
                f"Spark gave the job no resources for {self._patience.resources:.0f} s"
                " (iceberg.engine.resources-timeout-ms), and it was cancelled: are there executors, and are they large"
                " enough for what spark.executor.* asks for?"
            )
        if watch.too_long:
            return UnavailableError(
                f"the Spark job took longer than {self._patience.job:.0f} s (iceberg.engine.job-timeout-ms), and was"
                " cancelled"
            )
        return None
