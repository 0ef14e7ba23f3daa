"""The interface of engines, and the engine that runs tasks one after the other in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from calving.engine.registry import ENGINES, KEY, Patience
from calving.errors import ConfigError
from calving.importing import IMPORTING
from calving.tasks.spec import TaskResult, TaskSpec

Function = Callable[[str], str]
"""A function from payload to payload, importable by name on the workers. It may be called several times for one
payload.
"""


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


Opener = Callable[[str, Mapping[str, str], Patience], Engine]
"""An engine's class, or a function that makes an engine. The arguments are the sink's name, its ``spark.*`` properties,
and the engine's patience with a job.
"""


def open_engine(
    kind: str,
    name: str,
    properties: Mapping[str, str],
    patience: Patience = Patience(),  # noqa: B008
) -> Engine:
    """``kind``: ``local``, ``spark``, or a registered name; ``properties``: Spark's.

    :raises ConfigError: there is no such engine, or it does not start.
    """
    try:
        # Imported here, because only one engine is needed, and each imports everything that it runs.
        with IMPORTING:
            opener: Opener = ENGINES.find(kind)
    except ConfigError as error:
        raise ConfigError(f"{KEY}: {error}") from error
    return opener(name, properties, patience)


class LocalEngine(Engine):
    """Runs functions in this process. Their errors are raised unchanged, because another attempt would fail, too."""

    @property
    def slots(self) -> int:
        """One: the calling thread."""
        return 1

    def map(self, function: Function, payloads: Sequence[str]) -> list[str]:
        """The function's results, one after the other."""
        return [function(payload) for payload in payloads]

    def close(self) -> None:
        """Nothing is open."""


def open_local(name: str, properties: Mapping[str, str], patience: Patience) -> Engine:
    """The local engine. It uses none of the arguments."""
    return LocalEngine()
