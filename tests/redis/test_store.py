"""Facts about Redis alone: persistence that may lose writes, eviction, users, clusters, Sentinel, trimming."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
import redis

from calving.backend import Cursor, Session, SinkIdentity
from calving.errors import ConfigError, FencedError, OutcomeUnknownError, SilentError, UnavailableError
from calving.model.events import NO_COMMIT, CommitComplete, DataComplete, Envelope, Publication, StartCommit
from calving.model.offsets import Advance, TopicPartition
from calving.services.process import free_port
from calving.services.stores import RedisServer, launch_redis
from calving.testing import member_claim
from calving_redis.backend import RedisBackend
from calving_redis.options import RedisOptions
from harness.proxy import Proxy
from harness.waiting import wait_for

pytestmark = pytest.mark.services

Start = Callable[..., RedisServer]
TP = TopicPartition("t", 0)
KEYS = "calving:{control:group}:"
MANUAL = Path(__file__).parents[2] / "docs/reference/backends.md"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[RedisServer] = []

    def run(settings: Mapping[str, str] | None = None) -> RedisServer:
        made.append(RedisServer(tmp_path / f"redis-{len(made)}", settings))
        made[-1].start()
        return made[-1]

    yield run
    for server in made:
        server.stop()


@pytest.fixture
def proxy(start: Start) -> Iterator[Proxy]:
    found = Proxy(start().port)
    yield found
    found.close()


def backend(server: RedisServer, **options: object) -> RedisBackend:
    return RedisBackend(
        SinkIdentity("sink", "group", "control"), RedisOptions(url=server.url, timeout_ms=2000, **options)
    )


def behind(proxy: Proxy, **options: object) -> RedisBackend:
    url = f"redis://127.0.0.1:{proxy.port}/0"
    return RedisBackend(SinkIdentity("sink", "group", "control"), RedisOptions(url=url, **options))


def move(start: int | None, end: int) -> Publication:
    return Publication((), {TP: Advance(start, end)}, {})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"appendonly": "no"}, "appendonly is off"),
        ({"appendfsync": "no"}, "appendfsync is no"),
        ({"maxmemory-policy": "allkeys-lru"}, "maxmemory-policy is allkeys-lru"),
    ],
)
def test_a_store_that_may_lose_what_it_acknowledged_is_refused(
    start: Start, settings: Mapping[str, str], said: str
) -> None:
    server = start(settings)
    with pytest.raises(ConfigError, match=said):
        backend(server).provision()
    backend(server, accept_loss=True).provision()


def test_a_wrong_password_is_a_matter_of_configuration_and_is_not_shown(start: Start) -> None:
    server = start({"requirepass": "right"})
    with pytest.raises(ConfigError, match="password") as error:
        backend(server, password="wr0ng").provision()
    assert "wr0ng" not in str(error.value)
    backend(server, password="right").provision()


def test_a_user_with_the_rights_of_the_manual_runs_a_sink_and_reaches_no_other(start: Start) -> None:
    server = start()
    (command,) = re.findall(r"^ACL SETUSER orders (.*)$", MANUAL.read_text(), re.MULTILINE)
    with redis.Redis(port=server.port) as client:
        for user, sink in (("sink", "control:group"), ("stranger", "control:other")):
            rights = command.replace("control-orders:connect-orders", sink).replace("PASSWORD", "s")
            client.execute_command("ACL", "SETUSER", user, *rights.split())
    b = backend(server, username="sink", password="s")
    b.provision()
    session = b.open("m")
    assert session.lead([TP], [TP])
    session.publish(replace(move(None, 5), events=(DataComplete(NO_COMMIT),)), member_claim("group"))
    cursor = session.follow(replay=True)
    cursor.acknowledge({}, [StartCommit(uuid4())])
    assert session.committed([TP]) == {TP: 5}
    assert cursor.read(10)
    cursor.close()
    session.close()
    with redis.Redis(port=server.port, username="stranger", password="s") as client:
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.xadd(f"{KEYS}log", {"e": "x"})
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.hset(f"{KEYS}state", "saved", "9")


def test_a_store_out_of_memory_writes_nothing(start: Start) -> None:
    server = start()
    session = backend(server).open("m")
    redis.Redis(port=server.port).config_set("maxmemory", "100kb")  # less than any server has from its start
    with pytest.raises(UnavailableError, match=r"OOM|OutOfMemory"):
        session.publish(move(None, 5), member_claim("group"))
    assert session.committed([TP]) == {}
    session.close()


@pytest.mark.parametrize("odd", ["tomorrow", f"{2**64 - 1}-{2**64 - 1}"])
def test_an_entry_of_a_stranger_in_the_future_stops_the_sink_until_it_is_recovered(start: Start, odd: str) -> None:
    server = start()
    session, cursor = backend(server).open("m"), backend(server).open("c").follow(replay=True)
    session.publish(replace(move(None, 5), events=(DataComplete(NO_COMMIT),)), member_claim("group"))
    stream = "calving:{control:group}:log"
    with redis.Redis(port=server.port) as client:
        client.xadd(stream, {"x": "y"}, id=odd.replace("tomorrow", f"{time.time_ns() // 1000 + 86_400_000_000}-0"))
    appends: list[Callable[[], None]] = [
        lambda: session.publish(replace(move(5, 9), events=(DataComplete(NO_COMMIT),)), member_claim("group")),
        lambda: cursor.acknowledge({}, [StartCommit(uuid4())]),
    ]
    for append in appends:
        with pytest.raises(ConfigError, match="somebody else has added one with an ID in the future") as refused:
            append()
        assert f"stream '{stream}'" in str(refused.value) and "`calving recover FILE`" in str(refused.value)
    assert session.committed([TP]) == {TP: 5}
    with contextlib.closing(backend(server).open("operator").follow(replay=True)) as operator:
        operator.rewind({TP: 5})
    cursor.close()
    session.close()
    after = backend(server).open("n")
    watcher = after.watch()
    after.publish(replace(move(5, 9), events=(DataComplete(NO_COMMIT),)), member_claim("group"))
    wait_for(lambda: any(isinstance(e.event, DataComplete) for e in watcher.read(0.1)))
    watcher.close()
    after.close()


def test_a_store_that_was_emptied_refuses_whoever_was_connected_before(start: Start) -> None:
    server = start()
    session, cursor = backend(server).open("m"), backend(server).open("c").follow(replay=True)
    with redis.Redis(port=server.port) as client:
        client.flushall()
    backend(server).open("another").close()
    with pytest.raises(FencedError, match="emptied"):
        session.publish(move(None, 5), member_claim("group"))
    with pytest.raises(FencedError, match="emptied"):
        cursor.acknowledge({}, [StartCommit(uuid4())])
    with pytest.raises(FencedError, match="emptied"):
        cursor.rewind({TP: 3})
    assert session.committed([TP]) == {}
    cursor.close()
    session.close()


def test_a_missing_replica_leaves_the_outcome_open(start: Start) -> None:
    session = backend(start(), replicas=1).open("m")
    with pytest.raises(OutcomeUnknownError, match="0 of 1 replicas"):
        session.publish(move(None, 5), member_claim("group"))
    session.close()


def test_a_replica_that_has_it_counts(start: Start, tmp_path: Path) -> None:
    primary = start()
    replica = start({"replicaof": f"127.0.0.1 {primary.port}"})
    client = redis.Redis(port=primary.port, decode_responses=True)
    deadline = time.monotonic() + 120
    while client.info("replication").get("slave0", {}).get("state") != "online":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    client.close()
    session = backend(primary).open("m")
    session.publish(move(None, 5), member_claim("group"))
    session.close()
    with pytest.raises(ConfigError, match="is a replica"):
        backend(replica).provision()


def test_committed_events_are_trimmed_after_the_audit_time(start: Start) -> None:
    server = start()
    cursor = backend(server, audit_ms=0).open("m").follow(replay=True)
    for _ in range(50):
        cursor.acknowledge({}, [StartCommit(uuid4())])
    found: list[Envelope] = []
    while len(found) < 50:
        found += cursor.read(1)
    cursor.acknowledge({0: found[-1].offset + 1}, [CommitComplete(uuid4())])
    with redis.Redis(port=server.port) as client:
        assert client.xlen("calving:{control:group}:log") == 1
    cursor.close()


def test_offsets_go_on_after_a_loss_of_the_last_writes(start: Start) -> None:
    """A failover to a copy that missed them: the clock of the store keeps offsets from being given again."""
    server = start()
    client = redis.Redis(port=server.port)
    cursor = backend(server).open("m").follow(replay=True)
    cursor.acknowledge({}, [StartCommit(uuid4())])
    copies = {key: client.dump(key) for key in client.keys("*")}
    cursor.acknowledge({}, [StartCommit(uuid4())])
    lost = [*cursor.read(2), *cursor.read(1)][-1].offset
    cursor.close()
    for key, copy in copies.items():
        assert copy is not None
        client.restore(key, 0, copy, replace=True)
    again = backend(server).open("m").follow(replay=True)
    again.acknowledge({}, [StartCommit(uuid4())])
    found: list[Envelope] = []
    while len(found) < 2:
        found += again.read(1)
    assert found[-1].offset > lost
    again.close()
    client.close()


def test_the_epoch_outlives_the_lease(start: Start) -> None:
    server = start()
    first = backend(server, lease_ms=500).open("a")
    assert first.lead([TP], [TP])
    first.follow(replay=True).close()
    first.close()
    with redis.Redis(port=server.port, decode_responses=True) as client:
        assert client.hget("calving:{control:group}:state", "epoch") == "1"
        assert client.get("calving:{control:group}:lease") is None


def test_a_leader_that_dies_without_a_word_is_replaced_after_its_lease(start: Start) -> None:
    server = start()
    first, second = backend(server, lease_ms=900).open("a"), backend(server, lease_ms=900).open("b")
    assert first.lead([TP], [TP])
    started = time.monotonic()
    while not second.lead([TP], [TP]):
        assert time.monotonic() - started < 5
        time.sleep(0.05)
    assert time.monotonic() - started > 0.5
    second.close()
    first.close()


def test_a_store_that_does_not_answer_is_told_from_one_that_refuses(proxy: Proxy) -> None:
    session = behind(proxy, timeout_ms=2_000).open("m")
    proxy.hush()
    with pytest.raises(SilentError):
        session.lead([TP], [TP])
    proxy.mend()
    proxy.cut()
    with pytest.raises(UnavailableError) as refused:
        session.lead([TP], [TP])
    assert not isinstance(refused.value, SilentError)


def test_closing_does_not_wait_for_a_store_that_does_not_answer(proxy: Proxy) -> None:
    session = behind(proxy, timeout_ms=30_000).open("m")
    cursor = session.follow(replay=False)
    proxy.hush()
    began = time.monotonic()
    cursor.close()
    session.close()
    assert time.monotonic() - began < 10


def test_an_idle_sink_costs_the_store_little(start: Start) -> None:
    server = start()
    sessions = [backend(server).open(name) for name in "ab"]
    cursors = [sessions[0].follow(replay=True), sessions[1].follow(replay=False)]
    with redis.Redis(port=server.port) as client:
        before = client.info("stats")["total_commands_processed"]
        for _ in range(60):
            for session in sessions:
                session.lead([TP], [TP])
            for cursor in cursors:
                cursor.read(0)
            time.sleep(0.05)
        spent = client.info("stats")["total_commands_processed"] - before
    assert spent < 15, f"{spent} commands in three seconds"
    parts: list[Cursor | Session] = [*cursors, *sessions]
    for part in parts:
        part.close()


def test_a_cluster_serves_as_well(start: Start) -> None:
    server = start({"cluster-enabled": "yes", "cluster-port": str(free_port())})
    with redis.Redis(port=server.port) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        deadline = time.monotonic() + 120
        while "ok" not in str(client.execute_command("CLUSTER", "INFO")).split("cluster_slots_assigned")[0]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    b = backend(server, cluster=True)
    b.provision()
    session = b.open("m")
    cursor = session.follow(replay=True)
    session.publish(move(None, 5), member_claim("group"))
    cursor.acknowledge({}, [StartCommit(uuid4())])
    assert [type(e.event) for e in cursor.read(5)] == [StartCommit]
    assert session.committed([TP]) == {TP: 5}
    cursor.close()
    session.close()


def test_sentinel_names_the_primary(start: Start, tmp_path: Path) -> None:
    server, port = start(), free_port()
    config = tmp_path / "sentinel.conf"
    config.write_text(f"port {port}\nbind 127.0.0.1\nsentinel monitor shop 127.0.0.1 {server.port} 1\n")
    sentinel = launch_redis([str(config), "--sentinel"], tmp_path / "sentinel.log")
    try:
        sentinel.wait_for_port(port)
        b = backend(server, sentinels=f"127.0.0.1:{port}", sentinel_service="shop", replicas=0)
        b.provision()
        session = b.open("m")
        session.publish(move(None, 5), member_claim("group"))
        assert session.committed([TP]) == {TP: 5}
        session.close()
    finally:
        sentinel.stop()
