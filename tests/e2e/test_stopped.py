"""A sink that an operator stops over its status server: its workers leave, their processes answer, positions move."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_connect import KafkaConnect

from calving.cli.status import status
from calving.engine.interface import LocalEngine
from calving.errors import ConfigError
from calving.protocol.target_state import TargetStateInUse
from calving.runtime.app import App
from calving.runtime.stopping import Leaving
from calving.services.process import free_port
from calving.settings.load import load
from calving.source.members import members
from harness.waiting import wait_for
from tests.cli.commands import Cli
from tests.serving.sinks import TOKEN, Client

pytestmark = pytest.mark.services
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Served:
    """A worker of the sink in a thread of this process, and a client of its server."""

    def __init__(self, sink: Cli) -> None:
        port = free_port()
        sink.keys |= {"iceberg.http.port": port, "iceberg.http.token": TOKEN}
        self.path, self.app = f"/connectors/{sink.name}", App(load(sink.config), LocalEngine())
        self.client = Client(f"http://127.0.0.1:{port}/")
        self.connect = KafkaConnect(f"http://127.0.0.1:{port}", auth=f"calving:{TOKEN}")
        self._thread = threading.Thread(target=self.app.run, daemon=True)
        self._thread.start()

    def state(self) -> str:
        with contextlib.suppress(OSError):
            return str(self.client.get(f"{self.path}/status").json["connector"]["state"])
        return ""

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return self.client.ask(method, self.path + path, body, **BEARER)

    def wait_for(self, state: str) -> None:
        wait_for(lambda: self.state() == state)

    def end(self) -> None:
        self.app.stop()
        self._thread.join(120)
        assert not self._thread.is_alive()


@pytest.fixture
def serve(sink: Cli) -> Iterator[Callable[[], Served]]:
    made: list[Served] = []

    def start() -> Served:
        made.append(Served(sink))
        return made[-1]

    yield start
    for each in made:
        each.end()


def offset(sink: Cli, at: int | None) -> dict[str, object]:
    partition = {"kafka_topic": sink.topic.name, "kafka_partition": 0}
    return {"partition": partition, "offset": None if at is None else {"kafka_offset": at}}


def test_a_stopped_sink_stays_stopped_and_its_offsets_move_until_it_is_resumed(
    sink: Cli, serve: Callable[[], Served]
) -> None:
    loaded = load(sink.config)
    first = serve()
    sink.send(300, 320)
    wait_for(lambda: first.state() == "RUNNING" and first.app.progress.held)
    assert first.ask("PATCH", "/offsets", {"offsets": [offset(sink, 10)]}).code == 409
    first.connect.stop_connector(sink.name)
    first.wait_for("STOPPED")
    assert not members(loaded.kafka, loaded.group)
    sink.send(320, 330)
    assert any("the sink was stopped" in reason for reason in status(loaded).reasons)
    first.end()
    with pytest.raises(ConfigError, match="the sink was stopped"):
        sink.run_here()
    again = serve()
    again.wait_for("STOPPED")
    (stored,) = again.ask("GET", "/offsets").json["offsets"]
    assert stored["offset"]["kafka_offset"] in (300, 320)
    answer = again.ask("PATCH", "/offsets", {"offsets": [offset(sink, 325)]})
    assert answer.code == 200, answer.text
    assert again.ask("GET", "/offsets").json == {"offsets": [offset(sink, 325)]}
    assert again.state() == "STOPPED"
    sink.recover_here()
    again.connect.resume_connector(sink.name)
    again.wait_for("RUNNING")
    wait_for(lambda: again.app.progress.committed_records)
    again.end()
    sink.run_here()
    kept = stored["offset"]["kafka_offset"]
    assert Counter(sink.ids()) == Counter([*range(kept), *range(325, 330)])


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_offsets_that_are_reset_begin_at_the_beginning_and_tables_skip_what_they_hold(
    sink: Cli, serve: Callable[[], Served]
) -> None:
    worker, other = serve(), serve()
    wait_for(lambda: worker.app.progress.held or other.app.progress.held)
    worker.connect.stop_connector(sink.name)
    worker.wait_for("STOPPED")
    other.wait_for("STOPPED")
    lines = other.ask("DELETE", "/offsets").json["calving"]
    assert lines[0] == f"{sink.topic.name}-0: back from 300 to 0: 300 offsets to read again"
    assert worker.ask("PATCH", "/offsets", {"offsets": [offset(sink, 301)]}).code == 400
    assert worker.ask("PATCH", "/offsets", {"offsets": [offset(sink, None)]}).code == 200
    other.connect.resume_connector(sink.name)
    worker.wait_for("RUNNING")
    sink.send(300, 310)
    wait_for(lambda: len(sink.ids()) == 310)
    assert Counter(sink.ids()) == Counter(range(310))


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_worker_of_a_sink_that_is_resumed_while_it_leaves_goes_on(
    sink: Cli, serve: Callable[[], Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And resume is told even where the worker has not heard of the stop."""
    left = threading.Event()

    def resumed(self: Leaving, *args: object, **leads: bool) -> bool:
        if not left.is_set():
            left.set()
            worker.app._reporter.table_states.target = TargetStateInUse()
            assert worker.ask("PUT", "/resume").code == 202
        self.has_left = True
        return True

    monkeypatch.setattr(Leaving, "may_leave", resumed)
    worker = serve()
    wait_for(lambda: worker.app.progress.held)
    assert worker.ask("PUT", "/stop").code == 204
    assert left.wait(60)
    sink.send(300, 310)
    wait_for(lambda: len(sink.ids()) == 310)
    worker.wait_for("RUNNING")
