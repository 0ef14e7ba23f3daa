"""The status server of a running worker."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from calving.cli.accept import accept
from calving.cli.status import status
from calving.engine.interface import LocalEngine
from calving.errors import FencedError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.commit import IcebergCommitter
from calving.model.events import Envelope, TableId
from calving.protocol.coordinator import Committed, Failed
from calving.protocol.effects import CommitTables
from calving.protocol.worker import WorkerMachine
from calving.runtime.app import App
from calving.serving.metrics import METRICS
from calving.settings.load import load
from calving.source.client import client_config
from calving.source.interface import Listener
from calving.source.kafka import KafkaGroup
from calving_kafka.cursor import KafkaCursor
from calving_kafka.session import KafkaSession
from harness.heads import row_count
from harness.topic import Topic
from harness.waiting import wait_for
from tests.cli.commands import Cli
from tests.serving.collector import collecting, values
from tests.serving.sinks import TOKEN, Client
from tests.tasks.conftest import encode

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def cli(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    made = Cli(tmp_path, topic(), unique)
    made.keys |= {
        "iceberg.http.port": 0,
        "iceberg.http.token": TOKEN,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"dead-{unique}",
    }
    made.send(0, 100)
    return made


@contextlib.contextmanager
def running(cli: Cli) -> Iterator[Client]:
    app = App(load(cli.config), LocalEngine())
    worker = threading.Thread(target=app.run)
    worker.start()
    try:
        wait_for(lambda: app.url is not None)
        yield Client(str(app.url))
    finally:
        app.stop()
        worker.join()


def sums(client: Client) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_a_worker_tells_what_it_reads_and_commits_and_does_what_it_is_told(cli: Cli) -> None:
    with running(cli) as client:
        wait_for(lambda: client.get("/readyz").code == 200)
        wait_for(lambda: sums(client).get("calving_commit_lag_records") == 0)
        cli.topic.send(b"{", b'{"id": 100}')
        wait_for(lambda: sums(client)["calving_records_read_total"] == 102)
        wait_for(lambda: sums(client).get("calving_commit_lag_records") == 0)
        found = sums(client)
        assert found["calving_records_written_total"] == 101
        assert found["calving_records_dead_lettered_total"] == 1
        assert found["calving_leader"] == found["calving_assigned_partitions"] == 1
        brokers = AdminClient(client_config({"bootstrap.servers": cli.topic.servers}))
        assert client.get("/").json["kafka_cluster_id"] == brokers.describe_cluster().result().cluster_id
        (table,) = client.get("/api/tables").json
        assert (table["table"], table["buffered_files"], table["failures"]) == ("db.t", 0, 0)
        assert time.time() - table["committed_at"] < 60
        assert client.get(f"/connectors/{cli.name}/offsets").json["offsets"][0]["offset"] == {"kafka_offset": 102}
        _pause_and_go_on(cli, client)
    cli.assert_exactly_once(111)


def _pause_and_go_on(cli: Cli, client: Client) -> None:
    connector = f"/connectors/{cli.name}"
    assert client.ask("PUT", f"{connector}/pause", **BEARER).code == 202
    wait_for(lambda: client.get(f"{connector}/status").json["connector"]["state"] == "PAUSED")
    cycles = sums(client)["calving_commit_cycles_total"]
    cli.send(101, 111)
    wait_for(lambda: sums(client)["calving_commit_cycles_total"] > cycles + 1)
    wait_for(lambda: sums(client)["calving_source_lag_records"] == 10)
    assert sums(client)["calving_records_read_total"] == 102
    (reason,) = client.get("/api/status").json["reasons"]
    assert reason["cause"] == "paused"
    assert status(load(cli.config)).reasons == [reason["text"]]
    assert client.ask("POST", f"{connector}/restart", **BEARER).code == 204
    wait_for(lambda: sums(client)["calving_restarts_total"] == 1)
    assert client.ask("PUT", f"{connector}/resume", **BEARER).code == 202
    wait_for(lambda: sums(client).get("calving_commit_lag_records") == 0)


def test_a_catalog_that_does_not_answer_leaves_every_answer_quick(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.run_here()
    hung = threading.Event()
    catalog = type(open_catalog("iceberg", cli.catalog_keys))
    load_table = catalog.load_table
    monkeypatch.setattr(catalog, "load_table", lambda *arguments: hung.wait(60) and load_table(*arguments))
    try:
        with running(cli) as client:
            time.sleep(1)
            for path in ("/", "/metrics", "/healthz", "/readyz", "/connectors", "/api/status", "/api/tables"):
                client.get(path)
                took = []
                for _ in range(5):
                    started = time.perf_counter()
                    code = client.get(path).code
                    took.append(time.perf_counter() - started)
                assert min(took) < 0.05, path
                assert code == (503 if path == "/readyz" else 200)
            hung.set()
    finally:
        hung.set()


def test_a_loop_that_stands_still_is_unhealthy_within_three_of_its_steps(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calving.runtime.app._STEP_SECONDS", 2.0)
    hung, poll = threading.Event(), KafkaGroup.poll
    hung.set()

    def hanging(self: KafkaGroup, timeout: float, listener: Listener) -> None:
        hung.wait(60)
        poll(self, timeout, listener)

    monkeypatch.setattr(KafkaGroup, "poll", hanging)
    try:
        with running(cli) as client:
            wait_for(lambda: client.get("/readyz").code == 200)
            assert client.get("/healthz").code == 200
            hung.clear()
            stopped = time.monotonic()
            wait_for(lambda: client.get("/healthz").code == 503)
            assert 5.0 < time.monotonic() - stopped < 8.0
            hung.set()
            wait_for(lambda: client.get("/healthz").code == 200)
    finally:
        hung.set()


def test_a_worker_that_does_not_lead_knows_where_the_one_is_that_does(cli: Cli) -> None:
    with running(cli) as first, running(cli) as second:
        clients = [first, second]
        wait_for(lambda: sorted(sums(c).get("calving_leader", -1) for c in clients) == [0, 1])
        led, leads = sorted(clients, key=lambda c: sums(c)["calving_leader"])
        wait_for(lambda: led.get("/api/status").json["leader"]["url"] == leads.url)
        answer = led.ask("POST", f"/connectors/{cli.name}/commit", **BEARER)
        assert answer.code == 409 and f"at {leads.url}" in answer.json["message"]
        wait_for(lambda: leads.get("/api/status").json["leader"]["url"] == leads.url)


def test_a_leader_is_not_ready_until_it_has_heard_the_control_log(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    released, read = threading.Event(), KafkaCursor.read

    def slow(self: KafkaCursor, timeout: float) -> Sequence[Envelope]:
        if self._transactions is not None and not released.wait(timeout):
            return ()
        return read(self, timeout)

    monkeypatch.setattr(KafkaCursor, "read", slow)
    with running(cli) as client:
        wait_for(lambda: sums(client).get("calving_leader") == 1)
        answer = client.get("/readyz")
        assert (answer.code, answer.json["reasons"]) == (503, ["the control log has not been read to its end yet"])
        released.set()
        wait_for(lambda: client.get("/readyz").code == 200)


def test_a_collector_of_opentelemetry_gets_what_a_run_has_read(cli: Cli) -> None:
    with collecting() as collector:
        cli.keys["iceberg.otel.endpoint"] = collector.url
        cli.run_here()
        read = values(collector.metrics["calving_records_read_total"])
    assert read == {(cli.topic.name,): 100}


def test_the_environment_switches_the_export_off(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with collecting() as collector:
        cli.keys["iceberg.otel.endpoint"] = collector.url
        cli.run_here()
        assert collector.requests == []


def test_entries_that_cannot_be_decoded_are_counted_over_restarts(cli: Cli) -> None:
    def spoil(count: int) -> None:
        cli.topic.producer.produce(f"control-{cli.name}", b"garbage", key=b"vandal")
        cli.topic.producer.flush()
        wait_for(lambda: sums(client)["calving_undecodable_entries_total"] == count)

    with running(cli) as client:
        wait_for(lambda: client.get("/readyz").code == 200)
        spoil(1)
        client.ask("POST", f"/connectors/{cli.name}/restart", **BEARER)
        wait_for(lambda: sums(client)["calving_restarts_total"] == 1 and client.get("/readyz").code == 200)
        spoil(2)


def test_every_metric_gets_a_value_in_a_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is declared and never set would be missed by nobody but the person who needs it."""
    let, commit = threading.Event(), IcebergCommitter.commit

    def held(self: IcebergCommitter, request: CommitTables) -> Iterable[tuple[TableId, Committed | Failed]]:
        let.wait(60)
        return commit(self, request)

    cli.keys |= {
        "iceberg.tables.upsert-mode-enabled": True,
        "iceberg.tables.default-id-columns": "id",
        "iceberg.source.on-data-loss": "skip",
        "iceberg.maintenance.enabled": True,
    }
    cli.run_here()
    cli.send(100, 120)
    cli.move(110)
    monkeypatch.setattr(IcebergCommitter, "commit", held)
    declared, seen = {metric.name for metric in METRICS}, set[str]()

    def missing() -> set[str]:
        seen.update(name.removesuffix("_count") for name in sums(client))
        return declared - seen

    with running(cli) as client:
        wait_for(lambda: "calving_table_oldest_buffered_timestamp_seconds" not in missing())
        let.set()
        wait_for(lambda: "calving_records_passed_over_total" not in missing())
        assert len(list(accept(load(cli.config)))) == 1
        wait_for(lambda: missing() is not None and sums(client).get("calving_commit_lag_records") == 0)
        cli.topic.send(b"{", b"{", b'{"id": 1}', b'{"id": 1}', None)
        wait_for(lambda: missing() is not None and sums(client)["calving_records_read_total"] == 15)
        wait_for(lambda: missing() is not None and sums(client).get("calving_commit_lag_records") == 0)
        connector = f"/connectors/{cli.name}"
        client.ask("PUT", f"{connector}/pause", **BEARER)
        wait_for(lambda: client.get(f"{connector}/status").json["connector"]["state"] == "PAUSED")
        cli.send(121, 131)
        gone = [KafkaPartition(cli.topic.name, 0, -1)]
        cli.topic.admin.delete_records(gone)[gone[0]].result()
        wait_for(lambda: sums(client).get("calving_records_lost_total") == 10)
        wait_for(lambda: not [name for name in missing() if name.startswith("calving_maintenance")])
        assert missing() == set()


def causes(client: Client) -> set[str]:
    return {reason["cause"] for reason in client.get("/api/status").json["reasons"]}


def test_a_running_worker_tells_its_causes_and_when_they_are_gone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.keys["iceberg.control.commit.timeout-ms"] = 2000

    def refuse(*_: object) -> None:
        raise FencedError("refused")

    with running(cli) as client:
        wait_for(lambda: client.get("/readyz").code == 200)
        for cause, part, name, broken in (
            ("publication-refused", KafkaSession, "publish", refuse),
            ("cycle-incomplete", WorkerMachine, "heard", lambda *_: None),
            ("control-log-behind", KafkaSession, "lead", lambda *_: False),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(part, name, broken)
                wait_for(lambda cause=cause: cause in causes(client))  # type: ignore[misc]
            wait_for(lambda: not causes(client))
        cli.topic.send(*[b"{"] * 50)
        wait_for(lambda: "dead-letter-share" in causes(client))


def test_one_broken_table_of_twenty_is_named_and_the_others_go_on(cli: Cli) -> None:
    """Its metadata is gone for a while; the worker starts over meanwhile, as after a rebalance."""
    names = [f"t{n:02}" for n in range(20)]
    cli.keys |= {"iceberg.tables": ",".join(f"db.{name}" for name in names), "iceberg.tables.route-field": "to"}
    cli.keys |= {f"iceberg.table.db.{name}.route-regex": name for name in names}
    cli.keys["iceberg.tables.on-unrouted"] = "skip"
    catalog = open_catalog("iceberg", cli.catalog_keys)
    metadata, away = cli.folder / "warehouse" / "db" / "t07" / "metadata", cli.folder / "away"

    def rows(name: str) -> int:
        return row_count(catalog, f"db.{name}")

    def send() -> None:
        cli.topic.send(*encode(*({"id": n, "to": name} for n, name in enumerate(names))))

    with running(cli) as client:
        send()
        wait_for(lambda: rows("t19") == rows("t07") == 1)
        metadata.rename(away)
        send()
        wait_for(lambda: {r["subject"] for r in client.get("/api/status").json["reasons"]} == {"db.t07"})
        assert client.get("/readyz").code == 200
        client.ask("POST", f"/connectors/{cli.name}/restart", **BEARER)
        wait_for(lambda: sums(client)["calving_restarts_total"] == 1)
        send()
        wait_for(lambda: all(rows(name) == 3 for name in names if name != "t07"))
        assert client.get("/readyz").code == 200
        away.rename(metadata)
        wait_for(lambda: rows("t07") == 3 and not causes(client))
