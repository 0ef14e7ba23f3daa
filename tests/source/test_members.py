"""The members of a consumer group."""

from __future__ import annotations

import contextlib
import threading

import pytest

from calving.errors import ConfigError, UnavailableError
from calving.services.kafka import KafkaServer
from calving.source.members import members
from tests.engine.standalone import eventually


@pytest.fixture(scope="module", autouse=True)
def members_are_asked_for_by_a_process_that_is_forked() -> None:
    """Not here: a process is started, as by a sink."""


def test_a_property_that_the_client_does_not_know_is_named() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.boostrap\.servers: .*did you mean 'kafka\.bootstrap\.servers'"):
        members({"boostrap.servers": "127.0.0.1:9092"}, "g")


def test_one_who_asks_survives_restarts_of_the_broker(own_broker: KafkaServer) -> None:
    kafka = {"bootstrap.servers": own_broker.bootstrap_servers}
    enough = threading.Event()

    def ask() -> None:
        while not enough.is_set():
            with contextlib.suppress(UnavailableError):
                members(kafka, "g")

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(2):
            own_broker.kill()
            own_broker.start()
    finally:
        enough.set()
        asking.join()
    eventually(lambda: _answered(kafka) == {})


def _answered(kafka: dict[str, str]) -> dict[str, str] | None:
    """None while the broker is starting."""
    with contextlib.suppress(UnavailableError):
        return members(kafka, "g")
    return None
