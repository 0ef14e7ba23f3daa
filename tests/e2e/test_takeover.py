"""The Java sink and calving in one place, one after the other and together: nothing lost, nothing twice."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from calving.services.process import Process
from harness.run import Run
from tests.e2e.connect import ConnectWorker, shared_run

pytestmark = [pytest.mark.services, pytest.mark.java]


@pytest.fixture
def run(servers: str, tmp_path: Path, unique: str) -> Iterator[Run]:
    made = shared_run(tmp_path, servers, unique)
    yield made
    made.close()


@pytest.fixture
def connect(run: Run) -> Iterator[Callable[[], ConnectWorker]]:
    """Starts workers of Kafka Connect that run the run's connector."""
    made: list[ConnectWorker] = []

    def start() -> ConnectWorker:
        made.append(ConnectWorker(run, len(made)))
        return made[-1]

    yield start
    for worker in made:
        worker.process.stop()
        print("---", *worker.process.log.read_text(errors="replace").splitlines()[-15:], sep="\n")


def calving(*arguments: object, seconds: float = 120) -> tuple[int, str]:
    """What ``calving`` returns and prints."""
    command = [sys.executable, "-c", "from calving.cli.main import main; main()", *map(str, arguments)]
    env = {**os.environ, "CALVING_LOG_LEVEL": "ERROR"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, env=env)
    return done.returncode, done.stdout + done.stderr


def commits_of(run: Run) -> list[str]:
    """Who has made the commits of a table, in their order."""
    snapshots = run.catalog.load_table("db.even").metadata.snapshots
    by_calving = ["calving.source-offsets" in dict(s.summary.additional_properties) for s in snapshots if s.summary]
    return ["calving" if ours else "java" for ours in by_calving]


def wait_for_a_commit(run: Run, of: str, seconds: float = 150) -> None:
    """Records go on until there is a commit that ``of`` has made last."""
    deadline = time.monotonic() + seconds
    while True:
        run.produce(20, 40)
        with contextlib.suppress(Exception):  # the table is not there yet
            if commits_of(run)[-1] == of:
                return
        assert time.monotonic() < deadline, f"no commit of {of}"


def test_over_to_calving_with_the_files_that_connect_has_and_back(
    run: Run, connect: Callable[[], ConnectWorker], tmp_path: Path
) -> None:
    java = connect()
    wait_for_a_commit(run, "java")
    connector = tmp_path / "connector.json"
    connector.write_text(json.dumps(java.answer()))
    files = connector, "--worker", java.properties
    code, text = calving("takeover", *files)
    assert (code, "2 tasks of the Java sink" in text) == (0, True), text
    java.stop_connector()
    run.produce(500)
    code, text = calving("takeover", *files)
    assert (code, "no task of the Java sink runs" in text) == (0, True), text
    code, text = calving("run", *files, "--until-caught-up")
    assert code == 0, text
    assert commits_of(run)[-1] == "calving"
    run.assert_exactly_once()
    java.resume()
    wait_for_a_commit(run, "java")
    run.wait_until_committed(150)
    run.assert_exactly_once()


def test_what_a_killed_connect_worker_announced_is_committed_by_calving(
    run: Run, connect: Callable[[], ConnectWorker]
) -> None:
    java = connect()
    wait_for_a_commit(run, "java")
    run.produce(700, 350)
    java.process.kill()
    run.start()
    run.produce(700)
    run.wait_until_committed(150)
    run.stop()
    run.assert_exactly_once()
    assert commits_of(run)[-1] == "calving"


def test_a_killed_calving_worker_leaves_its_place_to_connect(run: Run, connect: Callable[[], ConnectWorker]) -> None:
    ours = run.start("publish:after:2")
    assert run.produce_until_it_dies(ours)
    connect()
    wait_for_a_commit(run, "java")
    run.wait_until_committed(150)
    run.assert_exactly_once()


def test_what_a_killed_calving_worker_has_landed_is_committed_by_connect(
    run: Run, connect: Callable[[], ConnectWorker]
) -> None:
    keys = json.loads(run.config.read_text())
    keys |= {"iceberg.tables.landing": "unpartitioned", "iceberg.tables.default-partition-by": "bucket(id, 50)"}
    run.config.write_text(json.dumps(keys))
    ours = run.start("publish:after:2")
    assert run.produce_until_it_dies(ours)
    connect()
    wait_for_a_commit(run, "java")
    run.wait_until_committed(150)
    run.assert_exactly_once()
    files = run.catalog.load_table("db.even").inspect.data_files()
    assert set(files["spec_id"].to_pylist()) == {0, 1}


def test_a_fleet_is_replaced_worker_by_worker_and_loses_members_on_the_way(
    run: Run, connect: Callable[[], ConnectWorker]
) -> None:
    first = connect()
    # A Java coordinator that takes over before its group's first commit skips what was published until then.
    wait_for_a_commit(run, "java")
    second = connect()
    run.produce(600, 300)
    ours = run.start()
    run.produce(600, 300)
    kill(run, first.process)
    replaced = run.start()
    run.produce(600, 300)
    kill(run, ours)
    second.process.stop()
    wait_for_a_commit(run, "calving")
    assert replaced.returncode is None
    run.wait_until_committed(150)
    run.stop()
    run.assert_exactly_once()


def kill(run: Run, process: Process) -> None:
    process.kill()
    run.produce(300, 300)
