"""Tasks as one Spark job: what classic Spark and Spark Connect have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from calving.data.spec import TaskResult, TaskSpec
from calving.engine.interface import Engine
from calving.errors import JobFailedError, Unavailable


class SparkEngine(Engine):
    """Texts in, texts out: tasks travel as JSON."""

    @abstractmethod
    def map(self, texts: Sequence[str]) -> list[str]:
        """The results of all tasks."""

    @abstractmethod
    def shuffle(self, texts: Sequence[str]) -> list[str]:
        """The results of all tasks, and of those that write what they have read, one in each slot."""

    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        if not tasks:
            return []
        shuffle = len(tasks) > 1 and any(
            table.distribution != "none" for spec in tasks for table in spec.tables.values()
        )
        texts = [replace(spec, shuffle=shuffle).to_json() for spec in tasks]
        try:
            found = self.shuffle(texts) if shuffle else self.map(texts)
        except Exception as error:  # of py4j, gRPC or Spark: the job's, or those of a JVM that is going down
            reason = _reason(str(error)) or type(error).__name__
            passes = reason.partition(":")[0].endswith(Unavailable.__name__)
            raise (Unavailable if passes else JobFailedError)(f"the Spark job failed: {reason}") from error
        return [TaskResult.from_json(text) for text in found]


def _reason(text: str) -> str:
    """What a task said, out of a Spark stack trace; else the first line that says anything."""
    _, found, after = text.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in (after if found else text).splitlines() if line.strip(": ")]
    told = [line for line in lines if not line.startswith((" ", "\t", "An error occurred while calling"))]
    return next(iter(told or lines), "").strip(": ")
