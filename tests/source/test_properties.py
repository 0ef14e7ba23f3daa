"""What Kafka's clients say of properties that do not go together, before any broker is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from calving.errors import ConfigError
from calving.model.offsets import TopicPartition
from calving.model.record_path import Limits
from calving.settings.load import parse
from calving.source.opening import open_reader, open_source
from calving_kafka.positions import StoredPositions

PARTITIONS = [TopicPartition("t", 0)]
CLIENTS: Mapping[str, Callable[[Mapping[str, str]], object]] = {
    "bounds": lambda kafka: open_source(kafka, ["t"], None).bounds(PARTITIONS),
    "times": lambda kafka: open_source(kafka, ["t"], None).first_times({PARTITIONS[0]: 0}),
    "group": lambda kafka: open_source(kafka, ["t"], None).join("g"),
    "reader": lambda kafka: open_reader(kafka, Limits()),
    "positions": lambda kafka: StoredPositions(kafka, "g", stable=True),
}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"session.timeout.ms": "600000", "max.poll.interval.ms": "300000"},
            "kafka.max.poll.interval.ms: must be at least kafka.session.timeout.ms: set both",
        ),
        ({"fetch.max.bytes": "1000"}, "kafka.fetch.max.bytes: must be at least kafka.message.max.bytes: set both"),
        (
            {"receive.message.max.bytes": "1000"},
            "kafka.receive.message.max.bytes: must be at least kafka.fetch.max.bytes + 512: set both",
        ),
        (
            {"group.protocol": "consumer", "session.timeout.ms": "6000"},
            "kafka.session.timeout.ms: the brokers set it with kafka.group.protocol = consumer: remove it",
        ),
    ],
)
@pytest.mark.parametrize("client", CLIENTS)
def test_properties_that_do_not_go_together_are_named(client: str, given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        CLIENTS[client]({"bootstrap.servers": "127.0.0.1:1", **given})
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        ("kafka.sesion.timeout.ms", "1", "did you mean 'kafka.session.timeout.ms'?"),
        ("iceberg.kafka.sesion.timeout.ms", "1", "did you mean 'iceberg.kafka.session.timeout.ms'?"),
        (
            "consumer.override.session.timeout.ms",
            "0",
            "consumer.override.session.timeout.ms: must be from 1 to 3600000",
        ),
        ("iceberg.kafka.session.timeout.ms", "0", "iceberg.kafka.session.timeout.ms: must be from 1 to 3600000"),
        ("iceberg.kafka.group.protocol", "new", "iceberg.kafka.group.protocol: 'new' is not among its values"),
        ("iceberg.kafka.socket.keepalive.enable", "x", "iceberg.kafka.socket.keepalive.enable: must be true or false"),
        (
            "iceberg.kafka.fetch.max.bytes",
            "9",
            "iceberg.kafka.fetch.max.bytes: must be at least kafka.message.max.bytes",
        ),
    ],
)
def test_a_property_is_named_as_it_was_written(key: str, text: str, sentence: str) -> None:
    keys = {"name": "s", "topics": "t", "iceberg.tables": "db.t", "kafka.bootstrap.servers": "127.0.0.1:1", key: text}
    with pytest.raises(ConfigError) as refused:
        StoredPositions(parse(keys).control_kafka, "g", stable=True)
    assert sentence in str(refused.value)
