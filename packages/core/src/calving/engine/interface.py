"""What an engine is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from calving.importing import IMPORTING
from calving.tasks.result import TaskResult
from calving.tasks.spec import TaskSpec

Function = Callable[[str], str]
"""What workers do with a payload: a function of a module that they can import. It may be attempted several times."""


class Patience(NamedTuple):
    """Seconds that a job may wait until its first task runs, and that it may take in all."""

    resources: float = 120.0
    job: float = 600.0


class Engine(ABC):
    """Maps functions over payloads, and runs the tasks of batches, which may send rows to each other. One at a time."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Tasks that run at the same time."""

    @abstractmethod
    def map(self, function: Function, payloads: Sequence[str]) -> list[str]:
        """What the function makes of each payload, in order.

        :raises Unavailable: a payload's function raised it; it may pass. :raises JobFailedError: it kept failing.
        """

    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        """All tasks, each to its result. A task may be attempted several times; one result counts.

        An engine that has nothing else to do maps them: then each task writes what it has read.

        :raises Unavailable: a task could not reach what it reads. :raises JobFailedError: a task kept failing.
        """
        # Imported here, because it brings all that tasks need, and the driver may not run any.
        with IMPORTING:
            from calving.tasks.task import run_json
        return [TaskResult.from_json(text) for text in self.map(run_json, [spec.to_json() for spec in tasks])]

    def beside(self) -> Engine | None:
        """The same engine, for jobs beside the one that this one runs, again one at a time.

        None: tasks would take nothing off this process, or two jobs cannot run at the same time.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Free what is held. It may be called again."""
