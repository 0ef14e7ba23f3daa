"""librdkafka clients: their common settings, their logs, and the translation of their errors."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakSet

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from calving.errors import ConfigError, UnavailableError

log = logging.getLogger("calving.librdkafka")

TIMEOUT = 15.0
"""Seconds that one request to a broker may take."""

_SETTINGS = (KafkaError._INVALID_ARG, KafkaError._UNKNOWN_PROTOCOL, KafkaError._NOT_IMPLEMENTED)
REFUSED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
)
"""Errors that only an operator can fix."""
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


_asking: WeakSet[AdminClient] = WeakSet()
_heard: tuple[float, KafkaError] | None = None
"""The last connection error of any client. The request that fails because of this error reports only a timeout."""


def _note(error: KafkaError) -> None:
    global _heard
    if error.code() != KafkaError._ALL_BROKERS_DOWN:
        _heard = time.monotonic(), error


def _said_since(start: float) -> KafkaError | None:
    for client in list(_asking):
        client.poll(0)
    return _heard[1] if _heard is not None and _heard[0] >= start else None


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
        untrusted = code == KafkaError._SSL and _UNTRUSTED in text
        if code in _SETTINGS or code in REFUSED or untrusted:
            raise ConfigError(f"{what}: {text}; check the kafka.* settings and the privileges") from error
        raise UnavailableError(f"{what}: {text}") from error
