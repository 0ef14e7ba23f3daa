"""A broker that speaks TLS alone, and wants to know who is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from calving.services.kafka import KafkaServer
from calving.services.process import LOOPBACK, free_port
from harness.run import Run
from tests.tls import Authority

pytestmark = pytest.mark.services

SECRET = "not-for-logs-7f3a"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[tuple[KafkaServer, str]]:
    """A broker, and its listener that takes SASL over TLS only."""
    port = free_port()
    settings = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,ASIDE:SASL_SSL",
        "listener.name.aside.ssl.keystore.type": "PEM",
        "listener.name.aside.ssl.keystore.location": str(authority.issue("broker").both),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.aside.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' user_calving="{SECRET}";',
    }
    broker = KafkaServer(tmp_path_factory.mktemp("kafka"), settings, aside=(port, port))
    broker.start()
    yield broker, f"{LOOPBACK}:{port}"
    broker.stop()


def _settings(servers: str, password: str, authority: Authority) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(authority.certificate),
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "calving",
        "kafka.sasl.password": password,
    }


def test_a_sink_authenticates_everywhere_and_its_password_is_in_no_log(
    guarded: tuple[KafkaServer, str],
    authority: Authority,
    tmp_path: Path,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, servers = guarded
    monkeypatch.setenv("SINK_PASSWORD", SECRET)
    monkeypatch.setenv("CALVING_LOG_LEVEL", "DEBUG")
    run = Run(
        tmp_path, broker.bootstrap_servers, unique, settings=_settings(servers, "${env:SINK_PASSWORD}", authority)
    )
    worker = run.start()
    run.produce(500)
    run.wait_until_committed()
    run.stop()
    run.assert_exactly_once()
    assert SECRET not in worker.log.read_text()


def test_a_wrong_password_is_said_in_one_sentence(
    guarded: tuple[KafkaServer, str], authority: Authority, tmp_path: Path, unique: str
) -> None:
    broker, servers = guarded
    run = Run(tmp_path, broker.bootstrap_servers, unique, settings=_settings(servers, "wrong", authority))
    worker = run.start()
    code = worker.wait(60)
    text = worker.log.read_text()
    run.stop()
    assert code != 0
    assert "uthentication" in text
    assert "Traceback" not in text


def test_a_broker_of_another_authority_is_refused_in_one_sentence(
    guarded: tuple[KafkaServer, str], tmp_path: Path, unique: str
) -> None:
    broker, servers = guarded
    other = _settings(servers, SECRET, Authority(tmp_path / "other"))
    run = Run(tmp_path, broker.bootstrap_servers, unique, settings=other)
    worker = run.start()
    code = worker.wait(60)
    text = worker.log.read_text()
    run.stop()
    assert code != 0
    assert "certificate" in text
    assert "Traceback" not in text
