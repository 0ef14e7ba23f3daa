from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from calving.backend.sessions import EntryCursor
from calving.errors import OutcomeUnknownError
from calving.services.stores import RedisServer, ZooKeeperServer
from harness.forms import forms
from harness.run import settings_of
from harness.topic import Topic
from tests.cli.commands import Cli

STORES = {"redis": RedisServer, "zookeeper": ZooKeeperServer}


@pytest.fixture(params=forms(STORES, ["redis"]))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer | ZooKeeperServer]:
    """A store that a test may kill, wipe or turn back."""
    found = STORES[request.param](tmp_path / "store")
    found.start()
    yield found
    found.stop()


@pytest.fixture(scope="module", params=forms(["kafka", *STORES], ["kafka"]))
def keys(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings of a backend whose store is there for the whole module."""
    if request.param == "kafka":
        yield {}
        return
    server = STORES[request.param](tmp_path_factory.mktemp(request.param))
    server.start()
    yield settings_of(server)
    server.stop()


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]) -> Cli:
    """300 records, all of them committed."""
    made = Cli(tmp_path, topic(), unique)
    made.keys |= keys
    made.send(0, 300)
    made.run_here()
    return made


@pytest.fixture
def lose_answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """From its call on, the outcome of this process's next acknowledgement is unknown, whether it takes effect or not."""

    def lose(*, takes_effect: bool) -> None:
        write, attempts = EntryCursor.acknowledge, itertools.count()

        def acknowledge(cursor: EntryCursor, *entries: Any) -> None:
            is_first = next(attempts) == 0
            if takes_effect or not is_first:
                write(cursor, *entries)
            if is_first:
                raise OutcomeUnknownError("the answer is lost")

        monkeypatch.setattr(EntryCursor, "acknowledge", acknowledge)

    return lose
