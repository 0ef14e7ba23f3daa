"""The interface of engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from calving.importing import IMPORTING
from calving.tasks.result import TaskResult
from calving.tasks.spec import TaskSpec

Function = Callable[[str], str]
"""A function from payload to payload, importable by name on the workers. It may be called several times for one
payload.
"""


class Patience(NamedTuple):
    """The seconds that a job may wait for its first task, and the seconds that it may take in total."""

    resources: float = 120.0
    job: float = 600.0


class Engine(ABC):
    """Maps functions over payloads, and runs the tasks of batches, which may send rows to each other. One job at a
    time.
    """

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of tasks that run at the same time."""

    @abstractmethod
    def map(self, function: Function, payloads: Sequence[str]) -> list[str]:
        """The function's result for each payload, in order.

        :raises UnavailableError: the function raised it for some payload; try again.
        :raises JobFailedError: the function failed for some payload in every attempt.
        """

    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        """Run all tasks, and return their results in order. A task may be attempted several times; one result counts.

        By default tasks are mapped: each one writes the rows that it has read, without a shuffle.

        :raises UnavailableError: a task could not reach its source; try again.
        :raises JobFailedError: a task failed in every attempt.
        """
        # Imported here: the module imports everything that tasks need, but the driver may never run a task.
        with IMPORTING:
            from calving.tasks.task import run_json
        return [TaskResult.from_json(text) for text in self.map(run_json, [spec.to_json() for spec in tasks])]

    def for_other_jobs(self) -> Engine | None:
        """The same engine for jobs that run at the same time as this engine's job, again one at a time.

        None: tasks would run in this process anyway, or two jobs cannot run at the same time.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Release the engine's resources. Safe to call twice."""
