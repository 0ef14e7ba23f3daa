"""Clients of Redis, and the translation of their errors."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel

from calving.errors import UNTRUSTED, ConfigError, OutcomeUnknownError, SilentError, UnavailableError, UnexpectedError
from calving_redis.options import RedisOptions


class RedisClient(Protocol):
    """The used part of ``Redis`` and ``RedisCluster``, which share no base. Their types leave open whether answers are
    bytes.
    """

    def close(self) -> None: ...
    def ping(self) -> object: ...
    def client_id(self) -> int: ...
    def client_unblock(self, client_id: int) -> object: ...
    def execute_command(self, *words: str | int) -> Any: ...
    def register_script(self, script: str) -> Callable[[Sequence[str], Sequence[object]], Any]: ...
    def info(self, section: str) -> Mapping[str, Any]: ...
    def config_get(self, pattern: str) -> Mapping[object, object]: ...
    def hget(self, name: str, key: str) -> bytes | None: ...
    def hmget(self, name: str, keys: Sequence[str]) -> list[bytes | None]: ...
    def hsetnx(self, name: str, key: str, value: str) -> object: ...
    def hincrby(self, name: str, key: str, amount: int) -> object: ...
    def xread(self, streams: Mapping[str, str], count: int, block: int) -> list[tuple[bytes, list[Entry]]]: ...
    def xrevrange(self, name: str, max: str, *, count: int) -> list[Entry]: ...


Entry = tuple[bytes, dict[bytes, bytes]]
"""An entry of a stream: its id and its fields."""
ERRORS = (redis.RedisError, redis.exceptions.RedisClusterException)
_REFUSED = (redis.AuthenticationError, redis.exceptions.NoPermissionError, redis.exceptions.AuthorizationError)
_PASSING = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.RedisClusterException,
    redis.exceptions.MasterDownError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
)
_CODES = re.compile(
    r"\b(LOADING|CLUSTERDOWN|MASTERDOWN|OOM|READONLY|TRYAGAIN|MOVED|ASK|NOREPLICAS|MISCONF|BUSY|UNBLOCKED)\b"
)
"""Answers of a server that cannot serve the request now. The client has no class for some, and scripts wrap them."""

_NO_CLUSTER = re.compile(r"Cluster mode is not enabled|in cluster mode|Unix Domain")
"""Words of a cluster's client that was given no cluster's address."""


def connect(options: RedisOptions, *, blocks_seconds: float = 0.0) -> RedisClient:
    """A client that never sends a command twice. Only a cluster's client connects at once.

    :raises ConfigError: the settings are wrong. :raises UnavailableError: a cluster does not answer.
    """
    timeout = options.timeout_ms / 1000
    settings: dict[str, Any] = {
        "protocol": 2,
        "socket_connect_timeout": timeout,
        "socket_timeout": timeout + blocks_seconds,
        # If a command were sent twice, the second would be refused, and the first would look as if it had failed.
        "retry": Retry(NoBackoff(), 0),
    }
    if options.username is not None:
        settings["username"] = options.username
    if options.password is not None:
        settings["password"] = options.password.get_secret_value()
    with reaching(options):
        try:
            if options.cluster:
                return cast("RedisClient", RedisCluster.from_url(options.url, **settings))
            if options.sentinels:
                return _by_sentinel(options, settings)
            return cast("RedisClient", redis.Redis.from_url(options.url, **settings))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"iceberg.control.redis.url: {error}") from error


def _by_sentinel(options: RedisOptions, settings: dict[str, Any]) -> RedisClient:
    addresses = []
    for text in options.sentinels.split(","):
        host, _, port = text.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigError(f"iceberg.control.redis.sentinels: '{text.strip()}' is not host:port")
        addresses.append((host, int(port)))
    url = redis.connection.parse_url(options.url)
    url = {name: value for name, value in url.items() if name not in ("host", "port", "connection_class")}
    if options.url.startswith("rediss:"):
        url["ssl"] = True
    guards: dict[str, Any] = {name: value for name, value in url.items() if name.startswith("ssl")}
    guards |= {
        "socket_connect_timeout": settings["socket_connect_timeout"],
        "socket_timeout": options.timeout_ms / 1000,
    }
    if options.sentinel_username is not None:
        guards["username"] = options.sentinel_username
    if options.sentinel_password is not None:
        guards["password"] = options.sentinel_password.get_secret_value()
    sentinel = Sentinel(addresses, sentinel_kwargs=guards)
    client: RedisClient = sentinel.master_for(options.sentinel_service, **{**url, **settings})
    return client


@contextlib.contextmanager
def reaching(options: RedisOptions) -> Iterator[None]:
    """Translate the errors of a request that writes nothing.

    :raises ConfigError: user, password or rights are wrong. :raises SilentError: no answer in time.
    :raises UnavailableError: try again.
    """
    try:
        yield
    except ERRORS as error:
        raise refused(options, error) from error


@contextlib.contextmanager
def writing(options: RedisOptions) -> Iterator[None]:
    """Translate the errors of a script.

    :raises ConfigError, UnavailableError: nothing was written. :raises OutcomeUnknownError: it may have been.
    """
    try:
        yield
    except (redis.ResponseError, redis.exceptions.BusyLoadingError, *_REFUSED) as error:
        raise refused(options, error) from error
    except ERRORS as error:
        if UNTRUSTED in str(error):
            raise refused(options, error) from error
        raise OutcomeUnknownError(f"{where(options)}: {type(error).__name__}: {error}") from error


def where(options: RedisOptions) -> str:
    """The store's address for error texts, without secrets."""
    if options.sentinels:
        return f"Redis '{options.sentinel_service}' by Sentinel"
    parts = urlsplit(options.url)
    return f"Redis at {parts.hostname or parts.path}:{parts.port or 6379}"


def refused(options: RedisOptions, error: Exception) -> ConfigError | UnavailableError:
    """The error to raise for a failed request that wrote nothing."""
    if isinstance(error, _REFUSED):
        return ConfigError(f"{where(options)}: {error}; check iceberg.control.redis.username and .password")
    said = f"{where(options)}: {type(error).__name__}: {error}"
    if UNTRUSTED in said:
        return ConfigError(f"{said}; iceberg.control.redis.url needs ssl_ca_certs, a file that vouches for the server")
    if _NO_CLUSTER.search(said):
        return ConfigError(f"{said}; correct iceberg.control.redis.cluster or .url")
    if isinstance(error, _PASSING):
        return (SilentError if isinstance(error, redis.TimeoutError) else UnavailableError)(said)
    passes = isinstance(error, redis.ResponseError) and _CODES.search(str(error)) is not None
    if isinstance(error, redis.exceptions.InvalidResponse):
        said += "; does iceberg.control.redis.url name a Redis?"
    return (UnavailableError if passes else UnexpectedError)(said)
