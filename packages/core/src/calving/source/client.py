"""librdkafka clients: their common settings, their logs, and the translation of their errors."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from operator import itemgetter, methodcaller
from typing import Any, cast
from weakref import WeakSet

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from calving.errors import ConfigError, UnavailableError, UnexpectedError
from calving.model.dead_letters import Headers
from calving.source.mistakes import of_property

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
_UNTRUSTED = "certificate verify failed"
"""OpenSSL's words for a broker whose certificate the client does not trust. Other errors of TLS may pass."""


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
    with reaching("kafka.*"):
        made = AdminClient(config)
    _asking.add(made)
    return made


def consumer_client(kafka: Mapping[str, str], **ours: str | int | bool) -> Consumer:
    """A consumer with the user's properties, overridden by ``ours``.

    :raises ConfigError: a property is wrong, or does not go with another one.
    """
    with reaching("kafka.*"):
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


@contextlib.contextmanager
def reaching(what: str) -> Iterator[None]:
    """Translate the errors of a request that writes nothing.

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
                f"{what}: the broker does not let the sink in: correct kafka.security.protocol, or"
                f" kafka.sasl.mechanism and its credentials ({text})"
            ) from error
        untrusted = code == KafkaError._SSL and _UNTRUSTED in text
        if code == KafkaError._INVALID_ARG and (mistake := of_property(text)) is not None:
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
