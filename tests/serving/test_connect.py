"""Kafka Connect's REST, as its clients read it."""

from __future__ import annotations

import json
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
        "info": connect.info(sink()),
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
    assert found["error_count"] == 1
    assert "hunter2" not in json.dumps(found)


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
        assert worker.told == ["pause", "resume", "restart"]
        assert Client(served.url).ask("PUT", "/connectors/orders/pause", Authorization="Basic e").code == 403
