"""A broker that wants to know who is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from calving.services.kafka import KafkaServer
from calving.services.process import LOOPBACK, free_port
from harness.run import Run

pytestmark = pytest.mark.services

SECRET = "not-for-logs-7f3a"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[KafkaServer, str]]:
    """A broker, and its listener that takes SASL only."""
    port = free_port()
    settings = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,ASIDE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.aside.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' user_calving="{SECRET}";',
    }
    broker = KafkaServer(tmp_path / "kafka", settings, aside=(port, port))
    broker.start()
    yield broker, f"{LOOPBACK}:{port}"
    broker.stop()


def _settings(servers: str, password: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "calving",
        "kafka.sasl.password": password,
    }


def test_a_sink_authenticates_everywhere_and_its_password_is_in_no_log(
    guarded: tuple[KafkaServer, str], tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, servers = guarded
    monkeypatch.setenv("SINK_PASSWORD", SECRET)
    monkeypatch.setenv("CALVING_LOG_LEVEL", "DEBUG")
    run = Run(tmp_path, broker.bootstrap_servers, unique, settings=_settings(servers, "${env:SINK_PASSWORD}"))
    worker = run.start()
    run.produce(500)
    run.wait_until_committed()
    run.stop()
    run.assert_exactly_once()
    assert SECRET not in worker.log.read_text()


def test_a_wrong_password_is_said_in_one_sentence(
    guarded: tuple[KafkaServer, str], tmp_path: Path, unique: str
) -> None:
    broker, servers = guarded
    run = Run(tmp_path, broker.bootstrap_servers, unique, settings=_settings(servers, "wrong"))
    worker = run.start()
    code = worker.wait(60)
    text = worker.log.read_text()
    run.stop()
    assert code != 0
    assert "uthentication" in text
    assert "Traceback" not in text
