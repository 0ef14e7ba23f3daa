"""The properties of Kafka's clients among a sink's keys."""

from __future__ import annotations

import re
from collections.abc import Mapping

from calving.errors import ConfigError
from calving.settings.java_client import translate
from calving.wording import missing

_CONSUMERS = {"group.id": "iceberg.connect.group-id", "auto.offset.reset": "iceberg.source.auto-offset-reset"}
"""Properties of Kafka's consumers that are keys of a sink."""
_OF_PROGRAMS = re.compile(r"\w+_cb|\w+\.\w+_cb|logger|opaque|on_commit|on_delivery|default\.topic\.config")
"""Properties that only a program can give to its client."""
_EXACTLY_ONCE = {
    "acks": (r"all|-1", "all"),
    "request.required.acks": (r"all|-1", "all"),
    "enable.idempotence": (r"true", "true"),
    "retries": (r"0*[1-9]\d*", "at least 1"),
    "message.send.max.retries": (r"0*[1-9]\d*", "at least 1"),
    "max.in.flight": (r"0*[1-5]", "from 1 to 5"),
    "max.in.flight.requests.per.connection": (r"0*[1-5]", "from 1 to 5"),
    "queuing.strategy": (r"fifo", "fifo"),
}
"""What a transactional producer needs: the values that a property may have, and their name."""
_BROKER = re.compile(
    r"((PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?([\w.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?", re.IGNORECASE
)


def consumer_keys(raw: Mapping[str, str]) -> dict[str, str]:
    """The keys, in which consumer overrides that are keys of a sink in calving are renamed."""
    moved = {f"consumer.override.{theirs}": ours for theirs, ours in _CONSUMERS.items()}
    renamed = {moved[key]: value for key, value in raw.items() if key in moved}
    return {**renamed, **{key: value for key, value in raw.items() if key not in moved}}


def client_properties(handed_on: Mapping[str, Mapping[str, str]]) -> tuple[dict[str, str], dict[str, str]]:
    """Properties of the clients that read records, and of the backend's clients, from the keys by their prefix.

    :raises ConfigError: a property has no effect, or has no counterpart, or no broker is named.
    """
    for theirs, ours in _CONSUMERS.items():
        if theirs in handed_on["kafka."]:
            raise ConfigError(f"kafka.{theirs} has no effect: set {ours} in its place")
    overrides, own, control = (translate(handed_on[p], p) for p in ("consumer.override.", "kafka.", "iceberg.kafka."))
    kafka = {**overrides, **own}
    if "bootstrap.servers" not in kafka:
        hint = missing("bootstrap.servers", kafka, "kafka.")
        raise ConfigError(f"kafka.bootstrap.servers is missing: where is Kafka?{hint.replace(';', '')}")
    for prefix, properties in (("kafka.", kafka), ("iceberg.kafka.", control)):
        _check_brokers(f"{prefix}bootstrap.servers", properties.get("bootstrap.servers"))
        for name, value in properties.items():
            _check_property(prefix, name, value)
            if name.endswith((".ms", ".bytes")) and not re.fullmatch(r"-?\d+", value):
                unit = "milliseconds" if name.endswith(".ms") else "bytes"
                raise ConfigError(f"{prefix}{name}: must be a whole number of {unit} (given: '{value}')")
    return kafka, {**kafka, **control}


def _check_property(prefix: str, name: str, value: str) -> None:
    if _OF_PROGRAMS.fullmatch(name):
        hint = f": write its properties under {prefix}" if name == "default.topic.config" else ": remove it"
        raise ConfigError(f"{prefix}{name}: only a program can give it to its client, and no file{hint}")
    allowed, called = _EXACTLY_ONCE.get(name, (".*", ""))
    if not re.fullmatch(allowed, value.strip(), re.IGNORECASE | re.DOTALL):
        raise ConfigError(f"{prefix}{name}: must be {called}, which exactly-once needs (given: '{value}')")


def check_login(kafka: Mapping[str, str]) -> None:
    """:raises ConfigError: there is a login that no broker is sent."""
    protocol = kafka.get("security.protocol", "PLAINTEXT")
    given = next((name for name in ("sasl.mechanism", "sasl.mechanisms", "sasl.username") if name in kafka), None)
    if given is not None and protocol.upper() in ("PLAINTEXT", "SSL"):
        raise ConfigError(
            f"kafka.{given} has no effect with kafka.security.protocol = {protocol}: set it to SASL_SSL, or to"
            " SASL_PLAINTEXT without TLS"
        )


def _check_brokers(key: str, servers: str | None) -> None:
    brokers = [] if servers is None else [server.strip() for server in servers.split(",")]
    for broker in brokers:
        if not _BROKER.fullmatch(broker):
            raise ConfigError(f"{key}: '{broker}' is no broker: write host:port, and commas between several")
