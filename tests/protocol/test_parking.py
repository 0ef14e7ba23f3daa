"""Commits of a table that does not take its files are parked, and brought back."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from uuid import UUID

import pytest

from calving.errors import TableTroubleError
from calving.iceberg.parking import ParkedCommit, Parking
from calving.model.events import (
    Attachment,
    CommitComplete,
    DataComplete,
    DataWritten,
    Envelope,
    Event,
    Parked,
    PartitionProgress,
    StartCommit,
    TableId,
    TableReference,
)
from calving.model.files import DataFile
from calving.model.marks import TableMark
from calving.model.offsets import Span, TopicPartition
from calving.protocol.buffer import Buffer
from calving.protocol.coordinator import Committed, Coordinator, Failed, Intervals
from calving.protocol.effects import Acknowledge, CommitTables
from calving.protocol.ledger import SourceProgress

T, U = TableReference("c", ("db",), "t", UUID(int=7)), TableReference("c", ("db",), "u")
TP, OTHER = TopicPartition("s", 0, "id"), TopicPartition("s", 1, "id")
COMMIT = UUID(int=1)


class Files:
    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}

    def write(self, table: TableId, location: str, data: bytes) -> None:
        self.found[location] = data

    def read(self, table: TableId, location: str) -> bytes:
        return self.found[location]

    def delete(self, table: TableId, location: str) -> None:
        del self.found[location]


def entry(offset: int, table: TableReference = T) -> Envelope:
    file = DataFile(f"s3://b/t/data/f{offset}", "PARQUET", 1, 10, lower_bounds={1: b"\0"})
    return Envelope(0, offset, DataWritten(COMMIT, table, (file,)), {TP: (Span(offset * 10, offset * 10 + 10),)})


def commit(offset: int) -> ParkedCommit:
    progress = SourceProgress({TP: (Span(0, offset * 10 + 10),)}, {TP: (Span(0, 5),)}, {TP: (0, 1)}, {0: 2})
    return ParkedCommit((entry(offset),), {0: offset + 1}, progress)


def names() -> Iterator[str]:
    return (f"n{i}" for i in count())


def parking(files: Files) -> Parking:
    fresh = names()
    return Parking(files, lambda: next(fresh))


def test_a_parked_commit_comes_back_as_it_was_in_the_process_of_a_successor() -> None:
    files = Files()
    last = parking(files).park(T.identifier, commit(3), None)
    assert list(parking(files).commits(T.identifier, Parked(last, 1, {}))) == [commit(3)]


def test_a_parked_commit_keeps_the_versions_that_wrote_its_entries() -> None:
    files = Files()
    said = replace(commit(3), entries=(entry(3), replace(entry(4), writer="0.2.0")))
    last = parking(files).park(T.identifier, said, None)
    assert list(parking(files).commits(T.identifier, Parked(last, 2, {}))) == [said]


def test_commits_that_an_earlier_version_has_parked_name_no_version() -> None:
    files = Files()
    last = parking(files).park(T.identifier, replace(commit(3), entries=(replace(entry(3), writer="0.2.0"),)), None)
    text = json.loads(zlib.decompress(files.found[last]))
    del text["versions"]
    files.found[last] = zlib.compress(json.dumps(text).encode())
    assert list(parking(files).commits(T.identifier, Parked(last, 1, {}))) == [commit(3)]


def test_parked_commits_become_one_up_to_the_last_of_them() -> None:
    files = Files()
    made = parking(files)
    first = made.park(T.identifier, commit(3), None)
    second = made.park(T.identifier, commit(5), Parked(first, 1, {}))
    (together,) = parking(files).commits(T.identifier, Parked(second, 2, {}))
    assert together == ParkedCommit((entry(3), entry(5)), {0: 6}, commit(5).progress)


def test_of_the_commits_of_two_coordinators_the_later_one_need_not_have_read_more() -> None:
    """It had the same saved position, and another partition of the control log was slow."""
    files = Files()
    made = parking(files)
    progress = SourceProgress({TP: (Span(0, 5),), OTHER: (Span(0, 9),)}, {}, {TP: (0, 1)}, {0: 1})
    first = made.park(T.identifier, replace(commit(5), read={0: 6, 1: 4}), None)
    again = ParkedCommit((entry(3),), {0: 4, 1: 7}, progress)
    second = made.park(T.identifier, again, Parked(first, 1, {}))
    (together,) = made.commits(T.identifier, Parked(second, 2, {}))
    assert together.read == {0: 6, 1: 7}
    assert together.progress == SourceProgress(
        {TP: (Span(0, 60),), OTHER: (Span(0, 9),)}, {TP: (Span(0, 5),)}, {TP: (0, 1)}, {0: 1}
    )


def test_offsets_that_have_started_anew_in_between_are_a_commit_of_their_own() -> None:
    made, restarted = parking(Files()), replace(commit(5), progress=replace(commit(5).progress, restarted={}))
    first = made.park(T.identifier, commit(3), None)
    second = made.park(T.identifier, restarted, Parked(first, 1, {}))
    assert list(made.commits(T.identifier, Parked(second, 2, {}))) == [commit(3), restarted]


def test_a_parked_commit_is_asked_for_until_this_coordinator_has_made_it() -> None:
    made = parking(Files())
    parked = Parked(made.park(T.identifier, commit(3), None), 1, {})
    (first,) = made.commits(T.identifier, parked)
    assert list(made.commits(T.identifier, parked)) == [commit(3)]
    made.made(T.identifier, first, TableMark("u", 4))
    assert list(made.commits(T.identifier, parked)) == []


def test_an_attempt_goes_on_behind_what_the_last_one_has_made_of_what_is_parked() -> None:
    files = Files()
    made = parking(files)
    first = Parked(made.park(T.identifier, commit(3), None), 1, {})
    (done,) = made.commits(T.identifier, first)
    made.made(T.identifier, done, TableMark("u", 4))
    second = Parked(made.park(T.identifier, commit(5), first), 2, {})
    assert list(made.commits(T.identifier, second)) == [commit(5)]


def test_a_new_coordinator_begins_at_the_oldest_parked_commit() -> None:
    files = Files()
    made = parking(files)
    parked = Parked(made.park(T.identifier, commit(3), None), 1, {})
    made.made(T.identifier, next(made.commits(T.identifier, parked)), TableMark("u", 4))
    assert list(parking(files).commits(T.identifier, parked)) == [commit(3)]


def test_a_table_without_sequence_numbers_is_asked_itself_what_it_has_of_what_is_parked() -> None:
    """Nobody could see it go back."""
    made = parking(Files())
    parked = Parked(made.park(T.identifier, commit(3), None), 1, {})
    made.made(T.identifier, next(made.commits(T.identifier, parked)), TableMark("u", 0))
    assert list(made.commits(T.identifier, parked)) == [commit(3)]


def test_a_table_may_not_go_back_behind_what_was_made_of_what_is_parked() -> None:
    made = parking(Files())
    parked = Parked(made.park(T.identifier, commit(3), None), 1, {})
    made.made(T.identifier, next(made.commits(T.identifier, parked)), TableMark("u", 4))
    assert made.mark(T.identifier, TableMark("u", 2)) == TableMark("u", 4)
    assert made.mark(T.identifier, TableMark("u", 5)) == TableMark("u", 5)


def test_a_restart_that_a_parked_commit_does_not_know_leaves_nothing_of_its_coverage() -> None:
    """In a log of several partitions it may mix offsets from before and after the restart."""
    parked = replace(commit(3), read={0: 4, 1: 0})
    later = parked.judged_by({TP: (1, 5)})
    assert later.progress == SourceProgress({}, {}, {TP: (1, 5)}, {0: 2})
    assert (later.entries, later.read) == (parked.entries, parked.read)
    assert parked.judged_by({TP: (0, 1)}) == parked


def test_a_parked_commit_of_a_log_with_one_partition_was_before_any_restart_that_it_does_not_know() -> None:
    assert commit(3).judged_by({TP: (0, 5)}) == commit(3)


def test_files_are_deleted_once_nobody_is_told_of_them() -> None:
    files = Files()
    made = parking(files)
    first = Parked(made.park(T.identifier, commit(3), None), 1, {})
    second = Parked(made.park(T.identifier, commit(5), first), 2, {})
    made.served(T.identifier, second)
    made.clear(T.identifier, second)
    assert len(files.found) == 2
    made.clear(T.identifier, None)
    assert files.found == {}


def heard(*events: Envelope) -> Buffer:
    buffer = Buffer()
    for envelope in events:
        buffer.hear(envelope)
    return buffer


def complete(offset: int, span: Span) -> Envelope:
    return Envelope(0, offset, DataComplete(COMMIT), {TP: (span,)}, 1)


def test_the_position_is_not_held_back_by_what_is_parked() -> None:
    buffer = heard(entry(1), complete(2, Span(10, 20)))
    assert buffer.position() == {0: 1}
    buffer.park(T.identifier, buffer.whole(), "last")
    assert buffer.position() == {0: 3}
    assert buffer.tables() == {T.identifier: ()}


def test_what_is_parked_is_not_settled_until_it_is_in_its_table() -> None:
    buffer = heard(entry(1), complete(2, Span(10, 20)))
    buffer.park(T.identifier, buffer.whole(), "last")
    assert buffer.progress().settled == {}
    buffer.settle(T.identifier, buffer.whole())
    assert buffer.progress().settled == {TP: (Span(10, 20),)}
    assert buffer.parked == {}


def test_a_successor_knows_what_is_parked_and_that_it_was_heard() -> None:
    parked = Parked("last", 1, {TP: (Span(10, 20),)})
    told = Attachment({TP: (Span(0, 10),)}, parked={T.identifier: parked})
    buffer = heard(Envelope(0, 5, CommitComplete(COMMIT), attached=told))
    assert buffer.parked == {T.identifier: parked}
    assert buffer.progress() == SourceProgress({TP: (Span(0, 20),)}, {TP: (Span(0, 10),)})


def test_an_end_of_a_cycle_that_somebody_repeats_does_not_replace_what_is_parked() -> None:
    """Whoever writes to the control log can append the bytes of an earlier entry again, signed or not."""
    now, parked = (Parked(name, 1, {TP: (Span(10, end),)}) for name, end in (("now", 30), ("before", 20)))
    last = Envelope(0, 15, CommitComplete(COMMIT), attached=Attachment(parked={T.identifier: now}, read={0: 14}))
    for read in ({0: 8}, {0: 13}):
        for attached in (Attachment(read=read), Attachment(parked={T.identifier: parked}, read=read)):
            buffer = Buffer({0: 9})
            for entry in (last, replace(last, offset=16, attached=attached), replace(last, offset=17)):
                buffer.hear(entry)
            assert buffer.parked == {T.identifier: now}
            assert buffer.progress().covered == {TP: (Span(10, 30),)}


def test_a_coordinator_counts_although_its_predecessor_had_read_more_of_a_partition_that_is_slow_now() -> None:
    before, now = (Parked(name, 1, {TP: (Span(10, end),)}) for name, end in (("before", 20), ("now", 30)))
    buffer = Buffer({0: 9, 1: 50})
    for offset, parked, read in ((15, before, {0: 14, 1: 70}), (25, now, {0: 24, 1: 50})):
        told = Attachment(parked={T.identifier: parked}, read=read)
        buffer.hear(Envelope(0, offset, CommitComplete(COMMIT), attached=told))
    assert buffer.parked == {T.identifier: now}


def test_what_is_repeated_in_another_partition_of_the_log_does_not_count() -> None:
    before, now = (Parked(name, 1, {TP: (Span(10, end),)}) for name, end in (("before", 20), ("now", 30)))
    buffer = Buffer({0: 9, 1: 9})
    for place, parked, read in (((0, 25), now, {0: 24, 1: 9}), ((1, 30), before, {0: 14, 1: 9})):
        told = Attachment(parked={T.identifier: parked}, read=read)
        buffer.hear(Envelope(*place, CommitComplete(COMMIT), attached=told))
    assert buffer.parked == {T.identifier: now}


def test_a_part_of_a_settled_publication_that_somebody_repeats_does_not_hold_back_those_after_it() -> None:
    part = replace(entry(11), spans={TP: (Span(0, 10),)})
    last = Envelope(0, 10, CommitComplete(COMMIT), attached=Attachment({TP: (Span(0, 10),)}, read={0: 9}))
    for entries in ((last, part), (replace(part, offset=10), replace(last, offset=11))):
        buffer = Buffer({0: 9})
        for each in entries:
            buffer.hear(each)
        assert buffer.whole() == {0: 12}


def test_an_end_of_a_cycle_from_before_the_place_where_reading_began_tells_nothing() -> None:
    buffer = Buffer({0: 9})
    told = Attachment(parked={T.identifier: Parked("before", 1, {TP: (Span(10, 20),)})}, read={0: 8})
    buffer.hear(Envelope(0, 16, CommitComplete(COMMIT), attached=told))
    assert buffer.parked == {} and buffer.progress().covered == {}


def test_a_successor_does_not_know_what_it_is_to_hear_again() -> None:
    """One publication has files for two tables, and one of them still waits in the control log."""
    alone = replace(entry(1), spans={TP: (Span(0, 20),)})
    mine = replace(entry(3), spans={TP: (Span(20, 40),)})
    other = replace(entry(4, U), spans={TP: (Span(20, 40),)})
    buffer = heard(alone, complete(2, Span(0, 20)), mine, other, replace(complete(5, Span(20, 40)), parts=2))
    buffer.park(T.identifier, buffer.whole(), "last")
    assert buffer.parked[T.identifier].waiting == {TP: (Span(0, 40),)}
    assert buffer.attachment({}, {}).parked[T.identifier].waiting == {TP: (Span(0, 20),)}


def test_what_an_operator_releases_is_no_longer_parked_and_the_rest_still_is() -> None:
    files = Files()
    made = parking(files)
    first = made.park(T.identifier, commit(3), None)
    second = made.park(T.identifier, commit(5), Parked(first, 1, {}))
    left = made.without(T.identifier, Parked(second, 2, {TP: (Span(30, 60),)}), {(0, 3)})
    assert left is not None and left.entries == 1
    assert [e.offset for c in parking(files).commits(T.identifier, left) for e in c.entries] == [5]


def test_nothing_stays_parked_where_all_of_it_is_released() -> None:
    made = parking(Files())
    parked = Parked(made.park(T.identifier, commit(3), None), 1, {})
    assert made.without(T.identifier, parked, {(0, 3)}) is None


def test_a_released_entry_is_buffered_no_longer_and_what_it_covers_is_settled() -> None:
    done = Envelope(0, 3, CommitComplete(COMMIT), attached=Attachment(released=frozenset([(0, 1)])))
    buffer = heard(entry(1), complete(2, Span(10, 20)), done)
    assert not buffer.tables()
    assert buffer.attachment({}, {}).settled == {TP: (Span(10, 20),)}
    assert not buffer.attachment(buffer.position(), {}).released


def test_an_entry_that_was_released_before_it_is_heard_is_not_buffered() -> None:
    """The partitions of a control topic are heard in any order."""
    buffer = heard(Envelope(0, 3, CommitComplete(COMMIT), attached=Attachment(released=frozenset([(1, 1)]))))
    for found in (entry(1), complete(2, Span(10, 20))):
        buffer.hear(replace(found, partition=1))
    assert not buffer.tables()


def test_who_hears_a_released_entry_after_the_saved_position_is_told_of_it() -> None:
    """Another table still waits for what comes before it."""
    done = Envelope(0, 5, CommitComplete(COMMIT), attached=Attachment(released=frozenset([(0, 3)])))
    buffer = heard(entry(1, U), complete(2, Span(10, 20)), entry(3), complete(4, Span(30, 40)), done)
    assert buffer.position() == {0: 1}
    assert buffer.attachment(buffer.position(), {}).released == {(0, 3)}


def test_a_successor_that_hears_again_all_that_is_parked_can_park_it() -> None:
    buffer = heard(entry(1), complete(2, Span(10, 20)), replace(entry(3), spans=entry(1).spans))
    buffer.park(T.identifier, {0: 2}, "last")
    parked = buffer.attachment({}, {}).parked
    assert parked[T.identifier].waiting == {}
    # Earlier versions name partitions of which nothing waits.
    told = {T.identifier: replace(parked[T.identifier], waiting={OTHER: ()})}
    successor = heard(
        Envelope(0, 5, CommitComplete(COMMIT), attached=Attachment(parked=told)), entry(6), complete(7, Span(60, 70))
    )
    successor.park(T.identifier, successor.whole(), "next")
    assert successor.parked[T.identifier].waiting == {TP: (Span(60, 70),)}


class Cycles:
    """A coordinator with one table that fails."""

    def __init__(self, parts: int | None = 1) -> None:
        self.machine, self.parts, self.offset = Coordinator(Intervals(10, 30, 5), {}, 0), parts, 0
        self.machine.park_behind = 4

    def hear(self, event: Event, spans: Span | None = None) -> list[object]:
        found = {TP: (spans,)} if spans is not None else {}
        self.offset += 1
        parts = self.parts if isinstance(event, DataComplete) else None
        return list(self.machine.heard(Envelope(0, self.offset - 1, event, found, parts)))

    def run(self, number: int, outcome: Failed | Committed) -> tuple[CommitTables | None, Acknowledge]:
        """None where the table rests."""
        commit, partition = UUID(int=number), TopicPartition("s", 0)
        self.machine.tick(number * 10, commit, frozenset([partition]))
        self.hear(StartCommit(commit))
        span = Span(number * 10, number * 10 + 10)
        self.hear(entry(number).event, span)
        found = self.hear(DataComplete(commit, (PartitionProgress(partition, 1, 1),)), span)
        request = next((e for e in found if isinstance(e, CommitTables)), None)
        found += self.machine.settled(T.identifier, outcome) if request is not None else []
        (done,) = (e for e in found if isinstance(e, Acknowledge))
        return request, done


def test_a_table_that_fails_is_parked_once_it_holds_up_enough_entries() -> None:
    cycles = Cycles()
    request, done = cycles.run(1, Failed("broken"))
    assert request is not None and request.park == frozenset() and done.position == {0: 1}
    request, done = cycles.run(2, Failed("broken", parked="last"))
    assert request is not None and request.park == {T.identifier}
    assert done.position == {0: cycles.offset}
    assert done.attached.parked == {T.identifier: Parked("last", 2, {TP: (Span(10, 30),)})}


def test_nothing_is_parked_while_somebody_takes_part_who_would_forget_it() -> None:
    cycles = Cycles(parts=None)
    requests = [cycles.run(n, Failed("broken"))[0] for n in range(1, 7)]
    assert {request.park for request in requests if request is not None} == {frozenset()}


def test_while_a_table_fails_nothing_more_is_called_settled() -> None:
    """Its catalog may have gone back, and what was settled before is not in it any more."""
    cycles = Cycles()
    cycles.run(1, Committed(T, None))
    before, _ = cycles.run(2, Failed("broken"))
    after, _ = cycles.run(3, Failed("broken"))
    assert before is not None and before.progress.settled == {TP: (Span(10, 20),)}
    assert after is not None and after.progress.settled == {}


def test_what_is_parked_is_asked_for_with_every_commit_until_the_table_takes_it() -> None:
    cycles = Cycles()
    parked = {T.identifier: Parked("last", 9, {})}
    cycles.machine.heard(Envelope(1, 0, CommitComplete(COMMIT), attached=Attachment(parked=parked)))
    request, done = cycles.run(1, Committed(T, None))
    assert request is not None and request.parked == parked
    assert done.attached.parked == {}


def test_a_coordinator_does_not_commit_before_it_has_heard_itself() -> None:
    machine, partition = Coordinator(Intervals(10, 30, 5), {}, 0), TopicPartition("s", 0)
    machine.tick(0, COMMIT, frozenset([partition]))
    answer = DataComplete(COMMIT, (PartitionProgress(partition, 1, 1),))
    assert machine.heard(Envelope(1, 0, answer)) == []
    assert not [e for e in machine.tick(40, COMMIT, frozenset([partition])) if isinstance(e, Acknowledge)]
    machine.heard(Envelope(0, 0, StartCommit(COMMIT)))
    assert [e for e in machine.tick(41, COMMIT, frozenset([partition])) if isinstance(e, Acknowledge)]


def hostile(files: Files, last: str, **changed: object) -> Iterator[ParkedCommit]:
    """What a parked commit becomes whose file was changed."""
    text = json.loads(zlib.decompress(files.found[last])) | changed
    files.found[last] = zlib.compress(json.dumps(text).encode())
    return parking(files).commits(T.identifier, Parked(last, 1, {}))


@pytest.mark.parametrize(
    "changed",
    [
        {"before": "s3://b/t/data/calving-parked-n0.json.z"},
        {"before": "file:///etc/passwd"},
        {"before": 5},
        {"entries": [[0, 3, "{}", "AAAA"]]},
        {"entries": 7},
        {"entries": [[0]]},
        {"covered": "{"},
        {"covered": "[" * 100_000},
        {"read": []},
        {"since": {"x": 1}},
        {"versions": [None, None]},
        {"versions": [5]},
        {"branches": [["main"]]},
        {"read": {"0": "9"}},
        {"read": {"0": None}},
        {"read": {"0": 1.5}},
        {"read": {"0": 2**63}},
        {"since": {"0": -1}},
        {"since": {"0": True}},
    ],
    ids=lambda changed: str(changed)[:40],
)
def test_a_damaged_or_forged_parked_commit_is_named_with_a_remedy(changed: dict[str, object]) -> None:
    files = Files()
    last = parking(files).park(T.identifier, commit(3), None)
    with pytest.raises(TableTroubleError, match=r"table db\.t: the file .*; restore the file"):
        list(hostile(files, last, **changed))


@pytest.mark.parametrize("place", [("0", 3), (0, "3"), (-1, 3), (0, 1.5), (0, [3])], ids=str)
def test_a_parked_entry_has_a_place_in_the_control_log(place: tuple[object, object]) -> None:
    files = Files()
    last = parking(files).park(T.identifier, commit(3), None)
    *_, spans, value = json.loads(zlib.decompress(files.found[last]))["entries"][0]
    with pytest.raises(TableTroubleError, match=r"table db\.t: the file .*; restore the file"):
        list(hostile(files, last, entries=[[*place, spans, value]]))


def test_a_parked_commit_of_another_table_is_not_used() -> None:
    files = Files()
    last = parking(files).park(U.identifier, ParkedCommit((entry(3, U),), {0: 4}, commit(3).progress), None)
    with pytest.raises(TableTroubleError, match="entries for another table"):
        list(parking(files).commits(T.identifier, Parked(last, 1, {})))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"[" + b" " * 300_000_000, "holds more than 268,435,456 bytes"),
        (b'{"before":null,"x":[' + b"[]," * 5_000_000 + b"1]}", "10,000,003 lists, objects and members"),
    ],
    ids=["long", "of many parts"],
)
def test_a_small_file_does_not_take_all_memory(text: bytes, why: str) -> None:
    files = Files()
    last = parking(files).park(T.identifier, commit(3), None)
    files.found[last] = zlib.compress(text)
    assert len(files.found[last]) < 300_000
    with pytest.raises(TableTroubleError, match=why):
        list(parking(files).commits(T.identifier, Parked(last, 1, {})))


def test_a_file_that_no_coordinator_has_named_so_is_not_read() -> None:
    with pytest.raises(TableTroubleError, match="no parked commit has such a name"):
        list(parking(Files()).commits(T.identifier, Parked("file:///etc/passwd", 1, {})))
