"""A worker that ends with an error says so in the control log, on every backend."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from calving.cli.status import status
from calving.engine.interface import LocalEngine
from calving.errors import BadRecordError
from calving.runtime.app import App
from calving.settings.load import load
from harness.topic import Topic
from harness.waiting import wait_for
from tests.cli.commands import Cli

pytestmark = pytest.mark.services


@pytest.fixture
def sink(topic: Callable[..., Topic], keys: dict[str, str], tmp_path: Path, unique: str) -> Cli:
    """A sink that has committed everything."""
    made = Cli(tmp_path, topic(), unique)
    made.keys |= keys
    made.send(0, 10)
    made.run_here()
    return made


def test_a_worker_that_ends_with_an_error_leaves_its_sink_not_well_until_a_cycle_ends(sink: Cli) -> None:
    assert status(load(sink.config)).health == "OK"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        sink.keys["iceberg.http.port"] = port = taken.getsockname()[1]
        sink.run("run", code=2)
    sentence = f"a worker on {socket.gethostname()} ended at "
    shown = sink.run("status", "--json", code=3)
    told = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
    assert (told["health"], told["not_visible"], told["workers"]) == ("DEGRADED", 0, 0)
    (reason,) = told["reasons"]
    assert (
        reason.startswith(sentence)
        and f"no commit cycle has ended since: iceberg.http.port: the server cannot listen on 127.0.0.1:{port}"
        in reason
    )
    del sink.keys["iceberg.http.port"]
    sink.run_here()
    assert status(load(sink.config)).health == "OK"
    sink.assert_exactly_once(10)


def test_a_worker_that_hangs_leaves_its_sink_not_well_although_it_is_a_member(
    topic: Callable[..., Topic], tmp_path: Path, unique: str
) -> None:
    sink = Cli(tmp_path, topic(), unique)
    sink.keys |= {"iceberg.control.commit.timeout-ms": 1000, "kafka.session.timeout.ms": 30_000}
    sink.send(0, 10)
    worker = sink.started()
    try:
        wait_for(lambda: status(load(sink.config)).health == "OK")
        worker.signal(signal.SIGSTOP)
        wait_for(lambda: status(load(sink.config)).health == "DEGRADED")
        (reason,) = status(load(sink.config)).reasons
        assert re.fullmatch(r"1 worker is in the group, but for \d+ s no commit cycle has begun or ended", reason)
        worker.signal(signal.SIGCONT)
        wait_for(lambda: status(load(sink.config)).health == "OK")
    finally:
        worker.kill()


def test_secrets_and_values_are_masked_in_the_end_of_a_worker(sink: Cli) -> None:
    sink.keys |= {"kafka.ssl.key.password": "pa55word-1", "iceberg.catalog.s3.secret-access-key": "t0ken-of-mine"}
    sink.keys |= {"iceberg.catalog.s3.access-key-id": "AKIA-of-mine"}

    def fail(_: object) -> None:
        raise RuntimeError("pa55word-1 and t0ken-of-mine\nat https://me:secret@host/")

    with pytest.raises(RuntimeError):
        App(load(sink.config), LocalEngine()).run(on_progress=fail)
    (reason,) = status(load(sink.config)).reasons
    assert reason.endswith(": RuntimeError: *** and ***")
    sink.topic.send(b'{"id": "value of a customer"}')
    with pytest.raises(BadRecordError, match="value of a customer"):
        sink.run_here()
    _, reason = status(load(sink.config)).reasons
    place = f"topic '{sink.topic.name}', partition 0, offset 10"
    assert reason.endswith(f": {place}: a bad record; the worker's log has the reason")
