"""``import calving``: what a script or a notebook does with a sink."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import calving
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.tasks.conftest import encode


@pytest.fixture
def cli(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    made = topic(partitions=2)
    made.send(*encode(*({"id": i} for i in range(100))))
    return Cli(tmp_path, made, unique)


def test_a_script_loads_a_sink_and_runs_it_until_it_has_caught_up(cli: Cli) -> None:
    worker = calving.Worker(calving.load(cli.config))
    worker.run(until_caught_up=True)
    assert cli.rows() == 100
    assert worker.progress.committed_records == 100


def test_settings_may_be_nested_and_hold_values_of_python(cli: Cli) -> None:
    nested = {"iceberg": {"tables": ["db.a", "db.b"]}, "kafka": {"bootstrap.servers": "h:1"}}
    sink = calving.build({"name": "s", "topics": ["t"], **nested})
    assert sink.keys.tables == ("db.a", "db.b")


def test_a_notebook_watches_a_worker_and_stops_it(cli: Cli) -> None:
    with calving.Worker(calving.build(cli.keys)) as worker:
        deadline = time.monotonic() + 60
        while worker.progress.committed_records < 100 and time.monotonic() < deadline:
            assert not worker.join(0.2)
    assert worker.join()
    assert cli.rows() == 100


def test_validate_tells_what_is_in_order(cli: Cli) -> None:
    assert "table db.t: will be created" in calving.validate(calving.build(cli.keys))


def test_validate_raises_what_is_not(cli: Cli) -> None:
    sink = calving.build(cli.keys | {"iceberg.tables.auto-create-enabled": False})
    with pytest.raises(calving.ConfigError, match=r"table db\.t does not exist"):
        calving.validate(sink)


def test_an_error_that_ends_a_worker_in_its_thread_is_raised_to_who_waits(cli: Cli) -> None:
    cli.topic.send(b"no JSON", partition=1)
    worker = calving.Worker(calving.build(cli.keys))
    worker.start(until_caught_up=True)
    with pytest.raises(calving.BadRecordError, match="partition 1, offset 0"):
        worker.join(60)


def test_progress_is_a_copy(cli: Cli) -> None:
    worker = calving.Worker(calving.build(cli.keys))
    before = worker.progress
    worker.run(until_caught_up=True)
    assert before.read == 0


def test_a_worker_starts_once(cli: Cli) -> None:
    with calving.Worker(calving.build(cli.keys)) as worker, pytest.raises(RuntimeError, match="make another one"):
        worker.start()


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, calving; print(any(name.startswith('calving.') and name != 'calving.version' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"


def test_every_public_name_is_there() -> None:
    assert all(getattr(calving, name) for name in calving.__all__)
