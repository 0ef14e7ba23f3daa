"""Tasks one after the other, in this process."""

from __future__ import annotations

from collections.abc import Sequence

from calving.data import task
from calving.data.spec import TaskResult, TaskSpec
from calving.engine.interface import Engine


class LocalEngine(Engine):
    @property
    def slots(self) -> int:
        return 1

    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        return [TaskResult.from_json(task.run_json(spec.to_json())) for spec in tasks]

    def close(self) -> None:
        pass
