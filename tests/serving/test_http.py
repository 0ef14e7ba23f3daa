"""The endpoints: what they answer, to whom, and how fast."""

from __future__ import annotations

import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from calving.errors import CalvingError, CommandFailedError, ConfigError, DataLossError, UnavailableError
from calving.model.events import Leader
from calving.serving.server import StatusServer
from calving.status.remedies import REMEDIES
from calving.status.values import LogStatus, Status
from tests.serving.sinks import NOW, TOKEN, Client, Worker, not_leading, serving, sink, status
from tests.tls import Authority

READS = (
    "/",
    "/on-call",
    "/metrics",
    "/healthz",
    "/readyz",
    "/connectors",
    "/connectors?expand=status&expand=info",
    "/connector-plugins",
    "/connectors/orders",
    "/connectors/orders/status",
    "/connectors/orders/config",
    "/connectors/orders/tasks",
    "/connectors/orders/topics",
    "/connectors/orders/offsets",
    "/api/status",
    "/api/tables",
    "/api/tables/db.t000",
    "/api/events",
    "/api/partitions",
    "/api/partitions/orders/0",
    "/api/commits",
    "/api/history?age=db.t000&lag=orders-0",
    "/admin/loggers/calving",
)
KNOWN = ("/api/tables/db.t000", "/api/partitions/orders/0")
"""Paths that a worker answers once it knows this table and this partition."""
CHANGES = (
    ("PUT", "/connectors/orders/stop", 204),
    ("PUT", "/connectors/orders/pause", 202),
    ("PUT", "/connectors/orders/resume", 202),
    ("POST", "/connectors/orders/restart", 204),
    ("POST", "/connectors/orders/commit", 202),
)
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def worker() -> Worker:
    return Worker(status(time.time()))


@pytest.fixture(scope="module")
def client(worker: Worker) -> Iterator[Client]:
    with serving(worker) as found:
        yield found


@pytest.fixture(scope="module")
def trusted(worker: Worker) -> Iterator[Client]:
    with serving(worker, sink(**{"iceberg.http.token": TOKEN})) as found:
        yield found


@pytest.mark.parametrize("path", READS)
def test_what_is_read_is_answered_without_a_secret(path: str, trusted: Client) -> None:
    answer = trusted.get(path)
    assert answer.code == 200
    assert "hunter2" not in answer.text and TOKEN not in answer.text


def test_a_configuration_is_shown_with_its_secrets_masked(client: Client) -> None:
    config = client.get("/connectors/orders/config").json
    assert config["kafka.sasl.password"] == config["iceberg.catalog.token"] == "***"
    assert config["iceberg.notify.webhook-url"] == "***"
    assert config["iceberg.catalog.uri"] == "https://***@catalog.example.com"
    assert config["topics"] == "orders"


@pytest.mark.parametrize(("method", "path", "code"), [*CHANGES, ("PUT", "/admin/loggers/calving", 200)])
def test_a_change_needs_the_token(method: str, path: str, code: int, client: Client, trusted: Client) -> None:
    body = {"level": "INFO"}
    assert client.ask(method, path, body, **BEARER).code == 403
    assert trusted.ask(method, path, body).code == 403
    assert trusted.ask(method, path, body, Authorization="Bearer 0123456789abcdeX").code == 403
    assert trusted.ask(method, path, body, **BEARER).code == code


def test_changes_reach_the_worker(worker: Worker, trusted: Client) -> None:
    worker.told.clear()
    for method, path, _ in CHANGES:
        trusted.ask(method, path, **BEARER)
    assert worker.told == ["STOPPED", "pause", "resume", "RUNNING", "restart", "commit"]


OFFSETS = "/connectors/orders/offsets"
ONE = {"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": 5}}


def stopped() -> Worker:
    found = status(time.time())
    return Worker(replace(found, worker=replace(found.worker, stopped=True, partitions={})))


@pytest.mark.parametrize(("method", "body"), [("PATCH", {"offsets": [ONE]}), ("DELETE", None)])
def test_offsets_change_only_while_the_sink_is_stopped(method: str, body: object, trusted: Client) -> None:
    answer = trusted.ask(method, OFFSETS, body, **BEARER)
    assert (answer.code, answer.json["error_code"]) == (409, 409)
    assert answer.json["message"].startswith("Connectors must be in the STOPPED state")


@pytest.mark.parametrize(("method", "body"), [("PATCH", {"offsets": [ONE]}), ("DELETE", None)])
def test_a_change_of_offsets_needs_the_token(method: str, body: object) -> None:
    worker = stopped()
    with serving(worker, sink(**{"iceberg.http.token": TOKEN})) as client:
        assert client.ask(method, OFFSETS, body).code == 403
    with serving(worker) as client:
        assert client.ask(method, OFFSETS, body, **BEARER).code == 403
    assert not worker.told


def test_a_stopped_sink_answers_in_connects_form() -> None:
    worker = stopped()
    with serving(worker, sink(**{"iceberg.http.token": TOKEN})) as client:
        state = client.get("/connectors/orders/status").json
        assert (state["connector"]["state"], state["tasks"]) == ("STOPPED", [])
        assert client.get("/connectors/orders/tasks").json == []
        assert client.get("/connectors/orders/tasks/0/status").code == 404
        assert client.get("/readyz").code == 200
        stored = [{**ONE, "offset": {"kafka_offset": 7}}]
        assert client.get(OFFSETS).json == {"offsets": stored}
        null = {"partition": {"kafka_topic": "orders", "kafka_partition": "1"}, "offset": None}
        altered = client.ask("PATCH", OFFSETS, {"offsets": [ONE, null]}, **BEARER)
        assert altered.json["message"] == "The offsets for this connector have been altered successfully"
        assert altered.json["calving"] == ["orders-0: back from 7 to 5: 2 offsets to read again"]
        reset = client.ask("DELETE", OFFSETS, **BEARER)
        assert reset.json["message"] == "The offsets for this connector have been reset successfully"
        assert client.ask("POST", "/connectors/orders/restart", **BEARER).code == 409
        assert client.ask("PUT", "/connectors/orders/resume", **BEARER).code == 202
    assert worker.told == ["move {'orders-0': 5, 'orders-1': None}", "move None", "resume", "RUNNING"]


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"offsets": []},
        {"offsets": [1]},
        {"offsets": [{"partition": {"kafka_topic": "orders"}, "offset": None}]},
        {"offsets": [{**ONE, "offset": {"kafka_offset": -1}}]},
        {"offsets": [{**ONE, "offset": {"kafka_offset": True}}]},
        {"offsets": [{**ONE, "offset": {}}]},
        {"offsets": [{**ONE, "offset": 5}]},
        {"offsets": [ONE, ONE]},
        {"offsets": [{"partition": {"kafka_topic": "\ud800", "kafka_partition": 0}, "offset": None}]},
    ],
)
def test_a_body_of_another_form_changes_no_offset(body: object) -> None:
    worker = stopped()
    with serving(worker, sink(**{"iceberg.http.token": TOKEN})) as client:
        assert client.ask("PATCH", OFFSETS, body, **BEARER).code == 400
    assert not worker.told


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (ConfigError("no such offset"), 400),
        (CommandFailedError("the group has 1 member"), 409),
        (DataLossError("the topic was recreated"), 409),
        (UnavailableError("no broker answers"), 503),
    ],
)
def test_a_move_that_is_refused_says_why(refusal: CalvingError, code: int) -> None:
    worker = stopped()
    worker.control.refusal = refusal
    with serving(worker, sink(**{"iceberg.http.token": TOKEN})) as client:
        answer = client.ask("DELETE", OFFSETS, **BEARER)
    assert (answer.code, answer.json) == (code, {"error_code": code, "message": str(refusal)})


def test_other_requests_are_answered_while_offsets_wait_for_a_service() -> None:
    worker, called, answers = stopped(), threading.Event(), threading.Event()

    def move(to: object) -> list[str]:
        called.set()
        assert answers.wait(60)
        return []

    worker.control.move = move  # type: ignore[method-assign]
    with serving(worker, sink(**{"iceberg.http.token": TOKEN})) as client:
        asking = threading.Thread(target=client.ask, args=("DELETE", OFFSETS), kwargs=BEARER)
        asking.start()
        assert called.wait(60)
        for path in ("/connectors/orders/status", OFFSETS, "/api/status"):
            assert client.get(path).code == 200
        answers.set()
        asking.join(60)


def test_a_move_is_answered_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(to: object) -> list[str]:
        time.sleep(3)
        return ["done"]

    worker = stopped()
    monkeypatch.setattr("calving.serving.server.IDLE_SECONDS", 1.0)
    monkeypatch.setattr(worker.control, "move", slow)
    with serving(worker, sink(**{"iceberg.http.token": TOKEN})) as client:
        assert client.ask("DELETE", OFFSETS, **BEARER).json["calving"] == ["done"]


def test_a_commit_is_not_begun_by_a_worker_that_does_not_lead() -> None:
    with serving(Worker(not_leading(status())), sink(**{"iceberg.http.token": TOKEN})) as client:
        answer = client.ask("POST", "/connectors/orders/commit", **BEARER)
        assert (answer.code, answer.json["error_code"]) == (409, 409)
        assert "the leader is unknown" in answer.json["message"]
        assert answer.json["leader"] == {"member": None, "host": None, "url": None}


@pytest.mark.parametrize(
    ("url", "text"), [("https://k2:8083/", "at https://k2:8083/"), ("", "which has no status server")]
)
def test_a_worker_that_does_not_lead_says_who_does(url: str, text: str) -> None:
    found = not_leading(status())
    found = replace(found, log=replace(found.log, leader=Leader("m-2", "k2", url)))
    with serving(Worker(found), sink(**{"iceberg.http.token": TOKEN})) as client:
        answer = client.ask("POST", "/connectors/orders/commit", **BEARER)
        assert answer.code == 409 and "Location" not in answer.headers
        assert answer.json["message"] == f"this worker does not lead; worker m-2 on k2 does, {text}"
        leader = {"member": "m-2", "host": "k2", "url": url or None}
        assert answer.json["leader"] == client.get("/api/status").json["leader"] == leader
        assert client.get("/connectors/orders/status").json["calving"]["leader"] == leader


@pytest.mark.parametrize(
    ("keys", "url"),
    [
        ({}, "http://127.0.0.1:{port}/"),
        ({"iceberg.http.host": "0.0.0.0"}, f"http://{socket.gethostname()}:{{port}}/"),
        ({"iceberg.http.advertised-url": "https://proxy/orders/"}, "https://proxy/orders/"),
    ],
)
def test_others_are_told_an_address_that_they_can_reach(keys: dict[str, str], url: str) -> None:
    server = StatusServer(sink(**{"iceberg.http.token": TOKEN, **keys}), Worker(status()))
    try:
        assert server.advertised == url.format(port=server.address.rpartition(":")[2])
    finally:
        server.close()


@pytest.mark.parametrize("url", ["kafka-1:8083", "javascript:alert(1)", "https://user:password@kafka-1/"])
def test_an_advertised_url_is_one_of_the_web_without_a_login(url: str) -> None:
    with pytest.raises(ConfigError, match=r"iceberg\.http\.advertised-url"):
        sink(**{"iceberg.http.advertised-url": url})


def test_another_connector_is_not_found(client: Client) -> None:
    assert client.get("/connectors/other/status").json == {"error_code": 404, "message": "Connector other not found"}


@pytest.mark.parametrize(
    ("method", "path", "code", "message"),
    [
        ("GET", "/connectors/orders/tasks/1/status", 404, "HTTP 404 Not Found"),
        ("POST", "/connectors", 405, "HTTP 405 Method Not Allowed"),
        ("DELETE", "/connectors/orders", 405, "HTTP 405 Method Not Allowed"),
    ],
)
def test_what_is_not_there_is_refused_in_connects_form(
    client: Client, method: str, path: str, code: int, message: str
) -> None:
    assert client.ask(method, path).json == {"error_code": code, "message": message}


def test_another_sites_name_is_not_served(client: Client) -> None:
    assert client.get("/api/status", Host="evil.example.com").code == 400


def test_to_listen_beyond_this_machine_needs_a_token() -> None:
    with pytest.raises(ConfigError, match=r"iceberg\.http\.token"):
        sink(**{"iceberg.http.host": "0.0.0.0"})
    assert sink(**{"iceberg.http.host": "0.0.0.0", "iceberg.http.token": TOKEN})


def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"iceberg\.http\.port: the server cannot listen on 127\.0\.0\.1:{port}: "
        ):
            StatusServer(sink(**{"iceberg.http.port": port}), Worker(status()))


def test_a_loop_that_stands_still_is_not_healthy(worker: Worker, client: Client) -> None:
    assert client.get("/healthz").json == {"status": "ok", "reasons": []}
    worker.stopped["coordinator"] = 200.0
    try:
        answer = client.get("/healthz")
        assert client.get("/connectors/orders/status").json["connector"]["state"] == "FAILED"
    finally:
        worker.stopped.clear()
    assert (answer.code, answer.json["reasons"]) == (503, ["the loop of the coordinator stands still for 200 s"])


def test_one_broken_table_of_twenty_is_named_and_leaves_the_worker_ready_and_healthy() -> None:
    with serving(Worker(status(time.time(), tables=20, broken=1))) as client:
        assert client.get("/readyz").code == client.get("/healthz").code == 200
        health = client.get("/connectors/orders/status").json["calving"]
    assert health["health"] == "DEGRADED"
    (reason,) = health["reasons"]
    assert (reason["cause"], reason["subject"]) == ("table-failing", "db.t000")
    assert "the catalog answers 500" in reason["text"]


def test_a_worker_that_has_not_begun_is_healthy_and_not_ready() -> None:
    with serving(Worker(Status(status().sink))) as client:
        assert client.get("/healthz").code == 200
        answer = client.get("/readyz")
        assert answer.code == 503 and "it has not joined the consumer group" in answer.json["reasons"]
        assert all(client.get(path).code == 200 for path in READS if path not in ("/readyz", *KNOWN))


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"topics": "t", "kafka.bootstrap.servers": "b:1", "iceberg.tables": "db.t"}, "name"),
        (
            {"name": "s", "topics": "t", "kafka.bootstrap.servers": "b:1", "iceberg.tables": "db.t", "topcis": "x"},
            "topcis",
        ),
        (
            {
                "name": "s",
                "topics": "t",
                "kafka.bootstrap.servers": "b:1",
                "iceberg.tables": "db.t",
                "iceberg.control.commit.threads": "many",
            },
            "iceberg.control.commit.threads",
        ),
    ],
)
def test_a_configuration_is_validated_by_key(config: dict[str, str], key: str, trusted: Client) -> None:
    path = "/connector-plugins/calving/config/validate"
    found = trusted.ask("PUT", path, config, **BEARER).json
    assert found["error_count"] == 1
    assert [c["value"]["name"] for c in found["configs"] if c["value"]["errors"]] == [key]


def test_every_answer_is_quick_for_a_sink_with_many_partitions_and_tables() -> None:
    with serving(Worker(status(time.time(), tables=300, partitions=1_000))) as client:
        for path in READS:
            client.get(path)
            bound = 0.1 if path == "/metrics" else 0.05
            assert any(_seconds(client, path) < bound for _ in range(20)), path


def test_a_server_that_nobody_asks_takes_less_than_a_thousandth_of_a_core() -> None:
    others = set(threading.enumerate())  # servers of earlier tests may still be ending
    with serving(Worker(status(time.time(), tables=20, partitions=10))):
        names = ("calving-http", "calving-history")
        threads = [t for t in threading.enumerate() if t.name in names and t not in others]
        assert len({t.name for t in threads}) == 2

        def used() -> float:
            """CPU seconds of these threads, which are all that a port adds to a worker."""
            return sum(time.clock_gettime(time.pthread_getcpuclockid(t.ident or 0)) for t in threads)

        time.sleep(1)  # the first sample is taken, and the connections of the first requests are closed
        before = used()
        time.sleep(5)
        assert used() - before < 0.005


def _seconds(client: Client, path: str) -> float:
    """CPU of this process, server and client: nothing waits for anything else, and the machine may be busy."""
    started = time.process_time()
    client.get(path)
    return time.process_time() - started


def test_metrics_are_read_by_prometheus_in_both_formats(client: Client) -> None:
    plain = {family.name: family for family in prometheus(client.get("/metrics").text)}
    text = client.get("/metrics", Accept="application/openmetrics-text; version=1.0.0").text
    assert text.endswith("# EOF\n")
    families = {family.name: family for family in openmetrics(text)}
    assert families.keys() <= {name.removesuffix("_total") for name in plain}
    lag = {s.labels["partition"]: s.value for s in families["calving_source_lag_records"].samples}
    assert (len(lag), lag["0"]) == (6, 10_000)


def test_a_page_runs_no_script_but_its_own(client: Client) -> None:
    answer = client.get("/", Accept="text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "http:" not in answer.text.replace("http://www.w3.org/2000/svg", "") and "https:" not in answer.text


def test_a_client_of_kafka_connect_that_asks_for_the_root_gets_the_version(client: Client) -> None:
    assert client.get("/").json["version"] == "0.2.0"


def test_statuses_are_told_of_the_time_when_they_are_asked_for() -> None:
    found = status(NOW)
    with serving(Worker(replace(found, log=LogStatus(found.log.tables, NOW)))) as client:
        assert client.get("/api/status").json["health"] == "DEGRADED"
        assert [r["cause"] for r in client.get("/api/status").json["reasons"]] == ["control-log-behind"]


def test_tls_is_served_with_the_files_that_are_given(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    keys = {"iceberg.http.tls-certificate-file": pair.certificate, "iceberg.http.tls-key-file": pair.key}
    server = StatusServer(sink(**keys), Worker(status()))
    try:
        assert server.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(authority.certificate))
        with urllib.request.urlopen(f"{server.url}healthz", timeout=10, context=trusting) as answer:
            assert answer.status == 200
    finally:
        server.close()


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="go together"):
        sink(**{"iceberg.http.tls-key-file": tmp_path / "key.pem"})


def test_a_certificate_that_cannot_be_read_is_said_at_the_start(tmp_path: Path) -> None:
    keys = dict.fromkeys(("iceberg.http.tls-certificate-file", "iceberg.http.tls-key-file"), tmp_path / "nothing.pem")
    with pytest.raises(ConfigError, match=r"iceberg\.http\.tls-certificate-file: .*nothing\.pem"):
        StatusServer(sink(**keys), Worker(status()))


def test_what_commits_did_to_rows_is_told_by_table_and_by_commit() -> None:
    with serving(Worker(status())) as client:
        tables = {t["table"]: t for t in client.get("api/tables").json}
        assert tables["db.t000"]["mutations"] is None
        assert tables["db.t001"]["mutations"]["unmatched"] == 200
        assert tables["db.t001"]["key_cache_bytes"] == 4_096
        (commit,) = (t for t in client.get("api/commits").json[0]["tables"] if t["table"] == "db.t001")
        assert (commit["mutations"]["keys"], commit["mutations"]["superseded"]) == (500, 470)


def test_a_table_is_shown_with_its_commits_and_its_last_hour_and_an_unknown_one_is_not() -> None:
    with serving(Worker(status(tables=60, broken=1))) as client:
        found = client.get("/api/tables/db.t059").json
        assert found["table"]["table"] == "db.t059" and len(found["commits"]) == 20
        assert (found["commits"][0]["outcome"], found["commits"][0]["commit_id"]) == ("done", "c-19")
        assert len(found["history"]["age"]) == len(found["history"]["times"])
        assert client.get("/api/tables/db.t000").json["commits"][0]["reason"] == "the catalog answers 500"
        unknown = client.get("/api/tables/db.other")
        assert (unknown.code, unknown.json["message"]) == (404, "this worker does not know db.other")


def test_a_partition_is_shown_with_its_last_hour_and_one_of_another_worker_is_not() -> None:
    with serving(Worker(status())) as client:
        found = client.get("/api/partitions/orders/3").json
        assert (found["partition"]["position"], found["partition"]["end"]) == (93_000, 100_000)
        assert (found["history"]["lag"], found["history"]["waiting"]) == ([7_000.0], [9_000.0])
        assert client.get("/api/partitions/orders/77").code == client.get("/api/partitions/orders/x").code == 404


def test_what_a_worker_does_not_know_of_its_progress_is_null() -> None:
    with serving(Worker(status(time.time()))) as client:
        progress = client.get("/api/status").json["progress"]
    assert progress["remaining"] == 45_000 and progress["share"] == pytest.approx(0.957, abs=0.001)
    assert progress["pace"] == "catching-up" and progress["rate"] > 0 and progress["seconds_left"] > 0
    with serving(Worker(Status(status().sink))) as client:
        found = client.get("/api/status").json
    assert found["progress"] == dict.fromkeys(("remaining", "share", "rate", "seconds_left")) | {"pace": "unknown"}
    assert [each["trouble"] for each in found["troubles"]] == ["not-ready"]


def test_a_probe_that_fails_says_what_to_do(worker: Worker, client: Client) -> None:
    worker.stopped["worker"] = 200.0
    try:
        answer = client.get("/healthz").json
    finally:
        worker.stopped.clear()
    assert answer["help"] == "docs/how-to/on-call.md#loop-stopped" and answer["command"] and answer["meaning"]


def test_the_page_for_those_who_are_on_call_has_each_reason_and_runs_no_script(client: Client) -> None:
    answer = client.get("/on-call", Accept="text/html")
    assert all(f'<section id="{reason}">' in answer.text for reason in REMEDIES)
    assert "script-src" not in answer.headers["content-security-policy"] and "<script" not in answer.text
    assert "http:" not in answer.text and "https:" not in answer.text
