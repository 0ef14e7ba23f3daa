"""Clients of ZooKeeper, and the translation of their errors."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NotReadOnlyCallError,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    ThrottledOpError,
    ZookeeperStoppedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from calving.backend import closing_on_error
from calving.errors import ConfigError, SilentError, UnavailableError, UnexpectedError
from calving_zookeeper.options import ZooKeeperOptions

_STOP_SECONDS = 2.0
_PASSING = (
    ConnectionClosedError,
    ConnectionLoss,
    NotReadOnlyCallError,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    ThrottledOpError,
    ZookeeperStoppedError,
    OSError,
)
"""Errors of an ensemble that is away or elects a leader, or of a session that has ended."""

logging.getLogger("kazoo").setLevel(logging.CRITICAL)


def connect(options: ZooKeeperOptions) -> Connection:
    """A connection that never sends a write twice.

    :raises ConfigError: the settings are wrong, or the user is refused. :raises SilentError: no answer in time.
    :raises UnavailableError: another failure.
    """
    settings: dict[str, Any] = {
        "hosts": options.hosts,
        "timeout": options.session_ms / 1000,
        "connection_retry": KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=1.0),
        "command_retry": KazooRetry(max_tries=0),
    }
    if options.authentication != "none":
        password = options.password.get_secret_value() if options.password is not None else ""
        settings["default_acl"] = CREATOR_ALL_ACL
        if options.authentication == "digest":
            settings["auth_data"] = [("digest", f"{options.username}:{password}")]
        else:
            mechanism = {"mechanism": "DIGEST-MD5", "username": options.username, "password": password}
            settings["sasl_options"] = mechanism
    if options.tls_ca is not None:
        settings |= {"use_ssl": True, "ca": options.tls_ca}
        settings |= {"certfile": options.tls_certificate, "keyfile": options.tls_key}
    # Wait at most a third of a session: other members may be waiting for the end of an earlier session of this process.
    wait_seconds = min(options.timeout_ms, options.session_ms / 3) / 1000
    with reaching(), closing_on_error(Connection(KazooClient(**settings), options.timeout_ms / 1000)) as connection:
        # start() would wait for the end of an attempt to connect before it reports a failure.
        connection.client.start_async().wait(wait_seconds)
        # kazoo is connected before SASL begins; requests wait for its end.
        if "sasl_options" in settings and connection.client.connected:
            with contextlib.suppress(AuthFailedError, ConnectionClosedError):
                connection.stat("/")
        if connection.refused.is_set():
            raise AuthFailedError("the ensemble refuses this user")
        if not connection.client.connected:
            raise KazooTimeoutError(f"no connection within {wait_seconds:g} s")
        return connection


class Connection:
    """One session with the ensemble. A request takes ``timeout`` seconds at most; kazoo's own wait for a connection."""

    def __init__(self, client: KazooClient, timeout: float) -> None:
        self.client, self.timeout = client, timeout
        self.stale = threading.Event()
        """Whether the watched children may have changed since they were listed."""
        self.stale.set()
        self.changed = threading.Event()
        """Wakes a thread that waits for a change."""
        self.refused = threading.Event()
        """Whether the ensemble refused the user. kazoo itself tells only requests that wait at that moment."""
        self._expired = threading.Event()
        client.add_listener(self._on_state)

    def is_up(self) -> bool:
        """Whether the client is connected now. A lost connection may come back; an expired session does not.

        :raises UnavailableError: the session has expired.
        """
        if self._expired.is_set():
            raise UnavailableError("ZooKeeper: the session has expired")
        return bool(self.client.state == KazooState.CONNECTED)

    def on_change(self, event: object) -> None:
        """A watch, which the client's thread calls."""
        self.stale.set()
        self.changed.set()

    def _on_state(self, state: str) -> None:
        if self.client.client_state == KeeperState.AUTH_FAILED:
            self.refused.set()
        if state == KazooState.LOST:
            self._expired.set()
        self.on_change(state)

    def get(self, path: str) -> tuple[bytes, Any]:
        """Content and stat, not older than any earlier answer to this client."""
        return self._wait(self.client.get_async(path))  # type: ignore[no-any-return]

    def latest(self, path: str) -> tuple[bytes, Any]:
        """Content and stat, not older than any earlier answer to any client."""
        self._wait(self.client.sync_async(path))
        return self.get(path)

    def children(self, path: str, watch: Callable[[object], None] | None = None) -> list[str]:
        """The names of the children, sorted. ``watch`` is called once, at the next change."""
        return sorted(self._wait(self.client.get_children_async(path, watch=watch)))

    def stat(self, path: str, watch: Callable[[object], None] | None = None) -> Any:
        """None if there is no such node."""
        return self._wait(self.client.exists_async(path, watch=watch))

    def create(self, path: str, content: bytes = b"", **how: bool) -> str:
        """Create a node; return its path."""
        return str(self._wait(self.client.create_async(path, content, **how)))

    def ensure(self, path: str) -> None:
        self._wait(self.client.ensure_path_async(path))

    def delete(self, path: str) -> None:
        self._wait(self.client.delete_async(path))

    def replace_and_create(
        self, path: str, content: bytes, version: int, created: tuple[str, bytes] | None
    ) -> list[Any]:
        """In one ``multi``: replace the content of ``path`` if the node still has this version, and create the node
        ``created``.

        Returns both results.
        """
        transaction = self.client.transaction()
        transaction.set_data(path, content, version=version)
        if created is not None:
            transaction.create(*created)
        return list(self._wait(transaction.commit_async()))

    def _wait(self, result: Any) -> Any:
        return result.get(timeout=self.timeout)

    def close(self) -> None:
        """End the session at once. Its ephemeral nodes are deleted when this call returns, if the ensemble answers in
        time.

        Without a connection this call does not wait for kazoo, which would finish its attempt to connect, or take ten
        seconds.
        """
        stopping = threading.Thread(target=self._stop, name="calving-zookeeper-stop", daemon=True)
        stopping.start()
        stopping.join(_STOP_SECONDS if self.client.connected else 0)

    def _stop(self) -> None:
        with contextlib.suppress(KazooException, KazooTimeoutError, OSError):
            self.client.stop()
            self.client.close()


@contextlib.contextmanager
def reaching() -> Iterator[None]:
    """Translate the errors of a request that writes nothing, or may be repeated.

    :raises ConfigError: the user is refused. :raises SilentError: no answer in time.
    :raises UnavailableError: try again. :raises UnexpectedError: try again, but not for ever.
    """
    try:
        yield
    except (KazooTimeoutError, KazooException, OSError) as error:
        raise refused(error) from error


def refused(error: Exception) -> ConfigError | UnavailableError:
    """The error to raise for a failed request that wrote nothing."""
    if isinstance(error, AuthFailedError | NoAuthError):
        return ConfigError(
            f"ZooKeeper: {type(error).__name__} {error}; check iceberg.control.zookeeper.username, .password and"
            " .authentication, and whose the nodes are"
        )
    if isinstance(error, KazooTimeoutError):
        return SilentError(f"ZooKeeper: {error}")
    kind = UnavailableError if isinstance(error, _PASSING) else UnexpectedError
    return kind(f"ZooKeeper: {type(error).__name__} {error}".rstrip())
