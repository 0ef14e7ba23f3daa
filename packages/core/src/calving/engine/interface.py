"""What an engine is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from calving.tasks.result import TaskResult
from calving.tasks.spec import TaskSpec

Function = Callable[[str], str]
"""What workers do with a payload: a function of a module that they can import. It may be attempted several times."""


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

    @abstractmethod
    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        """All tasks, each to its result. A task may be attempted several times; one result counts.

        :raises Unavailable: a task could not reach what it reads. :raises JobFailedError: a task kept failing.
        """

    @abstractmethod
    def close(self) -> None:
        """Free what is held."""
