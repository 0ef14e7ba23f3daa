"""TLS, with certificates on both sides, and Sentinels that ask for a password."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from calving.backend import SinkIdentity
from calving.errors import ConfigError, UnavailableError
from calving.services.process import LOOPBACK, free_port
from calving.services.stores import RedisServer, launch_redis
from calving_redis.backend import RedisBackend
from calving_redis.options import RedisOptions
from tests.publishing import publishes
from tests.tls import Authority, Front, Pair

pytestmark = pytest.mark.services


def works(**options: object) -> bool:
    """Whether a sink with these options gets a publication in, and reads it back."""
    return publishes(RedisBackend(SinkIdentity("sink", "group", "control"), RedisOptions(timeout_ms=2000, **options)))


@dataclass(frozen=True)
class Guarded:
    authority: Authority
    client: Pair
    port: int

    def url(self, trusted: Path) -> str:
        files = f"ssl_ca_certs={trusted}&ssl_certfile={self.client.certificate}&ssl_keyfile={self.client.key}"
        return f"rediss://{LOOPBACK}:{self.port}/0?{files}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    found = RedisServer(tmp_path / "redis")
    found.start()
    yield found
    found.stop()


@pytest.fixture
def guarded(server: RedisServer, tmp_path: Path) -> Iterator[Guarded]:
    authority = Authority(tmp_path / "certificates")
    front = Front(server.port, authority.issue("server"), authority.certificate)
    yield Guarded(authority, authority.issue("client"), front.port)
    front.close()


def test_tls_with_certificates_on_both_sides(guarded: Guarded) -> None:
    assert works(url=guarded.url(guarded.authority.certificate))


def test_a_server_that_nobody_vouches_for_is_not_talked_to(guarded: Guarded, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    with pytest.raises(ConfigError, match=r"certificate verify failed.*ssl_ca_certs"):
        works(url=guarded.url(other.certificate))


def test_a_client_without_a_certificate_is_refused(guarded: Guarded) -> None:
    with pytest.raises(UnavailableError):
        works(url=f"rediss://{LOOPBACK}:{guarded.port}/0?ssl_ca_certs={guarded.authority.certificate}")


def test_a_sentinel_may_have_a_password_of_its_own(server: RedisServer, tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind {LOOPBACK}\nrequirepass guard\nsentinel monitor shop {LOOPBACK} {server.port} 1\n"
    )
    sentinel = launch_redis([str(config), "--sentinel"], tmp_path / "sentinel.log")
    try:
        sentinel.wait_for_port(port)
        where = {"sentinels": f"{LOOPBACK}:{port}", "sentinel_service": "shop", "replicas": 0}
        assert works(**where, sentinel_password="guard")
        with pytest.raises((ConfigError, UnavailableError)) as error:
            works(**where, sentinel_password="wr0ng")
        assert "wr0ng" not in str(error.value)
    finally:
        sentinel.stop()
