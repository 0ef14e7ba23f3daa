"""The coordinator machine, one decision at a time."""

from __future__ import annotations

from uuid import UUID

import pytest

from calving.errors import ProtocolError
from calving.model.events import (
    Attachment,
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Envelope,
    Event,
    PartitionProgress,
    StartCommit,
    TableId,
    TableReference,
)
from calving.model.files import DataFile
from calving.model.marks import TableMark
from calving.model.offsets import TopicPartition
from calving.protocol.coordinator import Committed, Coordinator, Failed, Intervals
from calving.protocol.effects import Acknowledge, Announce, CommitTables
from calving.protocol.phases import Commit

A, B = TopicPartition("s", 0), TopicPartition("s", 1)
T, U = TableReference("c", ("db",), "t"), TableReference("c", ("db",), "u")
C = [UUID(int=i) for i in range(10)]
BOTH = frozenset((A, B))


class Log:
    """Feeds entries with growing offsets."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator, self.offset = coordinator, 0

    def hear(self, event: Event) -> list[object]:
        self.offset += 1
        return list(self.coordinator.heard(Envelope(0, self.offset - 1, event)))

    def answer(self, commit_id: UUID, *progress: PartitionProgress) -> list[object]:
        return self.hear(DataComplete(commit_id, progress))

    def files(self, commit_id: UUID, table: TableReference, path: str) -> list[object]:
        return self.hear(DataWritten(commit_id, table, (DataFile(path, "PARQUET", 1, 1),)))


def started() -> tuple[Coordinator, Log]:
    coordinator = Coordinator(Intervals(10, 30, 5), {}, 0)
    assert coordinator.tick(0, C[1], BOTH) == [Announce((StartCommit(C[1]),))]
    coordinator.heard(Envelope(0, -1, StartCommit(C[1])))
    return coordinator, Log(coordinator)


def only(effects: list[object], kind: type) -> object:
    (found,) = [e for e in effects if isinstance(e, kind)]
    return found


def test_the_first_cycle_starts_at_once_the_next_one_an_interval_later() -> None:
    coordinator, log = started()
    log.answer(C[1], PartitionProgress(A), PartitionProgress(B))
    assert coordinator.tick(9, C[2], BOTH) == []
    assert coordinator.tick(10, C[2], BOTH) == [Announce((StartCommit(C[2]),))]


def test_a_cycle_without_files_ends_as_soon_as_all_have_answered() -> None:
    _, log = started()
    assert log.answer(C[1], PartitionProgress(A)) == []
    effect = only(log.answer(C[1], PartitionProgress(B)), Acknowledge)
    assert effect == Acknowledge({0: 2}, (CommitComplete(C[1], None),), Attachment(read={0: 2}))


@pytest.mark.parametrize(
    ("seen", "is_loaded"),
    [
        ({T.identifier: TableMark("a", 5)}, False),
        ({T.identifier: TableMark("a", 6)}, False),
        ({T.identifier: TableMark("a", 4)}, True),
        ({T.identifier: TableMark("recreated", 5)}, True),
        ({}, True),
    ],
)
def test_a_new_coordinator_loads_a_table_that_was_seen_in_an_older_state_although_it_gets_nothing(
    seen: dict[TableId, TableMark], is_loaded: bool
) -> None:
    coordinator = Coordinator(Intervals(10, 30, 5), {}, 0, seen)
    coordinator.tick(0, C[1], BOTH)
    log, told = Log(coordinator), Attachment(marks={T.identifier: TableMark("a", 5)})
    coordinator.heard(Envelope(1, 0, CommitComplete(C[0]), attached=told))
    log.hear(StartCommit(C[1]))
    effects = log.answer(C[1], PartitionProgress(A), PartitionProgress(B))
    found = [effect.tables for effect in effects if isinstance(effect, CommitTables)]
    assert found == ([{T.identifier: ()}] if is_loaded else [])


def test_a_table_that_was_loaded_once_is_not_loaded_again_without_files() -> None:
    coordinator = Coordinator(Intervals(10, 30, 5), {}, 0)
    coordinator.tick(0, C[1], BOTH)
    log, told = Log(coordinator), Attachment(marks={T.identifier: TableMark("a", 5)})
    coordinator.heard(Envelope(1, 0, CommitComplete(C[0]), attached=told))
    log.hear(StartCommit(C[1]))
    log.answer(C[1], PartitionProgress(A), PartitionProgress(B))
    coordinator.settled(T.identifier, Committed(T, None, TableMark("a", 5)))
    coordinator.tick(10, C[2], BOTH)
    log.hear(StartCommit(C[2]))
    effects = log.answer(C[2], PartitionProgress(A), PartitionProgress(B))
    assert not [effect for effect in effects if isinstance(effect, CommitTables)]


def test_files_are_committed_once_all_have_answered() -> None:
    _, log = started()
    log.files(C[1], T, "f")
    effect = only(log.answer(C[1], PartitionProgress(A, 1, 50), PartitionProgress(B, 1, 40)), CommitTables)
    assert isinstance(effect, CommitTables)
    assert effect.valid_through_us == 40
    assert effect.read == {0: 2}


def test_an_answer_to_another_cycle_does_not_count() -> None:
    coordinator, log = started()
    log.answer(C[7], PartitionProgress(A), PartitionProgress(B))
    assert coordinator.missing == BOTH


def test_files_of_another_cycle_are_committed_too() -> None:
    _, log = started()
    log.files(C[7], T, "late")
    assert only(log.answer(C[1], PartitionProgress(A), PartitionProgress(B)), CommitTables)


def test_a_partition_added_during_the_cycle_is_waited_for() -> None:
    coordinator, log = started()
    added = TopicPartition("s", 2)
    coordinator.tick(1, C[2], BOTH | {added})
    assert log.answer(C[1], PartitionProgress(A), PartitionProgress(B)) == []


def test_a_missing_answer_ends_in_a_partial_commit_without_valid_through() -> None:
    coordinator, log = started()
    log.files(C[1], T, "f")
    log.answer(C[1], PartitionProgress(A, 1, 50))
    (effect,) = coordinator.tick(30, C[2], BOTH)
    assert isinstance(effect, CommitTables) and effect.valid_through_us is None


def test_those_who_have_not_answered_are_invited_again() -> None:
    coordinator, _ = started()
    assert coordinator.tick(4, C[2], BOTH) == []
    assert coordinator.tick(5, C[2], BOTH) == [Announce((StartCommit(C[1]),))]


def test_a_partition_with_nothing_new_leaves_valid_through_open() -> None:
    _, log = started()
    effect = only(log.answer(C[1], PartitionProgress(A, 1, 50), PartitionProgress(B)), Acknowledge)
    assert isinstance(effect, Acknowledge) and effect.events == (CommitComplete(C[1], None),)


@pytest.mark.parametrize("odd", [1_780_000_000_000_000_000, 2**70, -1])
def test_a_timestamp_that_is_no_moment_leaves_valid_through_open(odd: int) -> None:
    _, log = started()
    effect = only(log.answer(C[1], PartitionProgress(A, 1, 50), PartitionProgress(B, 1, odd)), Acknowledge)
    assert isinstance(effect, Acknowledge) and effect.events == (CommitComplete(C[1], None),)


def test_a_partition_that_changed_hands_counts_with_its_later_timestamp() -> None:
    _, log = started()
    log.answer(C[1], PartitionProgress(A, 1, 50))
    log.answer(C[1], PartitionProgress(A))
    effect = only(log.answer(C[1], PartitionProgress(B, 1, 90)), Acknowledge)
    assert isinstance(effect, Acknowledge) and effect.events == (CommitComplete(C[1], 50),)


def committing(*tables: TableReference) -> tuple[Coordinator, Log]:
    coordinator, log = started()
    for table in tables:
        log.files(C[1], table, f"f-{table}")
    log.answer(C[1], PartitionProgress(A, 1, 5), PartitionProgress(B, 1, 5))
    assert coordinator.phase is Commit.COMMITTING
    return coordinator, log


def test_each_table_is_announced_as_it_settles_and_the_position_saved_at_the_end() -> None:
    coordinator, _ = committing(T, U)
    assert coordinator.settled(T.identifier, Committed(T, 11)) == [Announce((CommitToTable(C[1], T, 11, 5),))]
    effects = coordinator.settled(U.identifier, Committed(U, 12))
    assert effects[1] == Acknowledge({0: 3}, (CommitComplete(C[1], 5),), Attachment(read={0: 3}))


def test_a_table_that_had_everything_already_is_not_announced() -> None:
    coordinator, _ = committing(T)
    end = Acknowledge({0: 2}, (CommitComplete(C[1], 5),), Attachment(read={0: 2}))
    assert coordinator.settled(T.identifier, Committed(T, None)) == [end]


def test_a_failed_table_keeps_its_entries_and_holds_the_position() -> None:
    coordinator, _ = committing(T, U)
    coordinator.settled(U.identifier, Committed(U, 12))
    effects = coordinator.settled(T.identifier, Failed("no"))
    assert effects == [Acknowledge({0: 0}, (CommitComplete(C[1], None),), Attachment(read={0: 3}))]
    assert coordinator.buffered == {T.identifier: 1}


def next_cycle(coordinator: Coordinator, log: Log, number: int) -> list[object]:
    coordinator.tick(coordinator.pace.started + 10, C[number], BOTH)
    return log.answer(C[number], PartitionProgress(A), PartitionProgress(B))


def test_a_failed_table_is_retried_in_the_next_cycle() -> None:
    coordinator, log = committing(T)
    coordinator.settled(T.identifier, Failed("no"))
    assert only(next_cycle(coordinator, log, 2), CommitTables)


def test_a_table_that_fails_again_rests_for_one_cycle_at_most() -> None:
    coordinator, log = committing(T)
    coordinator.settled(T.identifier, Failed("no"))
    next_cycle(coordinator, log, 2)
    coordinator.settled(T.identifier, Failed("no"))
    assert not [e for e in next_cycle(coordinator, log, 3) if isinstance(e, CommitTables)]
    assert only(next_cycle(coordinator, log, 4), CommitTables)
    assert coordinator.failures == {T.identifier: 2}


def test_a_table_that_recovers_is_forgiven() -> None:
    coordinator, log = committing(T)
    coordinator.settled(T.identifier, Failed("no"))
    next_cycle(coordinator, log, 2)
    coordinator.settled(T.identifier, Committed(T, 4))
    assert coordinator.failures == {}


def test_what_is_heard_while_tables_commit_goes_into_the_next_cycle() -> None:
    coordinator, log = committing(T)
    log.files(C[1], T, "later")
    coordinator.settled(T.identifier, Committed(T, 4))
    assert coordinator.buffered == {T.identifier: 1}


def test_a_table_that_was_not_asked_for_cannot_settle() -> None:
    coordinator, _ = committing(T)
    with pytest.raises(ProtocolError):
        coordinator.settled(U.identifier, Failed("no"))
