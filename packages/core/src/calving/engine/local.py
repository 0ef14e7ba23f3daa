"""Tasks one after the other, in this process."""

from __future__ import annotations

from collections.abc import Sequence

from calving.engine.interface import Engine, Function
from calving.tasks import task
from calving.tasks.result import TaskResult
from calving.tasks.spec import TaskSpec


class LocalEngine(Engine):
    @property
    def slots(self) -> int:
        return 1

    def map(self, function: Function, payloads: Sequence[str]) -> list[str]:
        return [function(payload) for payload in payloads]

    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        return [TaskResult.from_json(text) for text in self.map(task.run_json, [spec.to_json() for spec in tasks])]

    def close(self) -> None:
        pass
