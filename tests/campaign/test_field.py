"""A campaign's workers of two versions take turns, and none of them meets a record that it cannot read."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any, cast

import pytest

from campaign import faults
from campaign.field import Field
from campaign.sink import Sink

FORMER = Path("former")


class Worker:
    def __init__(self, former: Path | None) -> None:
        self.former, self.returncode = former, cast("int | None", None)

    def kill(self) -> None:
        self.returncode = -9

    def stop(self, seconds: float) -> None:
        self.returncode = 0


class FakeSink:
    """Of one worker after the other. ``sent``: the last record of each partition belongs in a table."""

    tables, partitions, sent, poisoned = ("db.t",), 3, 10, True

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.environment: dict[str, str] = {}

    def start(self, fault: str, *, forced: bool, former: Path | None) -> Worker:
        self.workers.append(Worker(former))
        return self.workers[-1]


class FakeField(Field):
    is_read = True

    def all_there(self) -> bool:
        return self.is_read

    def wait(self, seconds: float, *others: Any) -> float | None:
        return 0.0 if self.is_read else None


@pytest.fixture
def run() -> FakeSink:
    return FakeSink()


@pytest.fixture
def field(run: FakeSink) -> Field:
    nothing = cast(Any, None)
    parts = cast(Sink, run), nothing, nothing, nothing, Path(), random.Random(1), 1, nothing, contextlib.nullcontext
    made = FakeField(*parts, Path(), former=FORMER)
    made.revive()
    return made


def versions(run: FakeSink) -> list[Path | None]:
    return [worker.former for worker in run.workers]


def test_each_worker_is_replaced_by_one_of_the_other_version(field: Field, run: FakeSink) -> None:
    for _ in range(3):
        faults.versions_changed(field)
    assert versions(run) == [None, FORMER, None, FORMER]
    assert [worker.returncode is None for worker in run.workers] == [False, False, False, True]


def test_nothing_is_poison_to_a_former_version_while_one_of_its_workers_lives(field: Field, run: FakeSink) -> None:
    faults.versions_changed(field)
    field.revive()
    assert not run.poisoned
    run.workers[-1].kill()
    field.revive()
    assert run.poisoned


def test_a_worker_of_a_former_version_comes_once_the_poison_before_it_is_read(field: Field, run: FakeSink) -> None:
    cast(FakeField, field).is_read = False
    faults.versions_changed(field)
    assert versions(run) == [None]
    assert run.poisoned


def test_a_former_version_carries_no_sabotage(field: Field, run: FakeSink) -> None:
    field.sabotage = "dropped file"
    faults.versions_changed(field)
    assert "SABOTAGE" not in run.environment
    faults.versions_changed(field)
    assert run.environment["SABOTAGE"] == "dropped file"
