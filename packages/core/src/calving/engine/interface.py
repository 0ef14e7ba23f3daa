"""What an engine is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from calving.tasks.result import TaskResult
from calving.tasks.spec import TaskSpec


class Engine(ABC):
    """Runs the tasks of one batch at a time."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Tasks that run at the same time."""

    @abstractmethod
    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        """All tasks, each to its result. A task may be attempted several times; one result counts.

        :raises Unavailable: a task could not reach what it reads. :raises JobFailedError: a task kept failing.
        """

    @abstractmethod
    def close(self) -> None:
        """Free what is held."""
