"""Topics that are gone are forgotten, by the coordinator and by the tables."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from calving.model.events import (
    DataComplete,
    DataWritten,
    Envelope,
    Event,
    PartitionProgress,
    StartCommit,
    TableReference,
)
from calving.model.files import DataFile
from calving.model.offsets import Coverage, Span, Topic, TopicPartition, named
from calving.protocol.buffer import Buffer
from calving.protocol.commit import admit
from calving.protocol.coordinator import Committed, Coordinator, Failed, Intervals
from calving.protocol.departures import Departures
from calving.protocol.effects import Acknowledge, CommitTables
from calving.protocol.ledger import Ledger, SourceProgress

T = TableReference("c", ("db",), "t")
S1, S2, U3, V = Topic("s", "1"), Topic("s", "2"), Topic("u", "3"), Topic("v")
OLD, NEW, STAYS = (TopicPartition(t.name, 0, t.id) for t in (S1, S2, U3))


def looked(times: list[float], missed: set[Topic], *, at_last: set[Topic] | None = None) -> Departures:
    found = Departures()
    for n, now in enumerate(times):
        asked = found.doubtful(now, [S1], [])
        found.looked(now, asked, at_last if at_last is not None and n == len(times) - 1 else missed)
    return found


def test_a_topic_is_gone_when_looks_over_a_minute_have_agreed() -> None:
    assert set(looked([0, 20, 40, 60], {S1}).gone) == {S1}


def test_fewer_looks_or_less_than_a_minute_are_not_enough() -> None:
    assert set(looked([0, 30, 60], {S1}).gone) == set()
    assert set(looked([0, 15, 30, 45], {S1}).gone) == set()


def test_a_topic_that_is_there_once_is_not_gone() -> None:
    assert set(looked([0, 20, 40, 60], {S1}, at_last=set()).gone) == set()


def test_looks_without_an_answer_neither_count_nor_matter() -> None:
    found = Departures()
    for now, answered in [(0, True), (20, False), (40, True), (60, True), (80, False), (100, True)]:
        asked = found.doubtful(now, [S1], [])
        if answered:
            found.looked(now, asked, {S1})
        assert set(found.gone) == ({S1} if now == 100 else set())


def test_only_topics_that_are_not_listed_or_have_a_namesake_are_asked_for() -> None:
    asked = Departures().doubtful(0, [S1, S2, U3, V, Topic("w"), Topic("w", "4")], ["s", "u", "w"])
    assert asked == {S1, S2, V}


def test_what_has_been_read_of_again_is_there() -> None:
    found = looked([0, 20, 40, 60], {S1})
    found.heard([S1])
    assert set(found.gone) == set()


def test_a_ledger_lets_go_of_topics_that_have_departed() -> None:
    ledger = Ledger({0: 4}, {OLD: 10, STAYS: 7}, {OLD: 5, STAYS: 7}, gone={OLD: (Span(2, 3),)})
    progress = SourceProgress({STAYS: (Span(0, 9),)}, {}, departed=frozenset([S1]))
    assert admit([], {0: 5}, progress, ledger).ledger == Ledger({0: 5}, {STAYS: 9}, {STAYS: 7})


def test_a_loss_stays_visible_though_its_topic_is_gone() -> None:
    ledger = Ledger({0: 4}, {OLD: 10}, {OLD: 2}, {OLD: (Span(2, 5),)})
    after = admit([], {0: 5}, SourceProgress({}, {}, departed=frozenset([S1])), ledger).ledger
    assert after == Ledger({0: 5}, {OLD: 10}, {OLD: 2}, {OLD: (Span(2, 5),)})


def test_a_loss_in_a_topic_that_is_gone_is_not_asked_for_again() -> None:
    ledger = Ledger({}, {OLD: 10, NEW: 5, STAYS: 7}, {}, {OLD: (Span(2, 5),)})
    departed = SourceProgress({NEW: (Span(0, 5),)}, {}, departed=frozenset([S1]))
    assert admit([], {}, departed, ledger).elsewhere == {U3}


def test_of_what_waits_there_is_a_trace() -> None:
    buffer = Buffer()
    file = DataFile("f", "PARQUET", 1, 1)
    spans: Coverage = {OLD: (Span(0, 5),)}
    buffer.hear(Envelope(0, 0, DataWritten(UUID(int=1), T, (file,)), spans))
    buffer.hear(Envelope(0, 1, DataComplete(UUID(int=1)), spans, 1))
    assert buffer.not_buffered([S1, V]) == {V}
    buffer.park(T.identifier, buffer.whole(), "last")
    assert buffer.not_buffered([S1]) == set()
    buffer.settle(T.identifier, buffer.whole())
    assert buffer.not_buffered([S1]) == {S1}


class Cycles:
    """A coordinator of which one topic is recreated after its first cycle."""

    def __init__(self) -> None:
        self.machine, self.offset = Coordinator(Intervals(10, 30, 5), {}, 0), 0

    def hear(self, event: Event, tp: TopicPartition, span: Span) -> list[object]:
        self.offset += 1
        parts = 1 if isinstance(event, DataComplete) else None
        return list(self.machine.heard(Envelope(0, self.offset - 1, event, {tp: (span,)}, parts)))

    def run(
        self, number: int, tp: TopicPartition, outcome: Failed | Committed
    ) -> tuple[Collection[Topic], Collection[Topic]]:
        """The topics that the commit drops (none if the table rests), and those that the store drops."""
        now, commit, held = number * 20.0, UUID(int=number), named(tp)
        self.machine.tick(now, commit, frozenset([held]))
        self.hear(StartCommit(commit), tp, Span(0, 0))
        if asked := self.machine.doubtful(now):
            self.machine.looked(now, asked, asked - {S2})
        span = Span(number * 10, number * 10 + 10)
        self.hear(DataWritten(commit, T, (DataFile(f"f{number}", "PARQUET", 1, 1),)), tp, span)
        answer = DataComplete(commit, (PartitionProgress(held, 1, 1),))
        found = self.hear(answer, tp, span)
        requests = [e for e in found if isinstance(e, CommitTables)]
        found += self.machine.settled(T.identifier, outcome) if requests else []
        (done,) = (e for e in found if isinstance(e, Acknowledge))
        return requests[0].progress.departed if requests else (), done.departed


def test_a_coordinator_forgets_a_topic_that_is_gone_once_everything_of_it_is_settled() -> None:
    cycles = Cycles()
    cycles.run(1, OLD, Committed(T, 1))
    found = [cycles.run(n, NEW, Committed(T, n)) for n in range(2, 8)]
    assert found == [(set(), set())] * 4 + [({S1}, {S1}), ({S1}, set())]


def test_while_a_table_fails_nothing_is_forgotten() -> None:
    cycles = Cycles()
    cycles.run(1, OLD, Committed(T, 1))
    assert not any(any(cycles.run(n, NEW, Failed("broken"))) for n in range(2, 12))


def test_topics_that_only_a_ledger_knows_are_asked_for_too() -> None:
    cycles = Cycles()
    cycles.run(1, NEW, Committed(T, 1, topics=frozenset([Topic("v", "9")])))
    assert cycles.machine.doubtful(1000) == {Topic("v", "9")}
