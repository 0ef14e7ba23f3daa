"""Spark Connect with a server that is a process of its own and has a Python of its own."""

from __future__ import annotations

import contextlib
import sys
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.topic import Topic
from tests.engine.connect_server import ConnectServer
from tests.engine.test_engine import RECORDS, Spark, filled

pytestmark = [pytest.mark.services, pytest.mark.long]


@contextlib.contextmanager
def server(folder: Path, python: str) -> Iterator[Spark]:
    """An engine at a server whose tasks run in ``python``."""
    made = ConnectServer(folder, python, {"spark.master": "local[2]"})
    with contextlib.closing(made), contextlib.closing(Spark(folder, made.properties)) as spark:
        yield spark


def test_a_batch_runs_on_a_server_elsewhere(topic: Callable[..., Topic], tmp_path: Path) -> None:
    with server(tmp_path, sys.executable) as spark:
        assert spark.run(filled(topic), tmp_path) == {"rows": RECORDS, "distinct": RECORDS, "files": 2}


def test_a_server_whose_python_lacks_calving_is_named_as_the_reason_and_stops_the_sink(
    topic: Callable[..., Topic], tmp_path: Path
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    with server(tmp_path, str(tmp_path / "bare" / "bin" / "python")) as spark:
        error = spark.run(filled(topic), tmp_path)["error"]
    assert error.startswith("ConfigError: the Python of Spark's workers lacks the package 'calving': install calving")


def test_a_session_that_the_server_has_ended_is_opened_again(topic: Callable[..., Topic], tmp_path: Path) -> None:
    """A server ends a session that has been idle for an hour."""
    idle = {"defaultSessionTimeout": "15s", "maintenanceInterval": "1s"}
    settings = {"spark.master": "local[2]", **{f"spark.connect.session.manager.{k}": v for k, v in idle.items()}}
    made, sent = ConnectServer(tmp_path, sys.executable, settings), filled(topic)
    with contextlib.closing(made), contextlib.closing(Spark(tmp_path, made.properties)) as spark:
        spark.insist(sent, tmp_path / "first")
        time.sleep(20)
        error = spark.run(sent, tmp_path / "idle")["error"]
        assert error.startswith("EngineLostError: Spark is gone, and is started again: ")
        assert "INVALID_HANDLE.SESSION_" in error
        spark.insist(sent, tmp_path / "again")
