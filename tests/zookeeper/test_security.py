"""TLS with certificates on both sides, and SASL, on a server that wants them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

from calving.backend import SinkIdentity
from calving.errors import ConfigError, UnavailableError
from calving.services.process import LOOPBACK, free_port
from calving.services.stores import ZooKeeperServer
from calving_zookeeper.backend import ZooKeeperBackend
from calving_zookeeper.options import ZooKeeperOptions
from tests.publishing import publishes
from tests.tls import Authority, Pair

pytestmark = pytest.mark.services


@dataclass(frozen=True)
class Guarded:
    authority: Authority
    client: Pair
    hosts: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("zookeeper")
    authority, port = Authority(folder), free_port()
    users = folder / "users.conf"
    users.write_text(
        'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_sink="secret" user_other="x"; };'
    )
    settings = {
        "secureClientPort": str(port),
        "secureClientPortAddress": LOOPBACK,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(authority.issue("server").both),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(authority.certificate),
        "ssl.trustStore.type": "PEM",
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    }
    server = ZooKeeperServer(folder / "server", settings, [f"-Djava.security.auth.login.config={users}"])
    server.start()
    yield Guarded(authority, authority.issue("client"), f"{LOOPBACK}:{port}")
    server.stop()


# On a busy machine, the handshakes of TLS and SASL take more than two seconds.
_LONG = {"session_ms": 60_000, "timeout_ms": 20_000}
_SHORT = {"timeout_ms": 3000}
"""Where no session comes about."""


def works(guarded: Guarded, root: str, **options: object) -> bool:
    """Whether a sink with these options gets a publication in, and reads it back."""
    tls = {"tls_ca": str(guarded.authority.certificate)}
    tls |= {"tls_certificate": str(guarded.client.certificate), "tls_key": str(guarded.client.key)}
    settings = {"hosts": guarded.hosts, "root": f"/{root}", **_LONG, **tls, **options}
    return publishes(ZooKeeperBackend(SinkIdentity("sink", "group", "control"), ZooKeeperOptions(**settings)))


def sasl(username: str, password: str) -> dict[str, object]:
    return {"authentication": "sasl-digest", "username": username, "password": password}


def test_tls_with_certificates_on_both_sides(guarded: Guarded, unique: str) -> None:
    assert works(guarded, unique)


def test_a_server_that_nobody_vouches_for_is_not_talked_to(guarded: Guarded, unique: str, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        works(guarded, unique, tls_ca=str(Authority(tmp_path).certificate), **_SHORT)


def test_a_client_without_a_certificate_is_refused(guarded: Guarded, unique: str) -> None:
    with pytest.raises(UnavailableError):
        works(guarded, unique, tls_certificate=None, tls_key=None, **_SHORT)


def test_nodes_of_a_sasl_user_are_closed_to_others(guarded: Guarded, unique: str) -> None:
    assert works(guarded, unique, **sasl("sink", "secret"))
    # The nodes are those of the certificate, too.
    other = guarded.authority.issue("other")
    files = {"tls_certificate": str(other.certificate), "tls_key": str(other.key)}
    with pytest.raises(ConfigError, match="NoAuth"):
        works(guarded, unique, **files, **sasl("other", "x"))


def test_a_wrong_sasl_password_is_a_matter_of_configuration_and_is_not_shown(guarded: Guarded, unique: str) -> None:
    with pytest.raises(ConfigError, match="password") as error:
        works(guarded, unique, **sasl("sink", "wr0ng"))
    assert "wr0ng" not in str(error.value)


def test_so_it_is_if_the_refusal_came_before_the_first_request(
    guarded: Guarded, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start: Callable[[KazooClient], threading.Event] = KazooClient.start_async

    def start_and_wait_for_the_end(client: KazooClient) -> threading.Event:
        connected, ended = start(client), threading.Event()
        client.add_listener(lambda state: ended.set() if state == KazooState.LOST else None)
        assert ended.wait(60)
        return connected

    monkeypatch.setattr(KazooClient, "start_async", start_and_wait_for_the_end)
    with pytest.raises(ConfigError, match="password"):
        works(guarded, unique, **sasl("sink", "wr0ng"))
