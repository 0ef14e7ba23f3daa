"""Kafka Connect's REST, as its clients read it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka_connect import KafkaConnect

from calving.serving import connect
from calving.status.values import Status
from tests.serving.sinks import NOW, TOKEN, Client, Worker, serving, sink, status

GOLDEN = Path(__file__).parents[1] / "goldens" / "connect.json"


def answers() -> dict[str, Any]:
    """Of a sink that is well, of one that is not, and of a configuration with an error."""
    starting = Status(status().sink)
    starting = replace(
        starting, worker=replace(starting.worker, error="UnavailableError: no broker answers", restarts=1)
    )
    return {
        "info": connect.info(sink(), status()),
        "status": connect.state(status(partitions=1), {}, "127.0.0.1:8083", NOW),
        "degraded": connect.state(status(broken=1), {}, "127.0.0.1:8083", NOW),
        "stands still": connect.state(status(), {"worker": 61.0}, "127.0.0.1:8083", NOW),
        "starting over": connect.state(starting, {}, "127.0.0.1:8083", starting.sink.started_at),
        "offsets": connect.offsets(status(partitions=1)),
        "plugins": connect.plugins("0.2.0"),
        "validated": connect.validated({"name": "s", "topics": "t", "topcis": "x", "kafka.bootstrap.servers": "b:1"}),
    }


def test_the_answers_keep_their_shape() -> None:
    assert answers() == json.loads(GOLDEN.read_text())


def test_a_secret_that_a_configuration_names_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVING_SECRET", "hunter2")
    found = connect.validated(
        {
            "name": "s",
            "topics": "t",
            "iceberg.tables": "db.t",
            "kafka.bootstrap.servers": "b:1",
            "iceberg.control.commit.threads": "${env:CALVING_SECRET}",
        }
    )
    assert found["error_count"] == 0  # it may be a number
    assert "hunter2" not in json.dumps(found)


def test_a_wrong_key_is_named_beside_one_whose_value_is_not_known() -> None:
    given = {"name": "s", "topics": "t", "iceberg.tables": "db.t", "kafka.bootstrap.servers": "b:1"}
    known = {"iceberg.control.commit.threads": "${env:T}", "iceberg.table.db.t.colour": "${env:T}"}
    (wrong,) = (each for each in connect.validated(given | known)["configs"] if each["value"]["errors"])
    assert wrong["value"]["name"] == "iceberg.table.db.t.colour"


def test_the_cluster_is_named_once_it_is_known() -> None:
    known = replace(status(), worker=replace(status().worker, cluster="kafka-1"))
    assert connect.worker(known)["kafka_cluster_id"] == "kafka-1"
    assert connect.worker(status())["kafka_cluster_id"] == ""


CONNECTOR = "/connectors/eu%2For%25ders%20%C3%BC"
PATHS = {
    "/": "GET",
    "/connectors": "GET",
    "/connector-plugins": "GET",
    "/connector-plugins/calving/config/validate": "PUT",
    CONNECTOR: "GET",
    **{f"{CONNECTOR}/{part}": "GET" for part in ("status", "config", "tasks", "tasks/0/status", "topics", "offsets")},
    **{f"{CONNECTOR}/{act}": "PUT" for act in ("stop", "pause", "resume")},
    **{f"{CONNECTOR}/{act}": "POST" for act in ("restart", "commit")},
    "/admin/loggers/root": "GET",
}
"""Every path of Connect's interface that there is, and a method that it takes, of a sink with an odd name."""
MORE = {("/admin/loggers/root", "PUT"), *((f"{CONNECTOR}/offsets", method) for method in ("PATCH", "DELETE"))}
"""Further methods of these paths."""
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(
        Worker(status()), sink(**{"iceberg.http.token": TOKEN, "name": "eu/or%ders ü", "iceberg.connect.group-id": "g"})
    ) as served:
        yield served


@pytest.mark.parametrize("path", PATHS)
def test_a_name_may_have_any_character_and_a_path_a_slash_at_its_end(path: str, client: Client) -> None:
    body = {"topics": "t"} if path.endswith("validate") else None
    for asked in (path, f"{path}/"):
        assert client.ask(PATHS[path], asked, body, **BEARER).code in (200, 202, 204)


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE", "PATCH", "TRACE", "BREW"])
@pytest.mark.parametrize(
    "path", [*PATHS, f"{CONNECTOR}/starts", f"{CONNECTOR}/tasks/1/status", "/nope", "/connectors/x/y/z"]
)
def test_what_is_not_served_is_an_error_in_connects_form(path: str, method: str, client: Client) -> None:
    if method == PATHS.get(path) or (path, method) in MORE:
        return
    answer = client.ask(method, path, **BEARER)
    code = 405 if path in PATHS else 404
    reason = "Method Not Allowed" if path in PATHS else "Not Found"
    assert (answer.code, answer.json) == (code, {"error_code": code, "message": f"HTTP {code} {reason}"})


@pytest.mark.parametrize("path", PATHS)
def test_a_path_says_which_methods_it_takes_and_answers_head_as_get_without_a_body(path: str, client: Client) -> None:
    options = client.ask("OPTIONS", path, **BEARER)
    allowed = options.headers["allow"].split(", ")
    assert options.code == 200 and PATHS[path] in allowed and "OPTIONS" in allowed
    assert ("HEAD" in allowed) == (PATHS[path] == "GET")
    if "HEAD" in allowed:
        head = client.ask("HEAD", path, **BEARER)
        assert (head.code, head.text) == (200, "")


def test_a_connector_of_another_name_is_an_error_in_connects_form(client: Client) -> None:
    answer = client.get("/connectors/eu%2Fothers/status")
    assert (answer.code, answer.json) == (404, {"error_code": 404, "message": "Connector eu/others not found"})


def test_a_failure_of_the_server_is_an_error_in_connects_form_without_its_cause() -> None:
    class Broken(Worker):
        def stopped_loops(self) -> Mapping[str, float]:
            raise ValueError("hunter2")

    with serving(Broken(status())) as client:
        answer = client.get("/connectors/orders/status")
    assert (answer.code, answer.json) == (
        500,
        {"error_code": 500, "message": "the answer fails; the log has the reason"},
    )


def test_an_existing_client_of_kafka_connect_reads_and_changes_a_sink() -> None:
    worker = Worker(status())
    with serving(worker, sink(**{"iceberg.http.token": TOKEN})) as served:
        client = KafkaConnect(served.url.rstrip("/"), auth=f"calving:{TOKEN}")
        assert client.get_cluster_info()["version"] == "0.2.0"
        assert client.list_connectors() == ["orders"]
        assert client.list_connectors(state="running", pattern="ord.*") == ["orders"]
        assert client.list_connectors(expand="info")["orders"]["info"]["type"] == "sink"
        assert client.get_connector("orders")["name"] == "orders"
        assert client.get_connector_config("orders")["kafka.sasl.password"] == "***"
        assert client.get_connector_status("orders")["connector"]["state"] == "RUNNING"
        (task,) = client.list_connector_tasks("orders")
        assert client.get_connector_task_status("orders", task["id"]["task"])["state"] == "RUNNING"
        assert client.list_connector_topics("orders") == {"orders": {"topics": ["orders"]}}
        (plugin,) = client.list_connector_plugins()
        assert client.validate_connector_config(plugin["class"], {"name": "s"})["error_count"] == 1
        client.pause_connector("orders")
        client.resume_connector("orders")
        client.restart_connector("orders")
        client.stop_connector("orders")
        assert worker.told == ["pause", "resume", "RUNNING", "restart", "STOPPED"]
        assert Client(served.url).ask("PUT", "/connectors/orders/pause", Authorization="Basic e").code == 403
