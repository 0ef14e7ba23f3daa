"""librdkafka clients: their common settings, their logs, and the translation of their errors."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Iterator, Mapping
from operator import itemgetter, methodcaller
from typing import Any, cast
from weakref import WeakSet

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from calving.errors import UNTRUSTED, ConfigError, UnavailableError, UnexpectedError
from calving.model.dead_letters import Headers
from calving.model.sink import key_of
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
_FILE = re.compile(r"(?P<name>ssl\.[\w.]+\.(location|pem)) failed: |from (?P<text>ssl\.[\w.]+): not in PEM format")
_CIPHERS = re.compile(r"(?P<name>ssl\.(cipher\.suites|curves\.list|sigalgs\.list)) failed: ")
_ASSIGNMENT = re.compile(r"Unsupported (?P<name>partition\.assignment\.strategy): (?P<value>\S+)")
_NEEDED = re.compile(r"`(?P<name>[\w.]+)` is mandatory when `(?P<other>[\w.]+)(=(?P<value>\w+))?` is set")
_ALIASES = {"compression.codec": "compression.type", "sasl.mechanisms": "sasl.mechanism"}
"""librdkafka's own names for properties that have Java's names, too."""
_MECHANISM = re.compile(r"Unsupported SASL mechanism: (?P<value>\S+)|No provider for SASL mechanism (?P<absent>\w+)")
_NO_LOGIN = "sasl.username and sasl.password must be set"
_VALUES = {
    "security.protocol": "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
    "group.protocol": "classic or consumer",
    "auto.offset.reset": "earliest or latest",
    "compression.codec": "none, gzip, snappy, lz4 or zstd",
    "partition.assignment.strategy": "range, roundrobin or cooperative-sticky",
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


def of_property(text: str, kafka: Mapping[str, str]) -> str | None:
    """What is wrong with a property of ``kafka``, and what to write, from librdkafka's text; None for any other
    text.
    """
    if match := _UNKNOWN.search(text):
        key = _key(kafka, match["name"])
        hint = meant(match["name"], _NAMES, 0.6, key.removesuffix(match["name"])) or ": remove it"
        return f"{key}: Kafka's client has no such property{hint}"
    if match := _WRONG.search(text) or _ASSIGNMENT.search(text):
        return f"{_key(kafka, match['name'])}: '{match['value']}' is not among its values{_values(match['name'])}"
    if match := _RANGE.search(text):
        key = key_of(kafka, match["name"])
        return f"{key}: must be from {match['least']} to {match['most']} (given: '{match['value']}')"
    if match := _BOOLEAN.search(text):
        return f"{key_of(kafka, match['name'])}: must be true or false"
    return _of_file(text, kafka) or _of_login(text, kafka) or _of_two(text, kafka)


def _key(kafka: Mapping[str, str], name: str) -> str:
    """As ``key_of``, also if librdkafka has another name for the property."""
    return key_of(kafka, _ALIASES.get(name, name) if name not in kafka else name)


def _of_file(text: str, kafka: Mapping[str, str]) -> str | None:
    """As ``of_property``, of TLS."""
    if match := _FILE.search(text):
        key = key_of(kafka, match["name"] or match["text"])
        if "keystore" in key:
            return f"{key}: it is no store in PKCS12 with this password: correct either, or convert it ({text})"
        return f"{key}: it is no certificate or key in PEM: convert it ({text})"
    if match := _CIPHERS.search(text):
        return f"{key_of(kafka, match['name'])}: OpenSSL knows none of these: correct it, or leave it out ({text})"
    return None


def _of_login(text: str, kafka: Mapping[str, str]) -> str | None:
    """As ``of_property``, of a login by SASL."""
    mechanism = key_of(kafka, "sasl.mechanisms" if "sasl.mechanisms" in kafka else "sasl.mechanism")
    if match := _MECHANISM.search(text):
        return (
            f"{mechanism}: '{match['value'] or match['absent']}' is not among its values: it is PLAIN,"
            " SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
        )
    if _NO_LOGIN in text:
        user, password = (key_of(kafka, f"sasl.{name}") for name in ("username", "password"))
        return f"{user} or {password} is missing: {mechanism} needs both"
    return None


def _of_two(text: str, kafka: Mapping[str, str]) -> str | None:
    """As ``of_property``, of properties that do not go together."""
    if match := _AT_LEAST.search(text):
        key, other = key_of(kafka, match["name"]), key_of(kafka, match["other"])
        return f"{key}: must be at least {other}{match['more'] or ''}: set both"
    if match := _NEEDED.search(text):
        key, other = key_of(kafka, match["name"]), key_of(kafka, match["other"])
        given = f" = {match['value']}" if match["value"] else ""
        return f"{key} is missing: {other}{given} needs it"
    if match := _BROKERS_OWN.search(text):
        key, protocol = key_of(kafka, match["name"]), key_of(kafka, "group.protocol")
        return f"{key}: the brokers set it with {protocol} = consumer: remove it"
    return None


def _values(name: str) -> str:
    return f": it is {_VALUES[name]}" if name in _VALUES else ": see librdkafka's CONFIGURATION.md"


log = logging.getLogger("calving.librdkafka")

TIMEOUT = 15.0
"""Seconds that one request to a broker may take."""

_SETTINGS = (KafkaError._INVALID_ARG, KafkaError._UNKNOWN_PROTOCOL, KafkaError._NOT_IMPLEMENTED)
_UNAUTHENTICATED = (KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION)
REFUSED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    *_UNAUTHENTICATED,
)
"""Errors that only an operator can fix."""
_PASSING = frozenset(
    (
        None,  # the client says no more than a text
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._PURGE_QUEUE,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    )
)
"""Errors of a cluster that is away, starts, or moves its leaders."""


def client_config(kafka: Mapping[str, str], **ours: str | int | bool) -> dict[str, Any]:
    """The user's librdkafka properties, overridden by ``ours`` (dots written as underscores), with Python logging."""
    # By default a client that has lost its broker waits up to 10 s before it tries again.
    quiet = {"log.connection.close": "false", "logger": log, "reconnect.backoff.max.ms": "1000"}
    return {**quiet, **kafka, **{key.replace("_", "."): value for key, value in ours.items()}}


patiently = retry(
    retry=retry_if_exception_type(UnavailableError), stop=stop_after_delay(8), wait=wait_fixed(0.2), reraise=True
)
"""Retries for 8 seconds, because a partition may be unknown or have no leader just after its creation or its broker's
death.
"""


def admin_client(kafka: Mapping[str, str]) -> AdminClient:
    """An admin client with the user's properties.

    :raises ConfigError: a property is wrong.
    """
    config: dict[str, Any] = {**client_config(kafka), "error_cb": _note}
    with reaching("kafka.*", kafka):
        made = AdminClient(config)
    _asking.add(made)
    return made


def consumer_client(kafka: Mapping[str, str], **ours: str | int | bool) -> Consumer:
    """A consumer with the user's properties, overridden by ``ours``.

    :raises ConfigError: a property is wrong, or does not go with another one.
    """
    with reaching("kafka.*", kafka):
        return Consumer(client_config(kafka, **ours))


_asking: WeakSet[AdminClient] = WeakSet()
_heard: dict[int, tuple[float, KafkaError]] = {}
"""The last connection error of each code, of any client, with its time. The request that fails because of this error
reports only a timeout.
"""


def _note(error: KafkaError) -> None:
    if error.code() != KafkaError._ALL_BROKERS_DOWN:
        _heard[error.code()] = time.monotonic(), error


def _said_since(start: float) -> KafkaError | None:
    """The error that explains best why a request since ``start`` has failed: a refusal, else the last one. A broker
    that refuses a client also closes its connection, and either error may be heard last.
    """
    for client in list(_asking):
        client.poll(0)
    since = [(error.code() in REFUSED, at, error) for at, error in list(_heard.values()) if at >= start]
    return max(since, key=itemgetter(0, 1))[2] if since else None


_NONE: Mapping[str, str] = {}


@contextlib.contextmanager
def reaching(what: str, kafka: Mapping[str, str] = _NONE) -> Iterator[None]:
    """Translate the errors of a request that writes nothing. ``kafka``: the properties of the client that makes it.

    :raises ConfigError: settings or privileges are wrong. :raises UnavailableError: try again.
    """
    start = time.monotonic()
    try:
        yield
    except KafkaException as error:
        cause = error.args[0]
        code = cause.code() if isinstance(cause, KafkaError) else None
        text = cause.str() if isinstance(cause, KafkaError) else str(cause)
        if code in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT) and (said := _said_since(start)) is not None:
            code, text = said.code(), said.str()
        if code in _UNAUTHENTICATED:
            raise ConfigError(
                f"{what}: the broker does not let the sink in: correct {key_of(kafka, 'security.protocol')}, or"
                f" {key_of(kafka, 'sasl.mechanism')} and its credentials ({text})"
            ) from error
        # Other errors of TLS may pass.
        untrusted = code == KafkaError._SSL and UNTRUSTED in text
        if code == KafkaError._INVALID_ARG and (mistake := of_property(text, kafka)) is not None:
            raise ConfigError(mistake) from error
        if code in _SETTINGS or code in REFUSED or untrusted:
            raise ConfigError(f"{what}: {text}; check the kafka.* settings and the privileges") from error
        raise (UnavailableError if code in _PASSING else UnexpectedError)(f"{what}: {text}") from error


def unavailable(error: KafkaError, what: str) -> UnavailableError:
    """The error to raise for a request that wrote nothing, if the error does not say that an operator has to act."""
    return (UnavailableError if error.code() in _PASSING else UnexpectedError)(f"{what}: {error.str()}")


_headers = methodcaller("headers")
"""Python's interpreter, once it has specialised a call, does not see that the client answered with an error pending."""


def headers_of(message: Message) -> Headers | None:
    """The headers of a message; None if they cannot be read, because the name of one is not UTF-8."""
    try:
        return cast("Headers", _headers(message) or ())
    except (UnicodeDecodeError, SystemError) as error:  # the client does not give the other headers either
        if isinstance(error, SystemError) and not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        return None
