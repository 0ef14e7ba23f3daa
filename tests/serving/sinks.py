"""Statuses of sinks, well and not, and a server over them."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from calving.errors import CalvingError
from calving.model.events import TargetState
from calving.model.mutation_counts import MutationCounts
from calving.model.offsets import TopicPartition
from calving.serving.history import History
from calving.serving.server import StatusServer
from calving.settings.load import Sink, parse
from calving.status.backlog import Backlog, Mark
from calving.status.board import after_cycle
from calving.status.cycle_times import CYCLE_STEPS
from calving.status.histogram import BYTES, SECONDS, Histogram
from calving.status.maintenance import MaintenanceRun, MaintenanceStatus, after_begin, after_run
from calving.status.values import (
    NO_SECONDS,
    NO_SIZES,
    Batches,
    CommitCycle,
    CoordinatorStatus,
    LogStatus,
    PartitionStatus,
    RecordCounts,
    SinkFacts,
    Status,
    TableCommit,
    TableStatus,
    WorkerStatus,
)

TOKEN = "0123456789abcdef"
NOW = 1_790_000_000.0


def sink(**keys: object) -> Sink:
    """One with secrets in it."""
    return parse(
        {
            "name": "orders",
            "topics": "orders",
            "iceberg.tables": "db.orders",
            "iceberg.engine": "local",
            "iceberg.http.port": "0",
            "kafka.bootstrap.servers": "broker:9092",
            "kafka.sasl.password": "hunter2-kafka",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": "https://user:hunter2-url@catalog.example.com",
            "iceberg.catalog.token": "hunter2-token",
            "iceberg.notify.webhook-url": "https://hooks.example.com/hunter2-hook",
            **{key: str(value) for key, value in keys.items()},
        }
    )


def status(now: float = NOW, *, tables: int = 3, partitions: int = 6, broken: int = 0) -> Status:
    """Of a sink that leads; its first ``broken`` tables take nothing."""
    names = [f"db.t{i:03}" for i in range(tables)]
    facts = SinkFacts("orders", "connect-orders", "m-1", "0.2.0", "kafka", "spark", now - 7_200, 10.0, 30.0)
    held = {
        TopicPartition("orders", p): PartitionStatus(
            90_000 + 1_000 * p, 100_000, 88_000 + 1_000 * p, int((now - 4) * 1e6), now - 9 - p
        )
        for p in range(partitions)
    }
    records = RecordCounts(
        {"orders": 1_000_000},
        dict.fromkeys(names, 990000 // tables),
        {"VALUE_CONVERTER": 60, "TASK_PUT": 40},
        {"tombstone": 9_900},
        60,
        40,
        100 + 990_000 // tables * tables - 990_000,
    )
    batches = Batches(
        120,
        600,
        records,
        NO_SECONDS.observe([0.4, 1.2, 3.0]),
        NO_SIZES.observe([8_000, 20_000]),
        {"data": Histogram.of(BYTES).observe([3e6, 5e7])},
        {"fetch": 1.5, "decode": 3.25, "write": 4.0},
        ((20_000, 1), (20_000, 0)),
        ("topic 'orders', partition 2, offset 93120: field 'amount': ' 12' is not a double",),
    )
    worker = WorkerStatus(
        True,
        True,
        True,
        None,
        True,
        held,
        sum(each.source_lag for each in held.values()),
        0,
        batches,
        {},
        0,
        {"done": 240, "fenced": 1},
        0,
        1,
        backlog=Backlog(
            1_000_000,
            sum(each.source_lag for each in held.values()),
            0,
            frozenset(held),
            (Mark(now - 41, 840_000, 205_000), Mark(now - 21, 920_000, 125_000), Mark(now - 1, 1_000_000, 45_000)),
        ),
    )
    log = LogStatus(
        {
            name: TableStatus(now - 400, 7, int((now - 402) * 1e6), 14, now - 380, 38)
            if i < broken
            else TableStatus(now - 3, 42 + i, int((now - 5) * 1e6))
            for i, name in enumerate(names)
        },
        now - 3,
        int((now - 5) * 1e6),
        had_all_answers=True,
    )
    steps = {step: Histogram.of(SECONDS).observe([0.02]) for step in CYCLE_STEPS}
    return Status(facts, worker, log, _coordinator(names, broken, now), _maintenance(names, now), steps)


def _maintenance(names: list[str], now: float) -> MaintenanceStatus:
    found = MaintenanceStatus()
    for name in names:
        joined = MaintenanceRun("compact", "done", "14 files became 1 file", now - 60, 1.5, 10**6)
        found = after_run(after_begin(found, name, now - 61.5), name, joined)
    return found


def _coordinator(names: list[str], broken: int, now: float) -> CoordinatorStatus:
    found = CoordinatorStatus()
    for n in range(20):
        commits = tuple(
            TableCommit(name, "failed", 0.5, {"load": 0.5}, reason="the catalog answers 500")
            if i < broken
            else TableCommit(
                name,
                "done",
                0.2 + 0.01 * n,
                {"load": 0.03, "resolve": 0.01, "write": 0.06, "commit": 0.1 + 0.01 * n},
                2,
                4_000,
                None,
                120 + n,
                0,
                10**9,
                MutationCounts(500, 480, 470, 10, 480, 40, 38) if i % 2 else None,
                f"c-{n:02}",
            )
            for i, name in enumerate(names)
        )
        failing = dict.fromkeys(names[:broken], n + 1)
        cycle = CommitCycle(
            f"c-{n:02}", now - 10 * (20 - n) + 7, "full", 1.4, 0.4, None, (), len(names) - broken, broken, commits
        )
        found = after_cycle(found, cycle, failing, {}, 14 * broken)
        found = replace(found, key_cache=dict.fromkeys(names[1::2], 4_096))
    return found


@dataclass
class Control:
    """The positions of a sink that does not exist."""

    told: list[str]
    positions: dict[TopicPartition, int] = field(default_factory=lambda: {TopicPartition("orders", 0): 7})
    refusal: CalvingError | None = None

    def tell(self, state: TargetState) -> None:
        self.told.append(state.value)

    def stored(self) -> dict[TopicPartition, int]:
        return self.positions

    def move(self, to: Mapping[TopicPartition, int | None] | None) -> list[str]:
        if self.refusal is not None:
            raise self.refusal
        self.told.append(f"move {to and {str(tp): at for tp, at in to.items()}}")
        return ["orders-0: back from 7 to 5: 2 offsets to read again"]


@dataclass
class Worker:
    """The controls of a worker that does not exist."""

    status: Status
    stopped: dict[str, float] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    @cached_property
    def control(self) -> Control:
        return Control(self.told)

    @property
    def is_stopped(self) -> bool:
        return self.status.worker.stopped

    def stopped_loops(self) -> Mapping[str, float]:
        return self.stopped

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")

    def restart(self) -> None:
        self.told.append("restart")

    def commit(self) -> bool:
        self.told.append("commit")
        return self.status.worker.leads


@dataclass(frozen=True)
class Answer:
    code: int
    text: str
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Client:
    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path.lstrip("/"), data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return Answer(answer.status, answer.read().decode(), dict(answer.headers))
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read().decode(), dict(error.headers))


@contextlib.contextmanager
def serving(worker: Worker, configured: Sink | None = None, history: History | None = None) -> Iterator[Client]:
    server = StatusServer(configured or sink(), worker, history)
    try:
        client = Client(server.url)
        deadline = time.monotonic() + 10
        while True:
            with contextlib.suppress(OSError):
                client.get("healthz")
                break
            assert time.monotonic() < deadline
        yield client
    finally:
        server.close()


def not_leading(found: Status) -> Status:
    return replace(found, worker=replace(found.worker, leads=False))
