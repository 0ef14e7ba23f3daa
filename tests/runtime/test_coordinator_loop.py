"""The coordinator's driver over the memory backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar
from uuid import uuid4

import pytest

from calving.backend import SinkIdentity
from calving.backend.memory import MemoryBackend, MemoryCursor, MemorySession, MemoryStore
from calving.errors import UnexpectedError
from calving.model.events import (
    DataComplete,
    DataWritten,
    Envelope,
    PartitionProgress,
    Publication,
    TableId,
    TableMark,
    TableReference,
)
from calving.model.files import DataFile
from calving.model.forms import NEWEST, OLDEST, StoredForm
from calving.model.members import Member
from calving.model.offsets import Advance, Span, TopicPartition
from calving.model.sink import Claim
from calving.protocol.coordinator import Committed, Coordinator, Failed, Intervals
from calving.protocol.effects import CommitTables
from calving.runtime.coordinator import CoordinatorLoop

PARTITIONS = frozenset((TopicPartition("s", 0),))


class NoTables:
    seen: ClassVar[Mapping[TableId, TableMark]] = {}

    def commit(self, request: CommitTables) -> list[tuple[TableId, Committed | Failed]]:
        return []


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def loop() -> CoordinatorLoop:
    backend = MemoryBackend(SinkIdentity("sink", "group", "control"), store=MemoryStore())
    cursor = backend.open("m").follow(replay=True)
    clock, tables = Clock(), NoTables()
    machine = Coordinator(Intervals(5, 20, 5), cursor.log.start, clock(), tables.seen)
    return CoordinatorLoop(cursor, tables, lambda: PARTITIONS, machine, clock, uuid4, lambda asked: ())


def test_a_coordinator_that_hears_itself_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    running = loop()
    for _ in range(200):
        running.step(0)
    assert running.complete_cycles > 3


def test_a_coordinator_that_does_not_hear_itself_steps_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryCursor, "read", lambda self, timeout: [])
    running = loop()
    with pytest.raises(UnexpectedError, match="has not heard its own StartCommit"):
        for _ in range(200):
            running.step(0)


class Noted(NoTables):
    """Commits every table, and keeps the forms in which it was asked to."""

    def __init__(self) -> None:
        self.forms: list[StoredForm] = []

    def commit(self, request: CommitTables) -> list[tuple[TableId, Committed | Failed]]:
        self.forms.append(request.form)
        return [(table, Committed(TableReference("c", ("db",), "t"), 1)) for table in request.tables]


def test_tables_are_written_in_a_form_once_the_log_says_that_all_workers_know_it() -> None:
    store, tables, clock = MemoryStore(), Noted(), Clock()
    later = StoredForm(NEWEST.number + 1, "0.9.0")
    cursor = MemoryBackend(SinkIdentity("sink", "group", "control"), store=store).open("m").follow(replay=True)
    machine = Coordinator(Intervals(5, 20, 5), cursor.log.start, clock(), tables.seen)
    running = CoordinatorLoop(cursor, tables, lambda: PARTITIONS, machine, clock, uuid4, lambda asked: (), newest=later)
    worker, source = MemorySession(store, "w"), TopicPartition("s", 0)
    for cycle in range(2):
        while not machine.missing:
            running.step(0)
        table = TableReference("c", ("db",), "t")
        written = DataWritten(machine._commit_id, table, (DataFile(f"{cycle}.parquet", "PARQUET", 1, 1),))
        done = DataComplete(written.commit_id, (PartitionProgress(source, cycle + 1),))
        advance = {source: Advance(cycle or None, cycle + 1)}
        answer = Publication(
            (written, done), advance, {source: (Span(cycle, cycle + 1),)}, member=Member("", "", later)
        )
        worker.publish(answer, Claim("w", 1))
        while machine.missing:
            running.step(0)
    assert tables.forms == [OLDEST, later]


def test_a_coordinator_does_not_listen_beyond_the_time_of_its_next_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    running = loop()
    while not running.complete_cycles:
        running.step(0)
    listened: list[float] = []

    def read(self: MemoryCursor, timeout: float) -> list[Envelope]:
        listened.append(timeout)
        return []

    monkeypatch.setattr(MemoryCursor, "read", read)
    monkeypatch.setattr(running, "_clock", lambda: running.machine.started + 4.9)
    running.step(1.0)
    assert listened == [pytest.approx(0.1)]
