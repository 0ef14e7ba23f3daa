"""The worker machine, one decision at a time."""

from __future__ import annotations

from uuid import UUID

import pytest

from calving.errors import ProtocolError
from calving.model.events import (
    NO_COMMIT,
    CommitComplete,
    DataComplete,
    DataWritten,
    Envelope,
    StartCommit,
    TableFiles,
    TableReference,
)
from calving.model.files import DataFile
from calving.model.offsets import Advance, Gap, Span, TopicPartition
from calving.protocol.effects import Publish, RequestCycle, RunBatch, WorkerEffect
from calving.protocol.positions import Position, starting, take
from calving.protocol.worker import BatchLimits, BatchOutcome, WorkerMachine

A, B = TopicPartition("s", 0), TopicPartition("s", 1)
T = TableReference("c", ("db",), "t")
C1, C2 = UUID(int=1), UUID(int=2)


def worker(**stored: int | None) -> WorkerMachine:
    machine = WorkerMachine(BatchLimits(100, 1_000_000))
    positions = {"a": A, "b": B}
    machine.assigned({positions[k]: Position(v, v or 0) for k, v in stored.items()})
    return machine


def start(machine: WorkerMachine, commit_id: UUID = C1) -> None:
    machine.heard(Envelope(0, 0, StartCommit(commit_id)))


def outcome(path: str = "f", timestamps: dict[TopicPartition, int] | None = None) -> BatchOutcome:
    return BatchOutcome({T: [TableFiles((DataFile(path, "PARQUET", 1, 1),))]}, timestamps or {}, 10, 1000)


def published(effects: list[WorkerEffect]) -> Publish:
    (effect,) = effects
    assert isinstance(effect, Publish)
    return effect


def test_nothing_is_read_below_the_batch_size_until_a_commit_starts() -> None:
    assert worker(a=0).tick({A: 50}) == []


def test_a_large_backlog_is_read_without_being_asked_and_bounded() -> None:
    (effect,) = worker(a=0, b=0).tick({A: 1000, B: 10})
    assert effect == RunBatch(1, {B: Span(0, 10), A: Span(0, 90)})


def test_after_a_batch_in_vain_the_first_one_is_smaller_and_each_later_one_an_eighth_larger_up_to_the_limit() -> None:
    machine = WorkerMachine(BatchLimits(100, 1_000_000, first=50))
    machine.assigned({A: Position(0, 0)})
    sizes = []
    for number in range(1, 9):
        (effect,) = machine.tick({A: 10_000})
        assert isinstance(effect, RunBatch)
        sizes.append(effect.spans[A].end - effect.spans[A].start)
        machine.finished(number, outcome())
    assert sizes == [50, 57, 65, 74, 84, 95, 100, 100]


def test_what_is_left_is_read_when_a_commit_starts() -> None:
    machine = worker(a=5)
    start(machine)
    assert machine.tick({A: 8}) == [RunBatch(1, {A: Span(5, 8)})]


def test_a_worker_with_nothing_to_report_answers_for_all_it_holds() -> None:
    machine = worker(a=5, b=7)
    start(machine)
    publication = published(machine.tick({A: 5, B: 7})).publication
    assert [a.source for e in publication.events if isinstance(e, DataComplete) for a in e.assignments] == [A, B]
    assert publication.advances == {}


def test_files_and_positions_are_published_together() -> None:
    machine = worker(a=5, b=None)
    start(machine)
    machine.tick({A: 8, B: 0})
    machine.finished(1, outcome(timestamps={A: 77}))
    publication = published(machine.tick({A: 8, B: 0})).publication
    assert publication.advances == {A: Advance(5, 8), B: Advance(None, 0)}
    assert publication.spans == {A: (Span(5, 8),)}
    files, complete = publication.events
    assert isinstance(files, DataWritten) and files.commit_id == C1
    assert isinstance(complete, DataComplete)
    assert [(a.source, a.offset, a.timestamp_us) for a in complete.assignments] == [(A, 8, 77), (B, None, None)]


def test_a_batch_that_deletes_rows_keeps_its_place_behind_those_before_it() -> None:
    machine = worker(a=0)
    files = {name: DataFile(name, "PARQUET", 1, 1) for name in "abcdk"}
    for number, found in enumerate(
        [TableFiles((files["a"],)), TableFiles((files["b"],)), TableFiles((files["c"],), (files["k"],))], 1
    ):
        machine.tick({A: number * 1000})
        machine.finished(number, BatchOutcome({T: [found]}, {}, 10, 1000))
    machine.tick({A: 5000})
    machine.finished(4, BatchOutcome({T: [TableFiles((files["d"],))]}, {}, 10, 1000))
    events = published(machine.handover([A])).publication.events
    assert [(e.data_files, e.delete_files) for e in events if isinstance(e, DataWritten)] == [
        ((files["a"], files["b"]), ()),
        ((files["c"], files["d"]), (files["k"],)),
    ]


def test_a_cycle_is_answered_once() -> None:
    machine = worker(a=5)
    start(machine)
    published(machine.tick({A: 5}))
    machine.published()
    start(machine)
    assert machine.tick({A: 5}) == []


def test_a_partition_that_arrives_during_a_cycle_is_answered_for() -> None:
    machine = worker(a=5)
    start(machine)
    published(machine.tick({A: 5}))
    machine.published()
    machine.assigned({B: Position(1, 1)})
    assert isinstance(published(machine.tick({A: 5, B: 1})), Publish)


def test_a_closed_cycle_is_not_answered() -> None:
    machine = worker(a=5)
    start(machine)
    machine.heard(Envelope(0, 1, CommitComplete(C1)))
    assert machine.tick({A: 8}) == []


def test_a_batch_that_runs_when_a_commit_starts_serves_as_its_answer() -> None:
    machine = worker(a=0)
    machine.tick({A: 500})
    start(machine)
    machine.finished(1, outcome())
    assert published(machine.tick({A: 500})).publication.spans == {A: (Span(0, 100),)}


def test_a_lost_partition_takes_the_results_of_its_batch_along() -> None:
    machine = worker(a=0, b=0)
    machine.tick({A: 60, B: 60})
    machine.finished(1, outcome())
    machine.released([A])
    assert not machine.unpublished
    assert machine.positions == {B: 0}


def test_results_of_a_partition_that_was_lost_and_came_back_are_dropped() -> None:
    machine = worker(a=0)
    machine.tick({A: 100})
    machine.released([A])
    machine.assigned({A: Position(40, 40)})
    machine.finished(1, outcome())
    assert not machine.unpublished
    assert machine.positions == {A: 40}


def test_a_graceful_handover_publishes_what_is_finished() -> None:
    machine = worker(a=0)
    machine.tick({A: 100})
    machine.finished(1, outcome())
    publication = published(machine.handover([A])).publication
    assert publication.advances == {A: Advance(0, 100)}


def test_a_handover_without_results_publishes_nothing() -> None:
    assert worker(a=0).handover([A]) == []


def test_a_worker_that_stops_starts_no_further_batch() -> None:
    machine = worker(a=0)
    machine.tick({A: 1000})
    machine.stop()
    machine.finished(1, outcome())
    assert machine.tick({A: 1000}) == []
    assert published(machine.handover([A])).publication.advances == {A: Advance(0, 100)}


def test_losing_a_partition_that_no_batch_has_read_drops_nothing() -> None:
    machine = worker(a=0, b=0)
    machine.tick({A: 100})
    machine.finished(1, outcome())
    machine.released([B])
    assert machine.unpublished


def test_records_that_are_gone_are_reported_as_a_gap() -> None:
    assert worker(a=5).gaps({A: 9}, {A: 20}) == {A: Gap(5, 9)}


def test_a_position_beyond_the_end_is_a_gap_too() -> None:
    assert worker(a=50).gaps({A: 0}, {A: 20}) == {A: Gap(50, 0)}


def test_a_partition_that_starts_over_says_so_even_if_it_comes_just_as_far_again() -> None:
    machine = worker(a=5)
    machine.skip(A, 0)
    start(machine)
    machine.tick({A: 5})
    machine.finished(1, outcome())
    found = published(machine.tick({A: 5})).publication
    assert found.advances == {A: Advance(5, 5)}
    assert dict(found.spans) == {A: (Span(0, 5),)}
    assert found.restarted == {A}
    machine.published()
    start(machine, C2)
    assert published(machine.tick({A: 5})).publication.advances == {}


def test_an_end_that_nobody_expected_is_a_bug() -> None:
    with pytest.raises(ProtocolError):
        worker(a=0).finished(3, outcome())


def test_a_partition_without_a_position_is_read_from_its_beginning() -> None:
    assert starting([B], {A: 5}, {B: 3}) == {B: Position(None, 3)}


def test_a_partition_with_a_position_is_read_from_there() -> None:
    assert starting([A], {A: 5}, {A: 0}) == {A: Position(5, 5)}


@pytest.mark.parametrize("records", [1, 3, 10, 11, 1000])
def test_a_share_never_exceeds_what_is_asked_for_and_wastes_nothing(records: int) -> None:
    backlog = {TopicPartition("s", p): Span(0, size) for p, size in enumerate((2, 50, 7, 300))}
    taken = sum(span.end - span.start for span in take(backlog, records).values())
    assert taken == min(records, 359)


def resting(commit_id: UUID = C1) -> WorkerMachine:
    """A worker that asks for cycles, after a cycle without files."""
    machine = WorkerMachine(BatchLimits(100, 1_000_000), asks=True)
    machine.assigned({A: Position(0, 0)})
    start(machine, commit_id)
    published(machine.tick({A: 0}))
    machine.published()
    machine.heard(Envelope(0, 1, CommitComplete(commit_id)))
    return machine


def test_a_worker_that_sees_records_after_a_cycle_without_files_asks_for_a_cycle_once() -> None:
    machine = resting()
    assert machine.waits_for_records and machine.tick({A: 0}) == []
    (effect,) = machine.tick({A: 1})
    assert isinstance(effect, RequestCycle) and effect.publication.wanted
    assert effect.publication.events == (DataComplete(NO_COMMIT),) and not effect.publication.advances
    assert machine.tick({A: 2}) == [] and not machine.waits_for_records


def test_what_a_worker_has_asked_for_is_its_next_cycle() -> None:
    machine = resting()
    machine.tick({A: 1})
    start(machine, C2)
    assert machine.tick({A: 1}) == [RunBatch(1, {A: Span(0, 1)})]


def test_after_a_cycle_with_files_of_any_worker_nobody_asks_for_a_cycle() -> None:
    machine = resting()
    start(machine, C2)
    machine.heard(Envelope(0, 2, DataWritten(C2, T, (DataFile("f", "PARQUET", 1, 1),))))
    published(machine.tick({A: 0}))
    machine.published()
    machine.heard(Envelope(0, 3, CommitComplete(C2)))
    assert not machine.waits_for_records and machine.tick({A: 1}) == []


def test_while_a_cycle_is_open_and_before_the_first_one_nobody_asks_for_one() -> None:
    machine = WorkerMachine(BatchLimits(100, 1_000_000), asks=True)
    machine.assigned({A: Position(0, 0)})
    assert machine.tick({A: 1}) == []
    machine = resting()
    start(machine, C2)
    published(machine.tick({A: 0}))
    machine.published()
    assert machine.tick({A: 1}) == []


def test_a_worker_whose_settings_do_not_say_so_asks_for_no_cycle() -> None:
    machine = worker(a=0)
    start(machine)
    published(machine.tick({A: 0}))
    machine.published()
    machine.heard(Envelope(0, 1, CommitComplete(C1)))
    assert machine.tick({A: 1}) == []
