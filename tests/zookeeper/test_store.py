"""Facts about ZooKeeper alone: requests of limited size, sessions that expire, lost connections, users, trimming."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoAuthError
from kazoo.security import ACL, Id, Permissions

from calving.backend import Cursor, Session, SinkIdentity
from calving.errors import ConfigError, OutcomeUnknownError, SilentError, UnavailableError
from calving.model.events import CommitComplete, DataWritten, Publication, StartCommit, TableReference
from calving.model.files import DataFile
from calving.model.offsets import Advance, TopicPartition
from calving.services.stores import ZooKeeperServer
from calving.testing import member_claim
from calving_zookeeper import connection
from calving_zookeeper.backend import ZooKeeperBackend
from calving_zookeeper.options import ZooKeeperOptions
from calving_zookeeper.session import ZooKeeperSession
from harness.proxy import Proxy

pytestmark = pytest.mark.services

TP = TopicPartition("t", 0)
MANUAL = Path(__file__).parents[2] / "docs/reference/backends.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    found = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    found.start()
    yield found
    found.stop()


@pytest.fixture
def client(server: ZooKeeperServer) -> Iterator[KazooClient]:
    found = KazooClient(server.hosts)
    found.start()
    yield found
    found.stop()
    found.close()


@pytest.fixture
def proxy(server: ZooKeeperServer) -> Iterator[Proxy]:
    found = Proxy(server.port)
    yield found
    found.close()


class Opened(ZooKeeperBackend):
    """Its sessions end with the test: one whose server is gone would try to connect for ever."""

    sessions: ClassVar[list[Session]] = []

    def open(self, member_id: str) -> Session:
        self.sessions.append(super().open(member_id))
        return self.sessions[-1]


@pytest.fixture(autouse=True)
def _sessions_end() -> Iterator[None]:
    yield
    while Opened.sessions:
        Opened.sessions.pop().close()


class Made:
    def __init__(self, server: ZooKeeperServer, root: str) -> None:
        self.server, self.root = server, root

    def __call__(self, **options: object) -> ZooKeeperBackend:
        settings: dict[str, Any] = {
            "hosts": self.server.hosts,
            "root": self.root,
            "session_ms": 2000,
            "timeout_ms": 3000,
        }
        return Opened(SinkIdentity("sink", "group", "control"), ZooKeeperOptions(**{**settings, **options}))


def behind(proxy: Proxy, **options: object) -> ZooKeeperBackend:
    identity = SinkIdentity("sink", "group", f"control-{uuid4()}")
    return Opened(identity, ZooKeeperOptions(hosts=f"127.0.0.1:{proxy.port}", **options))


@pytest.fixture
def backend(server: ZooKeeperServer, unique: str) -> Made:
    return Made(server, f"/{unique}")


def move(start: int | None, end: int, files: int = 0) -> Publication:
    table = TableReference("c", ("db",), "t")
    found = tuple(DataFile(f"s3://b/{uuid4()}{'x' * 300}", "PARQUET", 1, 1) for _ in range(files))
    return Publication((DataWritten(uuid4(), table, found),) if files else (), {TP: Advance(start, end)}, {})


def test_a_publication_larger_than_a_request_leaves_no_blobs_behind_once_it_is_trimmed(
    backend: Made, client: KazooClient
) -> None:
    session = backend(audit_entries=0).open("m")
    cursor = session.follow(replay=True)
    session.publish(move(None, 5, files=6000), member_claim("group"))
    assert client.get_children(f"{backend.root}/control/group/blobs")
    for _ in range(2):
        position = {0: list(cursor.read(10))[-1].offset + 1}
        cursor.acknowledge(position, [CommitComplete(uuid4())])
    assert client.get_children(f"{backend.root}/control/group/blobs") == []
    cursor.close()
    session.close()


def test_blobs_of_a_writer_that_died_are_swept(backend: Made, client: KazooClient) -> None:
    from calving_zookeeper.store import ZooKeeperStore

    session = backend().open("m")
    root = f"{backend.root}/control/group"
    session.publish(move(None, 5, files=6000), member_claim("group"))
    kept = client.get_children(f"{root}/blobs")
    client.create(f"{root}/blobs/orphan", b"x")
    time.sleep(0.1)
    ZooKeeperStore(connection.Connection(client, 5), root).sweep(0.05)
    assert sorted(client.get_children(f"{root}/blobs")) == sorted(kept)
    session.close()


def test_committed_publications_are_trimmed_but_for_the_last_ones(backend: Made, client: KazooClient) -> None:
    cursor = backend(audit_entries=3).open("m").follow(replay=True)
    for _ in range(20):
        cursor.acknowledge({}, [StartCommit(uuid4())])
    found: list[Any] = []
    while len(found) < 20:
        found += cursor.read(2)
    cursor.acknowledge({0: found[-1].offset + 1}, [CommitComplete(uuid4())])
    assert len(client.get_children(f"{backend.root}/control/group/log")) == 5
    cursor.close()


@pytest.mark.parametrize("applied", [True, False])
def test_a_write_whose_answer_was_lost_is_found_out_by_reading_back(
    backend: Made, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    session = backend().open("m")
    original = connection.Connection.replace_and_create

    def lose(self: connection.Connection, *arguments: Any) -> list[Any]:
        monkeypatch.setattr(connection.Connection, "replace_and_create", original)
        if applied:
            original(self, *arguments)
        raise ConnectionLoss

    monkeypatch.setattr(connection.Connection, "replace_and_create", lose)
    if applied:
        session.publish(move(None, 5, files=1), member_claim("group"))
        assert session.committed([TP]) == {TP: 5}
    else:
        with pytest.raises(UnavailableError, match="nothing was written"):
            session.publish(move(None, 5, files=1), member_claim("group"))
        assert session.committed([TP]) == {}
    session.close()


def test_a_write_that_nobody_can_read_back_is_of_unknown_outcome(
    backend: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ZooKeeperServer(tmp_path)
    own.start()
    try:
        session = backend(hosts=own.hosts, timeout_ms=1500).open("m")
        original = connection.Connection.replace_and_create

        def cut(self: connection.Connection, *arguments: Any) -> list[Any]:
            original(self, *arguments)
            own.kill()
            raise ConnectionLoss

        monkeypatch.setattr(connection.Connection, "replace_and_create", cut)
        with pytest.raises(OutcomeUnknownError):
            session.publish(move(None, 5, files=1), member_claim("group"))
        session.close()
    finally:
        own.stop()


def test_an_expired_session_is_not_taken_for_a_lost_connection(backend: Made, client: KazooClient) -> None:
    session = backend().open("m")
    assert session.lead([TP], [TP])
    (candidate,) = client.get_children(f"{backend.root}/control/group/election")
    owner = client.exists(f"{backend.root}/control/group/election/{candidate}").ephemeralOwner
    # A second client with the session's id and password that closes it: what ZooKeeper itself does on expiry.
    assert isinstance(session, ZooKeeperSession)
    secret = session._store.connection.client.client_id
    assert secret[0] == owner
    thief = KazooClient(backend.server.hosts, client_id=secret)
    thief.start()
    thief.stop()
    thief.close()
    deadline = time.monotonic() + 120
    with pytest.raises(UnavailableError, match="expired"):
        while True:
            session.lead([TP], [TP])
            assert time.monotonic() < deadline
            time.sleep(0.1)
    session.close()


def test_a_worker_without_a_connection_says_so_before_its_session_expires(proxy: Proxy) -> None:
    session = behind(proxy, session_ms=4_000).open("m")
    assert session.lead([TP], [TP])
    proxy.hush()
    deadline = time.monotonic() + 120
    with pytest.raises(SilentError, match="no connection for"):
        while time.monotonic() < deadline:
            session.lead([TP], [TP])
            time.sleep(0.05)


def test_closing_does_not_wait_for_an_ensemble_that_does_not_answer(proxy: Proxy) -> None:
    session = behind(proxy, session_ms=40_000).open("m")
    cursor = session.follow(replay=False)
    proxy.hush()
    began = time.monotonic()
    cursor.close()
    session.close()
    assert time.monotonic() - began < 8


def test_an_ensemble_that_does_not_answer_is_not_waited_for_longer_than_a_third_of_a_session(proxy: Proxy) -> None:
    proxy.hush()
    began = time.monotonic()
    with pytest.raises(SilentError, match="no connection within 2 s"):
        behind(proxy, session_ms=6_000, timeout_ms=60_000).open("m")
    assert time.monotonic() - began < 5


def test_nodes_of_a_user_are_closed_to_others(backend: Made) -> None:
    mine = backend(authentication="digest", username="sink", password="secret")
    mine.provision()
    session = mine.open("m")
    session.publish(move(None, 5), member_claim("group"))
    session.close()
    with pytest.raises(ConfigError, match="NoAuth"):
        backend(authentication="digest", username="other", password="x").open("m")


def test_a_root_with_the_access_list_of_the_manual_is_the_sinks_alone(backend: Made, client: KazooClient) -> None:
    block = re.findall(r"^(addauth|create|setAcl) (.*)$", MANUAL.read_text(), re.MULTILINE)
    assert [command for command, _ in block] == ["addauth", "create", "setAcl"]
    operator = KazooClient(backend.server.hosts)
    operator.start()
    for command, said in block:
        words = said.replace("/calving", backend.root).replace("orders:PASSWORD", "sink:secret").split()
        match command:
            case "addauth":
                operator.add_auth(*words)
            case "create":
                operator.create(*words)
            case _:
                scheme, _, rights = words[1].split(":")
                assert rights == "cdrwa"
                operator.set_acls(words[0], [ACL(Permissions.ALL, Id(scheme, ""))])
    operator.stop()
    mine = backend(authentication="digest", username="sink", password="secret")
    mine.provision()
    session = mine.open("m")
    session.publish(move(None, 5), member_claim("group"))
    session.close()
    log = f"{backend.root}/control/group/log"
    for path in (f"{backend.root}/other", f"{log}/{1:019d}"):
        with pytest.raises(NoAuthError):
            client.create(path, b"x")
    with pytest.raises(NoAuthError):
        client.set(f"{backend.root}/control/group/state", b"{}")


def test_a_path_behind_the_hosts_is_the_root_of_all_nodes(backend: Made, client: KazooClient) -> None:
    client.ensure_path("/chroot")
    backend(hosts=f"{backend.server.hosts}/chroot").provision()
    assert client.exists(f"/chroot{backend.root}/control/group/state") is not None


def test_an_idle_sink_asks_nothing(backend: Made, client: KazooClient) -> None:
    sessions = [backend(session_ms=10_000).open(name) for name in "ab"]
    cursors = [sessions[0].follow(replay=True), sessions[1].follow(replay=False)]

    def turn() -> None:
        for session in sessions:
            session.lead([TP], [TP])
        for cursor in cursors:
            cursor.read(0)
        time.sleep(0.05)

    def received() -> int:
        lines = client.command(b"mntr").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("zk_packets_received"))

    for _ in range(5):
        turn()
    before = received()
    for _ in range(60):
        turn()
    assert received() - before < 20, "more than the clients' own pings"
    parts: list[Cursor | Session] = [*cursors, *sessions]
    for part in parts:
        part.close()


def test_a_change_before_the_answer_is_here_is_heard(backend: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch of a list may fire before the reader has gone on: then the list is old already."""
    session = backend().open("m")
    cursor = session.follow(replay=True)
    original = connection.Connection.children

    def slow(self: connection.Connection, path: str, watch: Any = None) -> list[str]:
        found = original(self, path, watch)
        if watch is not None:
            monkeypatch.setattr(connection.Connection, "children", original)
            session.publish(move(None, 5, files=1), member_claim("group"))
            time.sleep(0.5)
        return found

    monkeypatch.setattr(connection.Connection, "children", slow)
    assert list(cursor.read(0)) == []
    assert [type(e.event) for e in cursor.read(5)] == [DataWritten]
    cursor.close()
    session.close()


def test_a_leader_that_leaves_before_the_answer_is_here_is_replaced(
    backend: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = backend().open("a"), backend().open("b")
    assert first.lead([TP], [TP])
    original = connection.Connection.stat

    def slow(self: connection.Connection, path: str, watch: Any = None) -> Any:
        found = original(self, path, watch)
        monkeypatch.setattr(connection.Connection, "stat", original)
        first.close()
        time.sleep(0.5)
        return found

    monkeypatch.setattr(connection.Connection, "stat", slow)
    second.lead([TP], [TP])
    assert second.lead([TP], [TP])
    second.close()
