"""The contract of backends as tests: every method is one numbered sentence."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID, uuid4

import pytest

from calving.backend.interface import Backend, Cursor, Session
from calving.errors import (
    DataLossError,
    FencedError,
    NewerVersionError,
    OutcomeUnknownError,
    ProtocolError,
    StaleError,
    UnavailableError,
)
from calving.model.events import (
    NO_COMMIT,
    Attachment,
    CommitComplete,
    DataComplete,
    DataWritten,
    Envelope,
    Event,
    Leader,
    Parked,
    PartitionProgress,
    Publication,
    StartCommit,
    TableId,
    TableReference,
    WorkerEnd,
)
from calving.model.files import DataFile
from calving.model.offsets import Advance, Span, Topic, TopicPartition
from calving.model.sink import Claim
from calving.testing.harness import Harness
from calving.testing.odd_entries import OddEntry, newer, own_with_files, strange
from calving.wire.codec import decode

_SECONDS = 20.0
F = TypeVar("F", bound=Callable[..., None])


def rule(number: str, sentence: str) -> Callable[[F], F]:
    """Names the rule that a test checks. The conformance page of the manual is made from these rules."""

    def mark(test: F) -> F:
        test.rule = (number, sentence)  # type: ignore[attr-defined]
        test.__doc__ = f"{number} {sentence}"
        return test

    return mark


class BackendContract:
    """Rules B1 to B10 over a ``harness`` fixture."""

    @pytest.fixture
    def harness(self) -> Harness:
        raise NotImplementedError("a backend's tests define the fixture 'harness'")

    @pytest.fixture
    def store(self, harness: Harness) -> Iterator[Store]:
        opened = Store(harness)
        try:
            yield opened
        finally:
            opened.close()
            harness.close()

    # B1

    @rule("B1.1", "A publication's events and positions are there once it returns.")
    def test_events_and_positions_are_there_once_a_publication_returns(self, store: Store) -> None:
        store.publish(0, None, 10, files=2)
        assert store.harness.positions() == {store.source[0]: 10}
        assert [type(e) for e in store.raw()] == [DataWritten, DataComplete]

    @rule("B1.2", "A refused publication leaves neither events nor positions.")
    def test_a_refused_publication_leaves_nothing(self, store: Store) -> None:
        store.publish(0, None, 10)
        with pytest.raises(FencedError):
            store.session().publish(store.publication({0: (5, 20), 1: (None, 7)}), store.harness.claim())
        assert store.harness.positions() == {store.source[0]: 10}
        assert len(store.raw()) == 2

    @rule("B1.3", "A publication may move positions without events.")
    def test_a_publication_may_move_positions_only(self, store: Store) -> None:
        advances = {store.source[0]: Advance(None, 10)}
        store.session().publish(Publication((), advances, {}), store.harness.claim())
        assert store.harness.positions() == {store.source[0]: 10}
        assert store.raw() == []

    @rule("B1.4", "A publication of several megabytes is read as a whole, and each of its files once.")
    def test_a_large_publication_is_read_whole(self, store: Store) -> None:
        cursor = store.cursor()
        store.publish(0, None, 10, files=6_000)
        entries = store.wait_for(cursor, DataComplete)
        paths = [f.file_path for e in entries if isinstance(e.event, DataWritten) for f in e.event.data_files]
        assert len(paths) == len(set(paths)) == 6_000
        assert isinstance(entries[-1].event, DataComplete)

    @rule("B1.5", "Spans and timestamps travel with the events.")
    def test_spans_travel_with_the_events(self, store: Store) -> None:
        cursor = store.cursor()
        store.publish(0, None, 10)
        (entry, *_) = store.wait_for(cursor, DataComplete)
        assert dict(entry.spans) == {store.source[0]: (Span(0, 10),)}

    # B2

    @rule("B2.1", "A publication that does not start at the stored position is refused.")
    @pytest.mark.parametrize("start", [0, 9, 11, None])
    def test_a_publication_that_starts_elsewhere_is_refused(self, store: Store, start: int | None) -> None:
        store.publish(0, None, 10)
        with pytest.raises(StaleError):
            store.session().publish(store.publication({0: (start, 20)}), store.harness.claim())

    @rule("B2.2", "A first publication is refused if it names a stored position.")
    def test_a_first_publication_starts_at_nothing(self, store: Store) -> None:
        with pytest.raises(StaleError):
            store.session().publish(store.publication({0: (0, 10)}), store.harness.claim())
        assert store.harness.positions() == {}

    @rule("B2.3", "A claim without a member is refused.")
    def test_a_claim_without_a_member_is_refused(self, store: Store) -> None:
        with pytest.raises(FencedError):
            store.session().publish(store.publication({0: (None, 10)}), store.harness.outsider())
        assert store.harness.positions() == {}

    @rule("B2.4", "If several publications start at one position at the same time, only one is written.")
    def test_of_racing_publications_one_is_written(self, store: Store) -> None:
        rivals = [(store.session(), claim) for claim in store.harness.rivals()]
        outcomes: list[str] = []

        def run(session: Session, claim: Claim, end: int) -> None:
            try:
                session.publish(store.publication({0: (None, end)}), claim)
                outcomes.append("written")
            except (FencedError, UnavailableError, OutcomeUnknownError) as error:
                outcomes.append(type(error).__name__)

        threads = [threading.Thread(target=run, args=(*rival, 10 + i)) for i, rival in enumerate(rivals)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes.count("written") == 1, outcomes
        assert len(store.raw()) == 2

    # B3

    @rule("B3.1", "The events of one publisher are read in the order published.")
    def test_events_are_read_in_order(self, store: Store) -> None:
        cursor = store.cursor()
        session = store.session()
        ids = [uuid4() for _ in range(20)]
        for i, commit in enumerate(ids):
            session.publish(store.publication({0: (i or None, i + 1)}, commit), store.harness.claim())
        entries = store.wait_for(cursor, DataComplete, 20)
        assert [e.event.commit_id for e in entries if isinstance(e.event, DataComplete)] == ids

    @rule("B3.2", "Offsets grow, and no two events have the same.")
    def test_offsets_grow(self, store: Store) -> None:
        cursor = store.cursor()
        for i in range(5):
            store.publish(0, i or None, i + 1, files=3)
            store.publish(1, i or None, i + 1, files=3)
        entries = store.wait_for(cursor, DataComplete, 10)
        places = [(e.partition, e.offset) for e in entries]
        assert len(set(places)) == len(places)
        for partition in {p for p, _ in places}:
            offsets = [o for p, o in places if p == partition]
            assert offsets == sorted(offsets)

    @rule("B3.3", "An offset is not used again after its event was trimmed and the store restarted.")
    def test_offsets_are_not_reused_after_trimming_and_a_restart(self, store: Store) -> None:
        cursor = store.cursor(replay=True)
        store.publish(0, None, 10)
        before = store.wait_for(cursor, DataComplete)
        position = {e.partition: e.offset + 1 for e in before}
        cursor.acknowledge(position, [CommitComplete(uuid4())])
        store.restart()
        after = store.cursor()
        store.publish(0, 10, 20)
        later = store.wait_for(after, DataComplete)
        assert min(e.offset for e in later) > max(e.offset for e in before)

    @rule("B3.4", "The end of the log is beyond every event that a reader has read.")
    def test_the_end_is_beyond_every_event(self, store: Store) -> None:
        store.publish(0, None, 10)
        store.wait_for(store.cursor(replay=True), DataComplete)
        replay = store.cursor(replay=True)
        entries = store.wait_for(replay, DataComplete)
        assert all(e.offset < replay.log.end[e.partition] for e in entries)

    @rule("B3.5", "The log keeps its identity while it exists; after its store was wiped, it has another one.")
    def test_a_wiped_store_has_another_identity(self, store: Store) -> None:
        first, second = store.cursor().log.identity, store.cursor().log.identity
        store.close()
        store.harness.wipe()
        store.backend().provision()
        assert first == second != store.cursor().log.identity

    @rule("B3.6", "Entries of other groups and of nobody are skipped, whatever their bytes, headers and fields are.")
    @pytest.mark.parametrize("kind", ["worker", "coordinator", "watcher"])
    def test_entries_of_others_are_skipped(self, store: Store, kind: str) -> None:
        store.publish(0, None, 10)
        group = store.group()
        worker, own = store.cursor(), StartCommit(uuid4())
        store.append(*strange(group).values())
        store.harness.append_odd()
        coordinator = store.cursor(replay=True)
        coordinator.acknowledge({}, [own])
        cursor = worker if kind == "worker" else coordinator if kind == "coordinator" else store.watcher()
        assert store.wait_for(cursor, StartCommit)[-1].event == own
        assert cursor.undecodable > 10
        assert not cursor.unreadable

    @rule(
        "B3.7", "An entry of the sink that may have files, and cannot be decoded, stops a coordinator; others skip it."
    )
    def test_an_entry_that_may_have_files_is_refused(self, store: Store) -> None:
        store.publish(0, None, 10)
        odd = own_with_files(store.group())
        store.append(*odd.values())
        sentence = r"partition 0, offset \d+: an entry of this sink cannot be decoded"
        watcher = store.watcher()
        store.read_to_end(watcher)
        assert len({text for text in watcher.unreadable if re.search(sentence, text)}) == len(odd)
        with pytest.raises(DataLossError, match=sentence):
            store.wait_for(store.cursor(replay=True), CommitComplete)

    @rule(
        "B3.8",
        "With a secret, entries of the sink that are not signed with it are skipped, counted and named, and copies of"
        " signed ones are skipped and counted. None of them stops a coordinator.",
    )
    @pytest.mark.parametrize("kind", ["worker", "coordinator", "watcher"])
    def test_forged_and_repeated_entries_are_skipped(self, store: Store, kind: str) -> None:
        forger = store.session()
        store.sign("sixteen letters.")
        worker, own = store.cursor(), StartCommit(uuid4())
        store.publish(0, None, 10)
        group = store.group()
        store.harness.repeat()
        forger.publish(store.publication({1: (None, 5)}), store.harness.claim())
        odd = {**own_with_files(group), **strange(group)}
        store.append(*odd.values())
        coordinator = store.cursor(replay=True)
        coordinator.acknowledge({}, [own])
        cursor = worker if kind == "worker" else coordinator if kind == "coordinator" else store.watcher()
        heard = store.wait_for(cursor, StartCommit)
        assert [type(e.event) for e in heard] == [DataWritten, DataComplete, StartCommit]
        assert heard[-1].event == own and dict(heard[0].spans) == {store.source[0]: (Span(0, 10),)}
        assert cursor.undecodable >= 2 + 2 + len(own_with_files(group))
        assert re.search(r"partition 0, offset \d+: an entry of sender '.*' is not signed", cursor.unsigned)
        assert not cursor.unreadable

    @rule(
        "B3.9",
        "An entry of the sink that cannot be decoded, and names a form that this version does not know, stops every"
        " reader; the error names the version to install.",
    )
    @pytest.mark.parametrize("kind", ["worker", "coordinator", "watcher"])
    def test_an_entry_of_a_newer_form_is_refused(self, store: Store, kind: str) -> None:
        store.publish(0, None, 10)
        worker = store.cursor()
        store.append(*newer(store.group(), "99.0").values())
        cursor = worker if kind == "worker" else store.cursor(replay=True) if kind == "coordinator" else store.watcher()
        with pytest.raises(NewerVersionError, match=r"install version 99\.0 or later"):
            store.wait_for(cursor, CommitComplete)

    # B4

    @rule("B4.1", "Acknowledged writes survive a killed store.")
    def test_a_publication_survives_a_kill_of_the_store(self, store: Store) -> None:
        store.publish(0, None, 10, files=2)
        store.restart()
        assert store.session().committed([store.source[0]]) == {store.source[0]: 10}
        assert len(store.wait_for(store.cursor(replay=True), DataComplete)) == 2

    @rule("B4.2", "Acknowledged writes survive their publisher.")
    def test_a_publication_survives_its_publisher(self, store: Store) -> None:
        session = store.session()
        session.publish(store.publication({0: (None, 10)}), store.harness.claim())
        session.close()
        assert store.session().committed(store.source) == {store.source[0]: 10}

    @rule("B4.3", "While a store is down, reading fails as unavailable; afterwards the store works again.")
    def test_a_store_that_is_away_is_unavailable(self, store: Store) -> None:
        if not store.harness.survives_restart:
            pytest.skip("it lives in this process")
        session = store.session()
        store.harness.stop()
        with pytest.raises(UnavailableError):
            session.committed(store.source)
        store.close()
        store.harness.start()
        store.publish(0, None, 10)

    @rule(
        "B4.4", "While a store is down, a publication fails as unavailable or of unknown outcome, and is not written."
    )
    def test_publishing_to_a_store_that_is_away_is_not_taken_for_written(self, store: Store) -> None:
        if not store.harness.survives_restart:
            pytest.skip("it lives in this process")
        session, claim = store.session(), store.harness.claim()
        session.committed(store.source)
        store.harness.stop()
        with pytest.raises((UnavailableError, OutcomeUnknownError)):
            session.publish(store.publication({0: (None, 10)}), claim)
        store.close()
        store.harness.start()
        assert store.session().committed(store.source) == {}

    # B5

    @rule("B5.1", "With no saved position a replay starts at the earliest event.")
    def test_a_first_replay_starts_at_the_earliest(self, store: Store) -> None:
        store.publish(0, None, 10)
        store.publish(0, 10, 20)
        assert len(store.wait_for(store.cursor(replay=True), DataComplete, 2)) == 4

    @rule("B5.2", "A replay starts at the saved position.")
    def test_a_replay_starts_at_the_saved_position(self, store: Store) -> None:
        first = store.cursor(replay=True)
        store.publish(0, None, 10)
        seen = store.wait_for(first, DataComplete)
        store.publish(0, 10, 20)
        first.acknowledge({e.partition: e.offset + 1 for e in seen}, [])
        second = store.cursor(replay=True)
        entries = store.wait_for(second, DataComplete)
        assert min(e.offset for e in entries) > max(e.offset for e in seen)

    @rule("B5.3", "Replays give the same events at the same offsets.")
    def test_replays_give_the_same(self, store: Store) -> None:
        store.publish(0, None, 10, files=3)
        first = store.wait_for(store.cursor(replay=True), DataComplete)
        second = store.wait_for(store.cursor(replay=True), DataComplete)
        assert first == second

    @rule("B5.4", "An acknowledgement without a position appends its events, and saves no position.")
    def test_an_acknowledgement_without_a_position_saves_none(self, store: Store) -> None:
        store.publish(0, None, 10)
        cursor = store.cursor(replay=True)
        cursor.acknowledge({}, [StartCommit(uuid4())])
        again = store.wait_for(store.cursor(replay=True), StartCommit)
        assert any(isinstance(e.event, DataComplete) for e in again)

    @rule("B5.5", "The saved position survives a kill of the store.")
    def test_the_saved_position_survives_a_kill_of_the_store(self, store: Store) -> None:
        first = store.cursor(replay=True)
        store.publish(0, None, 10)
        seen = store.wait_for(first, DataComplete)
        first.acknowledge({e.partition: e.offset + 1 for e in seen}, [CommitComplete(uuid4())])
        store.restart()
        again = store.cursor(replay=True)
        assert all(again.log.start[e.partition] > e.offset for e in seen)

    @rule("B5.6", "Settled offsets are stored with the events of the acknowledgement.")
    def test_what_is_settled_travels_with_the_events(self, store: Store) -> None:
        cursor = store.cursor(replay=True)
        settled = {store.source[0]: (Span(0, 10), Span(15, 20)), store.source[1]: (Span(3, 4),)}
        cursor.acknowledge({}, [CommitComplete(uuid4())], Attachment(settled))
        assert dict(store.wait_for(cursor, CommitComplete)[0].attached.settled) == settled

    @rule("B5.7", "Parked commits are stored with the events of the acknowledgement.")
    def test_what_is_parked_travels_with_the_events(self, store: Store) -> None:
        parked: dict[TableId, Parked] = {
            ("db", "a.b", "t"): Parked("s3://b/t/parked", 7, {store.source[0]: (Span(0, 10),)})
        }
        store.cursor(replay=True).acknowledge({}, [CommitComplete(uuid4())], Attachment(parked=parked))
        assert store.wait_for(store.cursor(replay=True), CommitComplete)[-1].attached.parked == parked

    @rule("B5.10", "Released entries are stored with the events of the acknowledgement.")
    def test_what_is_released_travels_with_the_events(self, store: Store) -> None:
        attached = Attachment(released=frozenset({(0, 7), (1, 3)}))
        store.cursor(replay=True).acknowledge({}, [CommitComplete(uuid4())], attached)
        assert store.wait_for(store.cursor(replay=True), CommitComplete)[-1].attached == attached

    @rule("B5.8", "A coordinator that reads its own event has read all events of its predecessors.")
    def test_who_hears_itself_has_heard_its_predecessors(self, store: Store) -> None:
        written = [uuid4() for _ in range(5)]
        for commit in written:
            store.cursor(replay=True).acknowledge({}, [StartCommit(commit)])
        cursor, own = store.cursor(replay=True), StartCommit(uuid4())
        cursor.acknowledge({}, [own])
        heard: list[Event] = []
        deadline = time.monotonic() + 20
        while own not in heard and time.monotonic() < deadline:
            heard += [e.event for e in cursor.read(0.5)]
        assert heard == [*map(StartCommit, written), own]

    @rule("B5.9", "The leader's address is stored with the events of the acknowledgement.")
    def test_who_leads_travels_with_the_events(self, store: Store) -> None:
        leader = Leader("m-1", "kafka-1", "https://kafka-1:8083/")
        store.cursor(replay=True).acknowledge({}, [StartCommit(uuid4())], Attachment(leader=leader))
        store.cursor(replay=True).acknowledge({}, [StartCommit(uuid4())])
        heard = store.wait_for(store.cursor(replay=True), StartCommit, count=2)
        assert [envelope.attached.leader for envelope in heard][-2:] == [leader, None]

    @rule("B5.11", "The end of a worker that ended with an error is read, whoever leads, and moves no position.")
    def test_the_end_of_a_worker_is_read(self, store: Store) -> None:
        store.publish(0, None, 5)
        leader, end = (
            store.cursor(replay=True),
            WorkerEnd("0.2.0", 1_700_000_000_000, "m-1", "kafka-1", "no such table"),
        )
        store.session().report_end(end)
        leader.acknowledge({}, [CommitComplete(uuid4())])
        for cursor in (leader, store.watcher()):
            heard = store.wait_for(cursor, CommitComplete)
            assert [e.end for e in heard if e.end is not None] == [end]
            (told,) = (e for e in heard if e.end is not None)
            assert (told.event, told.parts, told.spans) == (DataComplete(NO_COMMIT), 0, {})
        assert store.session().committed(store.source) == {store.source[0]: 5}

    # B6

    @rule("B6.1", "Every worker reads each StartCommit that is published after it opened its cursor.")
    def test_every_worker_hears_a_start_commit(self, store: Store) -> None:
        workers = [store.cursor() for _ in range(3)]
        commit = uuid4()
        store.cursor(replay=True).acknowledge({}, [StartCommit(commit)])
        for worker in workers:
            assert store.wait_for(worker, StartCommit)[-1].event == StartCommit(commit)

    @rule("B6.2", "A worker does not read events from before it opened its cursor.")
    def test_a_worker_starts_at_the_end(self, store: Store) -> None:
        coordinator = store.cursor(replay=True)
        coordinator.acknowledge({}, [StartCommit(uuid4())])
        worker = store.cursor()
        later = uuid4()
        coordinator.acknowledge({}, [StartCommit(later)])
        assert [e.event for e in store.wait_for(worker, StartCommit)] == [StartCommit(later)]

    @rule("B6.3", "A read that finds nothing returns within its timeout.")
    def test_a_read_that_finds_nothing_returns_in_time(self, store: Store) -> None:
        cursor = store.cursor()
        started = time.monotonic()
        assert list(cursor.read(0.5)) == []
        assert time.monotonic() - started < 3

    @rule("B6.4", "A read that waits returns as soon as there is an entry.")
    def test_a_read_that_waits_is_woken(self, store: Store) -> None:
        coordinator, workers = store.cursor(replay=True), [store.cursor() for _ in range(2)]
        for worker in workers:
            worker.read(0.5)
        commit = StartCommit(uuid4())
        timer = threading.Timer(0.5, coordinator.acknowledge, [{}, [commit]])
        timer.start()
        started = time.monotonic()
        heard = [next(iter(worker.read(30)), None) for worker in workers]
        timer.join()
        assert [None if e is None else e.event for e in heard] == [commit] * 2
        assert time.monotonic() - started < 10

    # B7

    @rule("B7.1", "One of several members leads.")
    def test_one_member_leads(self, store: Store) -> None:
        sessions = [store.session() for _ in range(3)]
        held: list[Sequence[TopicPartition]] = [store.source[:1], store.source[1:], []]
        for _ in range(3):
            leads = [s.lead(h, store.source) for s, h in zip(sessions, held, strict=True)]
            assert sum(leads) == 1
            time.sleep(0.2)

    @rule("B7.2", "When the leader has left, another member leads.")
    def test_a_leader_that_left_is_replaced(self, store: Store) -> None:
        first, second = store.session(), store.session()
        leads = [first.lead(store.source[:1], store.source), second.lead(store.source[1:], store.source)]
        leader, other = (first, second) if leads[0] else (second, first)
        leader.close()
        deadline = time.monotonic() + store.harness.failover_seconds
        while not other.lead(store.source, store.source):
            assert time.monotonic() < deadline, "nobody leads"
            time.sleep(0.1)

    @rule("B7.4", "A process that opens again after an error leads at once if it led before.")
    def test_a_process_follows_itself(self, store: Store) -> None:
        before = store.session("one")
        assert before.lead(store.source, store.source)
        after = store.session("one")
        deadline = time.monotonic() + 2
        while not after.lead(store.source, store.source):
            assert time.monotonic() < deadline, "it waits for itself"
            time.sleep(0.05)

    @rule("B7.3", "A coordinator that has a successor is refused, and writes nothing.")
    def test_a_coordinator_with_a_successor_is_refused(self, store: Store) -> None:
        old = store.cursor(replay=True)
        new = store.cursor(replay=True)
        with pytest.raises((FencedError, OutcomeUnknownError)):  # either way it steps down
            old.acknowledge({}, [StartCommit(uuid4())])
        new.acknowledge({}, [StartCommit(uuid4())])
        assert len(store.raw()) == 1

    @rule("B7.5", "A watching cursor reads the same entries as a coordinator, fences no one, and cannot write.")
    def test_a_watcher_fences_nobody(self, store: Store) -> None:
        coordinator = store.cursor(replay=True)
        store.publish(0, None, 10)
        (*_, complete) = store.wait_for(coordinator, DataComplete)
        coordinator.acknowledge({complete.partition: complete.offset + 1}, [])
        store.publish(0, 10, 20)
        later = store.wait_for(coordinator, DataComplete)
        watcher = store.session().watch()
        assert watcher.log.start[complete.partition] == complete.offset + 1
        heard = store.wait_for(watcher, DataComplete, 2)
        assert heard[-1] == later[-1]
        with pytest.raises(ProtocolError):
            watcher.acknowledge({}, [StartCommit(uuid4())])
        watcher.close()
        coordinator.acknowledge({}, [StartCommit(uuid4())])

    @rule("B7.6", "A cursor has ended once it has read all that the log held when it was opened, and not before.")
    @pytest.mark.parametrize("kind", ["coordinator", "watcher"])
    def test_a_cursor_knows_when_it_has_read_to_the_end(self, store: Store, kind: str) -> None:
        for i in range(3):
            store.publish(0, i or None, i + 1)
        cursor = store.cursor(replay=True) if kind == "coordinator" else store.session().watch()
        at_end = cursor.has_ended
        assert not at_end
        entries = store.read_to_end(cursor)
        assert sum(isinstance(entry.event, DataComplete) for entry in entries) == 3
        cursor.close()

    @rule("B7.7", "A cursor of an empty log ends without entries, and one that reads from the end has ended at once.")
    def test_a_cursor_of_an_empty_log_is_at_its_end(self, store: Store) -> None:
        assert store.read_to_end(store.cursor(replay=True)) == []
        store.publish(0, None, 1)
        assert store.cursor(replay=False).has_ended

    @rule("B7.8", "A watching cursor first reads the last entries below the saved position that the store has kept.")
    def test_a_watcher_reads_the_last_cycle_although_its_position_is_saved(self, store: Store) -> None:
        coordinator = store.cursor(replay=True)
        for i in range(3):
            store.publish(0, i or None, i + 1)
        answers = [e for e in store.wait_for(coordinator, DataComplete, 3) if isinstance(e.event, DataComplete)]
        partition, end = answers[-1].partition, answers[-1].offset + 1
        coordinator.acknowledge({partition: end}, [CommitComplete(uuid4())])
        watcher = store.watcher()
        entries = store.read_to_end(watcher)
        assert {answer.place for answer in answers} <= {entry.place for entry in entries}
        assert watcher.log.start[partition] == end
        watcher.close()

    @rule("B7.9", "A coordinator's cursor is current once it has read all entries, and not before.")
    def test_a_cursor_knows_when_nothing_older_than_what_it_has_read_is_unread(self, store: Store) -> None:
        for i in range(3):
            store.publish(0, i or None, i + 1)
        cursor = store.cursor(replay=True)
        at_once = cursor.is_current
        assert not at_once
        store.wait_for(cursor, DataComplete, 3)
        deadline = time.monotonic() + 10
        while not cursor.is_current and time.monotonic() < deadline:
            cursor.read(0.1)
        assert cursor.is_current

    # B8

    @rule("B8.1", "Events at and above the saved position are never trimmed.")
    def test_events_above_the_saved_position_stay(self, store: Store) -> None:
        cursor = store.cursor(replay=True)
        for i in range(10):
            store.publish(0, i or None, i + 1)
        entries = store.wait_for(cursor, DataComplete, 10)
        middle = entries[len(entries) // 2]
        for _ in range(3):
            cursor.acknowledge({middle.partition: middle.offset}, [])
        again = store.wait_for(store.cursor(replay=True), DataComplete, 5)
        assert [e.offset for e in again] == [e.offset for e in entries if e.offset >= middle.offset]

    @rule("B8.2", "Closing twice is safe.")
    def test_closing_twice_is_safe(self, store: Store) -> None:
        session, cursor = store.session(), store.cursor(replay=True)
        for _ in range(2):
            cursor.close()
            session.close()

    # B9

    @rule("B9.1", "A rewind stores exactly the given positions: forward, back, and for partitions that had none.")
    def test_a_rewind_stores_positions_as_they_are_given(self, store: Store) -> None:
        store.publish(0, None, 10)
        store.cursor(replay=True).rewind({store.source[0]: 4, store.source[1]: 7})
        assert store.session().committed(store.source) == {store.source[0]: 4, store.source[1]: 7}
        store.cursor(replay=True).rewind({store.source[0]: 30, store.source[1]: 7})
        assert store.harness.positions() == {store.source[0]: 30, store.source[1]: 7}

    @rule("B9.2", "After a rewind coordinators read none of the earlier entries of the log, and all of the later ones.")
    def test_what_was_in_the_log_is_not_heard_after_a_rewind(self, store: Store) -> None:
        cursor = store.cursor(replay=True)
        store.publish(0, None, 10)
        before = store.wait_for(cursor, DataComplete)
        cursor.rewind({store.source[0]: 4})
        store.publish(0, 4, 12)
        entries = store.wait_for(store.cursor(replay=True), DataComplete)
        assert len(entries) == 2
        assert entries[0].spans[store.source[0]][-1] == Span(4, 12)
        assert min(e.offset for e in entries) > max(e.offset for e in before)

    @rule("B9.3", "A coordinator that has a successor cannot rewind.")
    def test_a_coordinator_with_a_successor_cannot_rewind(self, store: Store) -> None:
        store.publish(0, None, 10)
        old = store.cursor(replay=True)
        new = store.cursor(replay=True)
        with pytest.raises((FencedError, OutcomeUnknownError)):
            old.rewind({store.source[0]: 4})
        assert store.harness.positions() == {store.source[0]: 10}
        assert len(store.wait_for(new, DataComplete)) == 2

    # B10

    @rule("B10.1", "Each position is stored with the topic id of its topic, and both are replaced together.")
    def test_the_identity_of_a_topic_is_stored_with_the_position(self, store: Store) -> None:
        first, second = store.source[:2]
        store.publish(0, None, 10, topic_id="one")
        assert store.session().topic_ids(store.source) == {first: "one"}
        store.publish(0, 10, 20, topic_id="two")
        store.publish(1, None, 5)
        assert store.session().topic_ids(store.source) == {first: "two", second: ""}
        assert store.session().committed(store.source) == {first: 20, second: 5}

    @rule("B10.2", "A publication that is refused leaves the topic ids as they are.")
    def test_a_refused_publication_leaves_the_identities_alone(self, store: Store) -> None:
        store.publish(0, None, 10, topic_id="one")
        with pytest.raises(FencedError):
            store.publish(0, 5, 20, topic_id="two")
        assert store.session().topic_ids(store.source) == {store.source[0]: "one"}

    @rule("B10.3", "Positions that a rewind has stored have no topic id, not even an empty one.")
    def test_a_rewind_removes_the_identities(self, store: Store) -> None:
        store.publish(0, None, 10, topic_id="one")
        store.cursor(replay=True).rewind({store.source[0]: 4})
        assert store.session().topic_ids(store.source) == {}

    @rule("B10.4", "An acknowledgement drops the positions in a topic that is gone, and keeps those in other topics.")
    def test_positions_in_a_topic_that_is_gone_are_dropped(self, store: Store) -> None:
        if store.harness.drops_positions_itself:
            pytest.skip("it drops them when the topic is deleted")
        topic = store.source[0].topic
        store.publish(0, None, 10, topic_id="one")
        store.publish(1, None, 20, topic_id="two~")
        cursor = store.cursor(replay=True)
        cursor.acknowledge(
            {}, [CommitComplete(uuid4())], departed=[Topic(topic, "three"), Topic(topic), Topic("another", "one")]
        )
        assert store.session().committed(store.source) == {store.source[0]: 10, store.source[1]: 20}
        cursor.acknowledge({}, [CommitComplete(uuid4())], departed=[Topic(topic, "two")])
        assert store.session().committed(store.source) == {store.source[0]: 10}
        assert store.session().topic_ids(store.source) == {store.source[0]: "one"}
        store.wait_for(store.cursor(replay=True), CommitComplete, 2)


class Store:
    """A harness, and the sessions and cursors opened with it."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.source = list(harness.source)
        self._opened: list[Session | Cursor] = []
        self.backend().provision()

    def backend(self) -> Backend:
        return self.harness.backend()

    def session(self, member: str | None = None) -> Session:
        session = self.backend().open(member or str(uuid4()))
        self._opened.append(session)
        return session

    def cursor(self, *, replay: bool = False) -> Cursor:
        cursor = self.session().follow(replay=replay)
        self._opened.append(cursor)
        return cursor

    def watcher(self) -> Cursor:
        cursor = self.session().watch()
        self._opened.append(cursor)
        return cursor

    def sign(self, secret: str) -> None:
        """Backends have this secret from now on."""
        try:
            self.harness.sign(secret)
        except NotImplementedError:
            pytest.skip("nobody else can write into this store")

    def append(self, *entries: OddEntry) -> None:
        """Entries of others."""
        try:
            for entry in entries:
                self.harness.append(*entry)
        except NotImplementedError:
            pytest.skip("nobody else can write into this store")

    def group(self) -> str:
        """The group of the sink, as its first entry names it."""
        return decode(self.harness.entries()[0]).group

    def publication(
        self, moves: dict[int, tuple[int | None, int]], commit: UUID | None = None, files: int = 1
    ) -> Publication:
        commit = commit or uuid4()
        advances = {self.source[p]: Advance(start, end) for p, (start, end) in moves.items()}
        table = TableReference("iceberg", ("db",), "t")
        data = [DataFile(f"s3://bucket/db/t/data/{uuid4()}-{'x' * 200}.parquet", "PARQUET", 1, 1) for _ in range(files)]
        progress = tuple(PartitionProgress(tp, advance.end) for tp, advance in advances.items())
        events = (DataWritten(commit, table, tuple(data)), DataComplete(commit, progress))
        spans = {tp: (Span(advance.start or 0, advance.end),) for tp, advance in advances.items()}
        return Publication(events, advances, spans)

    def publish(self, partition: int, start: int | None, end: int, files: int = 1, topic_id: str | None = None) -> None:
        publication = self.publication({partition: (start, end)}, files=files)
        if topic_id is not None:
            publication = replace(publication, topic_ids={self.source[partition].topic: topic_id})
        self.session().publish(publication, self.harness.claim())

    def raw(self) -> list[Event]:
        return [decode(entry).event for entry in self.harness.entries()]

    def wait_for(self, cursor: Cursor, kind: type[Event], count: int = 1) -> list[Envelope]:
        """Entries up to the ``count``-th of a kind."""
        entries: list[Envelope] = []
        deadline = time.monotonic() + _SECONDS
        while sum(isinstance(e.event, kind) for e in entries) < count:
            assert time.monotonic() < deadline, f"only {[type(e.event).__name__ for e in entries]} came"
            entries += cursor.read(0.2)
        return entries

    def read_to_end(self, cursor: Cursor) -> list[Envelope]:
        """All entries that the log held when the cursor was opened."""
        entries: list[Envelope] = []
        deadline = time.monotonic() + 30
        while not cursor.has_ended:
            assert time.monotonic() < deadline, "it does not reach the end"
            entries += cursor.read(0.2)
        return entries

    def restart(self) -> None:
        if not self.harness.survives_restart:
            pytest.skip("it lives in this process")
        self.close()
        self.harness.stop()
        self.harness.start()

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()
