"""Tasks as one Spark job: what classic Spark and Spark Connect have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from calving.engine.failures import verdict
from calving.engine.interface import Engine
from calving.engine.watch import Patience, Watch
from calving.errors import CalvingError, ConfigError, Unavailable
from calving.tasks.result import TaskResult
from calving.tasks.spec import TaskSpec


class SparkEngine(Engine):
    """Texts in, texts out: tasks travel as JSON."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._has_worked = False

    @abstractmethod
    def map(self, texts: Sequence[str]) -> list[str]:
        """The results of all tasks."""

    @abstractmethod
    def shuffle(self, texts: Sequence[str]) -> list[str]:
        """The results of all tasks, and of those that write what they have read, one in each slot."""

    @abstractmethod
    def began(self) -> bool:
        """Whether a task of the running job runs or has run. Called from another thread."""

    @abstractmethod
    def cancel(self) -> None:
        """End the running job. Called from another thread."""

    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        if not tasks:
            return []
        shuffle = len(tasks) > 1 and any(
            table.distribution != "none" for spec in tasks for table in spec.tables.values()
        )
        texts = [replace(spec, shuffle=shuffle).to_json() for spec in tasks]
        with Watch(self._patience, self.began, self.cancel) as watch:
            try:
                found = self.shuffle(texts) if shuffle else self.map(texts)
            except Exception as error:  # of py4j, gRPC or Spark: the job's, or those of a JVM that is going down
                raise self._cancelled(watch) or verdict(str(error)) from error
        self._has_worked = True
        return [TaskResult.from_json(text) for text in found]

    def _cancelled(self, watch: Watch) -> CalvingError | None:
        if watch.no_resources:
            text = (
                f"Spark gave the job no resources for {self._patience.resources:.0f} s"
                " (iceberg.engine.resources-timeout-ms), and it was cancelled: are there executors, and are they large"
                " enough for what spark.executor.* asks for?"
            )
            return Unavailable(text) if self._has_worked else ConfigError(text)
        if watch.too_long:
            return Unavailable(
                f"the Spark job took longer than {self._patience.job:.0f} s (iceberg.engine.job-timeout-ms), and was"
                " cancelled"
            )
        return None
