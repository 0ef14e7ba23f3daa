"""How a producer with transactions finds its coordinator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from calving.backend import SinkIdentity
from calving_kafka import transactions
from calving_kafka.options import KafkaOptions
from calving_kafka.transactions import Transactions


@pytest.mark.parametrize(
    ("answering", "asked"),
    [((-1, 3), 2), ((3,), 1), ((-1, -1), 2)],
    ids=["bootstrap first", "broker", "never a broker"],
)
def test_it_is_connected_to_a_broker_and_not_only_to_a_bootstrap_server_before_it_looks(
    monkeypatch: pytest.MonkeyPatch, answering: tuple[int, ...], asked: int
) -> None:
    """Else it looks again after 0.5 s. Brokers that never tell their ids do not hold it up."""
    calls: list[str] = []

    class Producer:
        def __init__(self, config: dict[str, Any]) -> None:
            self._answering = iter(answering)

        def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
            calls.append("connect")
            return SimpleNamespace(orig_broker_id=next(self._answering))

        def init_transactions(self, timeout: float) -> None:
            calls.append("look")

    monkeypatch.setattr(transactions, "Producer", Producer)
    Transactions(
        SinkIdentity("s", "connect-s", "control-s", {"bootstrap.servers": "127.0.0.1:1"}), KafkaOptions(), "worker"
    )
    assert calls == [*["connect"] * asked, "look"]
