"""The coordinator's driver over the memory backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar
from uuid import uuid4

import pytest

from calving.backend import SinkIdentity
from calving.backend.memory import MemoryBackend, MemoryCursor, MemorySession, MemoryStore
from calving.errors import UnexpectedError
from calving.model.events import (
    Attachment,
    CommitComplete,
    DataComplete,
    DataWritten,
    Envelope,
    Leader,
    PartitionProgress,
    Publication,
    TableId,
    TableReference,
)
from calving.model.files import DataFile
from calving.model.forms import NEWEST, OLDEST, StoredForm
from calving.model.marks import TableMark
from calving.model.members import Member
from calving.model.offsets import Advance, Span, TopicPartition
from calving.model.sink import Claim
from calving.protocol.coordinator import Committed, Coordinator, Failed, Intervals
from calving.protocol.effects import CommitTables
from calving.runtime.coordinator import CoordinatorLoop

BRANCH = "iceberg.tables.default-commit-branch"
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


def loop(store: MemoryStore | None = None) -> CoordinatorLoop:
    backend = MemoryBackend(SinkIdentity("sink", "group", "control"), store=store or MemoryStore())
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


def test_a_cycle_tells_how_many_partitions_had_not_answered_when_it_ended() -> None:
    store = MemoryStore()
    running = loop(store)
    while running.complete_cycles < 1:
        running.step(0)
    log = MemoryBackend(SinkIdentity("sink", "group", "control"), store=store).open("n").follow(replay=True).read(0)
    assert [each.attached.unanswered for each in log if isinstance(each.event, CommitComplete)] == [len(PARTITIONS)]


class Noted(NoTables):
    """Commits every table, and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[CommitTables] = []

    def commit(self, request: CommitTables) -> list[tuple[TableId, Committed | Failed]]:
        self.requests.append(request)
        return [(table, Committed(TableReference("c", ("db",), "t"), 1)) for table in request.tables]


LATER = StoredForm(NEWEST.number + 1, "0.9.0")
OWN = Member("", "aa", LATER, keys={BRANCH: "1"})


def requests(
    *members: Member,
    own: Member | None = OWN,
    answers: bool = True,
    hidden: bool = False,
    told: tuple[Member, ...] = (),
) -> list[CommitTables]:
    """What is asked of the tables in cycles to which one worker after the other answers. ``hidden``: the broker shows
    no partition meanwhile. ``told``: the workers that a former coordinator tells of.
    """
    shown = [PARTITIONS | ({TopicPartition("s", 1)} if not answers else set())]
    store, tables, clock = MemoryStore(), Noted(), Clock()
    backend = MemoryBackend(SinkIdentity("sink", "group", "control"), store=store)
    former = Attachment(leader=Leader("former", "", ""), members=told)
    backend.open("former").follow(replay=True).acknowledge({}, (CommitComplete(uuid4()),), former)
    cursor = backend.open("m").follow(replay=True)
    machine = Coordinator(Intervals(5, 20, 5), cursor.log.start, clock(), tables.seen)
    running = CoordinatorLoop(
        cursor=cursor,
        committer=tables,
        partitions=lambda: shown[0],
        machine=machine,
        clock=clock,
        fresh_id=uuid4,
        unknown=lambda asked: (),
        leader=Leader("m", "", ""),
        newest=LATER,
        own=own,
    )
    source = TopicPartition("s", 0)
    shows = shown[0]
    for cycle, member in enumerate(members):
        shown[0] = shows
        while not machine.missing:
            running.step(0)
        table = TableReference("c", ("db",), "t")
        written = DataWritten(machine.commit_id, table, (DataFile(f"{cycle}.parquet", "PARQUET", 1, 1),))
        done = DataComplete(written.commit_id, (PartitionProgress(source, cycle + 1),))
        advance = {source: Advance(cycle or None, cycle + 1)}
        answer = Publication((written, done), advance, {source: (Span(cycle, cycle + 1),)}, member=member)
        MemorySession(store, f"w{member.settings}").publish(answer, Claim("w", 1))
        shown[0] = frozenset() if hidden else shows
        while len(tables.requests) <= cycle:
            running.step(0)
    return tables.requests


def test_tables_are_written_in_a_form_once_the_log_says_that_all_workers_know_it() -> None:
    assert [request.form for request in requests(OWN, OWN)] == [OLDEST, LATER]


def test_a_table_is_disputed_until_no_worker_with_another_branch_has_answered_for_three_cycles() -> None:
    other = replace(OWN, settings="bb", keys={BRANCH: "2"})
    asked = requests(OWN, other, *[OWN] * 4)
    assert [bool(request.disputed) for request in asked] == [False, *[True] * 3, False, False]
    assert all(request.heard_all for request in asked)


def test_a_table_is_disputed_for_three_cycles_by_a_worker_that_the_former_leader_tells_of() -> None:
    other = replace(OWN, settings="bb", keys={BRANCH: "2"}, id="wbb")
    assert [bool(request.disputed) for request in requests(*[OWN] * 5, told=(OWN, other))] == [
        *[True] * 3,
        False,
        False,
    ]


def test_what_the_former_leader_tells_of_a_worker_ends_with_an_answer_of_it() -> None:
    before, other = (replace(OWN, settings="bb", keys={BRANCH: branch, "topics": "2"}, id="wbb") for branch in "21")
    assert [bool(request.disputed) for request in requests(OWN, other, OWN, told=(OWN, before))] == [True, False, False]


@pytest.mark.parametrize(("own", "answers"), [(None, True), (OWN, False)])
def test_a_leader_has_heard_all_if_it_has_settings_itself_and_no_answer_lacks(own: Member, answers: bool) -> None:
    (request,) = requests(OWN, own=own, answers=answers)
    assert not request.heard_all


def test_a_cycle_in_which_the_broker_shows_no_partition_tells_nothing_of_the_workers() -> None:
    asked = requests(OWN, OWN, hidden=True)
    assert [(request.heard_all, request.form) for request in asked] == [(False, OLDEST)] * 2


def test_a_coordinator_does_not_listen_beyond_the_time_of_its_next_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    running = loop()
    while not running.complete_cycles:
        running.step(0)
    listened: list[float] = []

    def read(self: MemoryCursor, timeout: float) -> list[Envelope]:
        listened.append(timeout)
        return []

    monkeypatch.setattr(MemoryCursor, "read", read)
    monkeypatch.setattr(running, "_clock", lambda: running.machine.pace.started + 4.9)
    running.step(1.0)
    assert listened == [pytest.approx(0.1)]


def test_a_log_that_always_has_something_unread_counts_as_read_every_eleventh_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryCursor, "is_current", False)
    assert [request.has_read for request in requests(*(OWN for _ in range(12)))] == [False] * 10 + [True, False]


def test_a_log_that_is_read_to_its_end_counts_as_read() -> None:
    assert [request.has_read for request in requests(OWN, OWN)] == [True, True]
