"""Sentences about wrong properties of Kafka's clients, in place of those of librdkafka."""

from __future__ import annotations

import re

from calving.wording import meant

_UNKNOWN = re.compile(r'No such configuration property: "(?P<name>[^"]+)"')
_WRONG = re.compile(r'Invalid value "(?P<value>[^"]*)" for configuration property "(?P<name>[^"]+)"')
_RANGE = re.compile(
    r'Configuration property "(?P<name>[^"]+)" value (?P<value>\S+) is outside allowed range'
    r" (?P<least>\S+)\.\.(?P<most>\S+)"
)
_AT_LEAST = re.compile(r"`(?P<name>[\w.]+)` ?must be >= `(?P<other>[\w.]+)`(?P<more> \+ \d+)?")
_BROKERS_OWN = re.compile(r"`(?P<name>[\w.]+)` is not supported for `group\.protocol=consumer`")
_BOOLEAN = re.compile(r'Expected bool value for "(?P<name>[^"]+)"')
_FILE = re.compile(r"(?P<name>ssl\.[\w.]+) failed: |from (?P<text>ssl\.[\w.]+): not in PEM format")
_MECHANISM = re.compile(r"Unsupported SASL mechanism: (?P<value>\S+)|No provider for SASL mechanism (?P<absent>\w+)")
_NO_LOGIN = "sasl.username and sasl.password must be set"
_VALUES = {
    "security.protocol": "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
    "group.protocol": "classic or consumer",
    "auto.offset.reset": "earliest or latest",
}
_NAMES = (
    *("bootstrap.servers", "client.id", "client.rack", "security.protocol", "session.timeout.ms", "group.protocol"),
    *("heartbeat.interval.ms", "socket.timeout.ms", "max.poll.interval.ms", "group.instance.id", "message.max.bytes"),
    *("sasl.mechanism", "sasl.username", "sasl.password", "sasl.kerberos.keytab", "sasl.kerberos.principal"),
    *("sasl.kerberos.service.name", "sasl.oauthbearer.method", "sasl.oauthbearer.client.id", "sasl.oauthbearer.scope"),
    *("sasl.oauthbearer.client.secret", "sasl.oauthbearer.token.endpoint.url", "ssl.ca.location", "ssl.ca.pem"),
    *("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem", "ssl.key.password"),
    *("ssl.keystore.location", "ssl.keystore.password", "ssl.endpoint.identification.algorithm", "ssl.cipher.suites"),
    *(
        "fetch.min.bytes",
        "fetch.max.bytes",
        "fetch.wait.max.ms",
        "max.partition.fetch.bytes",
        "queued.max.messages.kbytes",
    ),
    *("receive.message.max.bytes", "reconnect.backoff.ms", "metadata.max.age.ms", "connections.max.idle.ms", "debug"),
)
"""Names that users write."""


def of_property(text: str) -> str | None:
    """What is wrong with a property, and what to write, from librdkafka's text; None for any other text."""
    if match := _UNKNOWN.search(text):
        hint = meant(match["name"], _NAMES, 0.6, "kafka.") or ": remove it"
        return f"kafka.{match['name']}: Kafka's client has no such property{hint}"
    if match := _WRONG.search(text):
        return f"kafka.{match['name']}: '{match['value']}' is not among its values{_values(match['name'])}"
    if match := _RANGE.search(text):
        return f"kafka.{match['name']}: must be from {match['least']} to {match['most']} (given: '{match['value']}')"
    if match := _BOOLEAN.search(text):
        return f"kafka.{match['name']}: must be true or false"
    if match := _FILE.search(text):
        return f"kafka.{match['name'] or match['text']}: it is no certificate or key in PEM: convert it ({text})"
    if match := _MECHANISM.search(text):
        return (
            f"kafka.sasl.mechanism: '{match['value'] or match['absent']}' is not among its values: it is PLAIN,"
            " SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
        )
    if _NO_LOGIN in text:
        return "kafka.sasl.username or kafka.sasl.password is missing: kafka.sasl.mechanism needs both"
    return _of_two(text)


def _of_two(text: str) -> str | None:
    """As ``of_property``, of properties that do not go together."""
    if match := _AT_LEAST.search(text):
        return f"kafka.{match['name']}: must be at least kafka.{match['other']}{match['more'] or ''}: set both"
    if match := _BROKERS_OWN.search(text):
        return f"kafka.{match['name']}: the brokers set it with kafka.group.protocol = consumer: remove it"
    return None


def _values(name: str) -> str:
    return f": it is {_VALUES[name]}" if name in _VALUES else ": see librdkafka's CONFIGURATION.md"
