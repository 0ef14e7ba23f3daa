"""The ledger: what a table branch says about the control log."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calving.errors import DataLossError, TableTroubleError
from calving.model.events import Attachment, CommitComplete, DataComplete, DataWritten, Envelope, TableReference
from calving.model.files import DataFile
from calving.model.offsets import Span, TopicPartition, encode_coverage, less
from calving.protocol.buffer import Buffer
from calving.protocol.commit import admit, twice
from calving.protocol.held_back import passed_over
from calving.protocol.ledger import (
    NOWHERE,
    Ledger,
    SourceProgress,
    decode_control,
    decode_source,
    encode_control,
    encode_source,
)
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.ledger_updates import brought_back
from tests.protocol.lines import line_of

KEY = LedgerKey("control", "connect-x", "log-1")
TABLE = TableReference("c", ("db",), "t")
COMMIT = UUID(int=1)
TP = TopicPartition("s", 0)


def written(partition: int, offset: int, *paths: str, table: TableReference = TABLE, rows: int = 1) -> Envelope:
    files = tuple(DataFile(path, "PARQUET", rows, 10) for path in paths)
    return Envelope(partition, offset, DataWritten(COMMIT, table, files), {TP: (Span(offset * 10, offset * 10 + 10),)})


def summary(control: str, log_id: str | None = "log-1") -> dict[str, str]:
    found = {"kafka.connect.offsets.control.connect-x": control}
    return found if log_id is None else found | {"calving.control-log-id": log_id}


def test_the_newest_snapshot_of_this_sink_decides() -> None:
    line = line_of({"added-records": "1"}, summary('{"0":7}'), summary('{"0":3}'))
    assert KEY.read(line, {}).control == {0: 7}


def test_a_snapshot_of_another_incarnation_of_the_log_does_not_count() -> None:
    assert KEY.read(line_of(summary('{"0":99}', "log-0"), summary('{"0":3}')), {}).control == {0: 3}


def test_what_was_read_of_the_source_counts_whatever_log_it_went_through() -> None:
    old = LedgerKey("control", "connect-x", "log-0")
    ledger = Ledger({0: 99}, {TP: 50}, {TP: 40})
    assert KEY.read(line_of(old.summary(ledger)), {}) == Ledger({}, {TP: 50}, {TP: 40})
    assert KEY.read(line_of(), old.properties(ledger)) == Ledger({}, {TP: 50}, {TP: 40})


def test_a_snapshot_of_the_java_sink_counts() -> None:
    assert KEY.read(line_of(summary('{"0":3}', None)), {}).control == {0: 3}


def test_the_table_property_decides_once_the_snapshots_have_expired() -> None:
    properties = KEY.properties(Ledger({0: 5}, {TP: 50}, {TP: 50}))
    assert KEY.read(line_of({}), properties) == Ledger({0: 5}, {TP: 50}, {TP: 50})


def test_the_table_property_of_another_incarnation_does_not_count() -> None:
    properties = LedgerKey("control", "connect-x", "log-0").properties(Ledger({0: 5}))
    assert KEY.read(line_of(), properties) == Ledger({})


def test_two_branches_of_one_table_do_not_share_a_property() -> None:
    other = LedgerKey("control", "connect-x", "log-1", "audit")
    properties = KEY.properties(Ledger({0: 5}))
    assert other.read(line_of(), properties) == Ledger({})
    assert other.read(line_of(), properties | other.properties(Ledger({0: 2}))).control == {0: 2}


def test_two_sinks_on_one_table_keep_their_own_ledgers() -> None:
    other = LedgerKey("control", "connect-y", "log-2")
    properties = KEY.properties(Ledger({0: 5})) | other.properties(Ledger({0: 9}))
    assert KEY.read(line_of(), properties).control == {0: 5}
    assert other.read(line_of(), properties).control == {0: 9}


def test_every_entry_of_the_summary_is_text() -> None:
    assert all(isinstance(value, str) for value in KEY.summary(Ledger({0: 5}, {TP: 3})).values())


def test_entries_below_the_ledger_are_left_out() -> None:
    found = admit([written(0, 4, "a"), written(0, 5, "b")], {0: 6}, NOWHERE, Ledger({0: 5}))
    assert [f.file_path for f in found.data_files] == ["b"]


def test_the_new_ledger_is_the_furthest_of_read_and_stored() -> None:
    found = admit([written(0, 9, "a")], {0: 10, 1: 2}, NOWHERE, Ledger({0: 5, 1: 7}, {}))
    assert found.ledger.control == {0: 10, 1: 7}


def test_a_file_announced_twice_is_admitted_once() -> None:
    found = admit([written(0, 1, "d/a"), written(0, 2, "d/a", "d//a", "b")], {0: 3}, NOWHERE, Ledger({}))
    assert [f.file_path for f in found.data_files] == ["d/a", "b"]


def test_a_file_without_rows_is_left_out() -> None:
    assert not admit([written(0, 1, "a", rows=0)], {0: 2}, NOWHERE, Ledger({}))


def test_what_was_read_of_the_source_accumulates() -> None:
    progress = SourceProgress({TP: (Span(10, 30),)}, {TP: (Span(10, 20),)})
    found = admit([written(0, 2, "b")], {0: 3}, progress, Ledger({}, {TP: 10, TopicPartition("s", 9): 4}, {TP: 10}))
    assert found.ledger == Ledger({0: 3}, {TP: 30, TopicPartition("s", 9): 4}, {TP: 20, TopicPartition("s", 9): 0})


def test_what_was_not_heard_yet_is_missing() -> None:
    found = admit(
        [written(0, 2, "b")], {0: 3}, SourceProgress({TP: (Span(20, 30),)}, {}), Ledger({}, {TP: 10}, {TP: 10})
    )
    assert found.ledger.source == {TP: 30}
    assert found.ledger.missing == {TP: (Span(10, 20),)}
    assert found.ledger.held(TP) == (Span(0, 10), Span(20, 30))


def test_a_publication_that_another_commit_has_passed_without_it_is_not_claimed() -> None:
    """A store that went back forgets it; a coordinator that had heard it before does not."""
    late = replace(written(0, 2, "a"), spans={TP: (Span(10, 20),)})
    progress = SourceProgress({TP: (Span(0, 20),)}, {})
    found = admit([late], {0: 3}, progress, Ledger({0: 5}, {TP: 10}))
    assert not found
    assert found.ledger.source == {TP: 10}
    assert admit([late], {0: 3}, progress, Ledger({0: 5}, {TP: 20})).ledger.source == {TP: 20}


def test_what_was_missing_is_held_once_it_was_heard() -> None:
    before = Ledger({}, {TP: 30}, {TP: 10}, {TP: (Span(10, 20),)})
    assert admit([], {}, SourceProgress({TP: (Span(10, 20),)}, {}), before).ledger.held(TP) == (Span(0, 30),)


def test_what_is_settled_is_missing_nowhere() -> None:
    before = Ledger({}, {TP: 30}, {TP: 0}, {TP: (Span(10, 20),)})
    after = admit([], {}, SourceProgress({TP: (Span(0, 25),)}, {TP: (Span(0, 25),)}), before).ledger
    assert (after.settled, after.missing) == ({TP: 25}, {})


def test_a_partition_that_starts_anew_is_no_longer_what_the_ledger_knew() -> None:
    progress = SourceProgress({TP: (Span(0, 20),)}, {}, {TP: (0, 7)})
    before = Ledger({0: 7}, {TP: 500}, {TP: 480}, source_control={0: 7})
    assert admit([], {}, progress, before).ledger.source == {TP: 20}


def test_a_ledger_that_was_told_of_a_restart_still_knows_what_a_successor_hears_again() -> None:
    """Else it would call that missing, though the table holds it."""
    again = replace(written(0, 9, "a"), spans={TP: (Span(20, 30),)})
    progress = SourceProgress({TP: (Span(20, 40),)}, {}, {TP: (0, 7)})
    before = KEY.read(line_of(KEY.summary(Ledger({0: 10}, {TP: 30}, {TP: 20}))), {})
    after = admit([again], {0: 12}, progress, before).ledger
    assert (after.source, after.missing) == ({TP: 40}, {})


@pytest.mark.parametrize(
    "said",
    [
        {**KEY.summary(Ledger({0: 10}, {TP: 500})), "calving.control-log-id": "another log"},
        KEY.summary(Ledger({0: 10, 1: 3}, {TP: 500})),
    ],
    ids=["another log", "a log of two partitions"],
)
def test_a_ledger_that_may_not_know_of_a_restart_is_not_believed(said: dict[str, str]) -> None:
    progress = SourceProgress({TP: (Span(0, 20),)}, {}, {TP: (0, 7)})
    assert admit([], {}, progress, KEY.read(line_of(said), {})).ledger.source == {TP: 20}


def test_a_commit_of_the_java_sink_tells_nothing_of_a_restart() -> None:
    java = {KEY.offsets: '{"0":10}'}
    ledger = KEY.read(line_of(java, KEY.summary(Ledger({0: 5}, {TP: 500}))), {})
    assert ledger.control == {0: 10}
    assert admit([], {}, SourceProgress({TP: (Span(0, 20),)}, {}, {TP: (0, 7)}), ledger).ledger.source == {TP: 20}


def test_what_a_table_got_before_a_restart_is_missing_nowhere_after_it() -> None:
    before = replace(written(0, 3, "a"), spans={TP: (Span(0, 10),)})
    progress = SourceProgress({TP: (Span(0, 20),)}, {}, {TP: (0, 7)})
    assert admit([before], {0: 9}, progress, Ledger({0: 5}, {TP: 10})).ledger.missing == {}


def test_a_successor_is_told_once_that_a_partition_began_anew() -> None:
    told = Envelope(0, 0, CommitComplete(COMMIT), attached=Attachment({TP: (Span(0, 20),)}, restarted=frozenset([TP])))
    buffer = Buffer()
    for entry in (told, complete(0, 1, Span(20, 30)), replace(told, offset=2)):
        buffer.hear(entry)
    assert buffer.progress() == SourceProgress({TP: (Span(0, 30),)}, {TP: (Span(0, 30),)}, {TP: (0, 0)})
    attached = Attachment({TP: (Span(0, 30),)}, restarted=frozenset([TP]), restarts={TP: (0, 0)}, read={0: 3})
    assert buffer.attachment({}, {}) == attached


def test_a_successor_is_told_where_offsets_have_restarted() -> None:
    first, second = Buffer(), Buffer({1: 9})
    part = replace(written(1, 7, "a"), spans={TP: (Span(0, 20),)}, restarted=frozenset([TP]))
    for entry in (part, replace(part, offset=8, event=DataComplete(COMMIT), parts=1)):
        first.hear(entry)
    second.hear(complete(1, 9, Span(20, 30)))
    second.hear(Envelope(1, 10, CommitComplete(COMMIT), attached=first.attachment({}, {})))
    assert first.progress().restarted == second.progress().restarted == {TP: (1, 7)}
    assert second.progress().covered == {TP: (Span(20, 30),)}  # that was heard behind the restart


def test_a_coordinator_that_has_not_heard_of_a_restart_tells_nothing_of_what_came_after() -> None:
    buffer = Buffer()
    buffer.hear(replace(complete(0, 4, Span(0, 20)), restarted=frozenset([TP])))
    buffer.hear(Envelope(0, 5, CommitComplete(COMMIT), attached=Attachment({TP: (Span(0, 480),)})))
    assert buffer.progress().covered == {TP: (Span(0, 20),)}


def test_records_that_the_table_holds_would_come_twice() -> None:
    again = admit([written(0, 1, "a")], {0: 2}, NOWHERE, Ledger({}, {TP: 15}))
    assert twice(again, NOWHERE, Ledger({}, {TP: 15}), {}) == {TP: (Span(10, 15),)}
    assert twice(again, NOWHERE, Ledger({}, {TP: 15}), {TP: (Span(10, 15),)}) == {}
    assert twice(again, NOWHERE, Ledger({}, {TP: 10}), {}) == {}


def test_records_that_two_publications_cover_would_come_twice() -> None:
    first, second = written(0, 1, "a"), replace(written(0, 2, "b"), spans={TP: (Span(18, 25),)})
    assert twice(admit([first, second], {0: 3}, NOWHERE, Ledger({})), NOWHERE, Ledger({}), {}) == {TP: (Span(18, 20),)}


def test_what_is_done_with_elsewhere_does_not_come_twice() -> None:
    taken_over = replace(written(0, 2, "b"), spans={TP: (Span(0, 500), Span(500, 510))})
    assert twice(admit([taken_over], {0: 3}, NOWHERE, Ledger({})), NOWHERE, Ledger({}, {TP: 100}), {}) == {}


def test_the_parts_of_one_publication_come_once() -> None:
    parts = [written(0, 1, "a"), replace(written(0, 1, "b"), offset=2)]
    assert twice(admit(parts, {0: 3}, NOWHERE, Ledger({})), NOWHERE, Ledger({}), {}) == {}


def test_a_holding_is_outdated_once_all_that_it_names_is_heard_again_and_settled() -> None:
    properties = {KEY.holding: encode_coverage({TP: (Span(10, 20),)})}
    assert not KEY.outdated(properties, SourceProgress({}, {TP: (Span(5, 19),)}))
    assert KEY.outdated(properties, SourceProgress({}, {TP: (Span(5, 20),)}))
    assert not KEY.outdated({}, SourceProgress({}, {TP: (Span(5, 20),)}))


@pytest.mark.parametrize("key, since", [(KEY, {0: 6}), (KEY, {}), (replace(KEY, log_id="before"), {0: 9})])
def test_a_recovery_supersedes_what_was_heard_before_it(key: LedgerKey, since: dict[int, int]) -> None:
    assert key.is_superseded(KEY.recovered_at(KEY.log_id, {0: 7}), SourceProgress({}, {}, since=since))


def test_a_recovery_supersedes_nothing_that_was_heard_after_it() -> None:
    after = SourceProgress({}, {}, since={0: 7, 1: 0})
    assert not KEY.is_superseded(KEY.recovered_at(KEY.log_id, {0: 7, 1: 0}), after)
    assert not KEY.is_superseded({}, SourceProgress({}, {}))


def test_a_recovery_that_has_begun_says_which_tables_get_everything_again() -> None:
    begun = KEY.recovered_at(KEY.log_id, {0: 7}, again=True)
    assert KEY.gets_all_again(begun)
    assert KEY.is_superseded(begun, SourceProgress({}, {}))
    assert not KEY.gets_all_again(begun | KEY.recovered_at(KEY.log_id, {0: 7}))
    assert not KEY.gets_all_again({})


def complete(partition: int, offset: int, span: Span) -> Envelope:
    return Envelope(partition, offset, DataComplete(COMMIT), {TP: (span,)})


def test_a_publication_counts_when_all_of_it_has_been_heard() -> None:
    buffer = Buffer()
    buffer.hear(written(0, 1, "a"))
    assert (buffer.tables(), buffer.whole(), buffer.progress()) == ({}, {0: 1}, NOWHERE)
    buffer.hear(complete(0, 2, Span(10, 20)))
    assert list(buffer.tables()) == [("db", "t")]
    assert buffer.whole() == {0: 3}
    assert buffer.progress() == SourceProgress({TP: (Span(10, 20),)}, {})


def test_files_of_the_java_sink_count_as_they_come() -> None:
    buffer = Buffer()
    buffer.hear(Envelope(0, 1, DataWritten(COMMIT, TABLE, (DataFile("a", "PARQUET", 1, 10),))))
    assert list(buffer.tables()) == [("db", "t")]


def test_records_are_settled_once_their_files_are_committed() -> None:
    buffer = Buffer()
    buffer.hear(written(0, 1, "a"))
    buffer.hear(complete(0, 2, Span(10, 20)))
    buffer.settle(("db", "t"), buffer.whole())
    assert buffer.progress().settled == {TP: (Span(10, 20),)}


def test_what_another_coordinator_calls_settled_is_settled() -> None:
    buffer = Buffer()
    buffer.hear(Envelope(0, 0, CommitComplete(COMMIT), attached=Attachment({TP: (Span(0, 10),)})))
    buffer.hear(written(0, 1, "a"))
    buffer.hear(complete(0, 2, Span(10, 20)))
    assert buffer.progress() == SourceProgress({TP: (Span(0, 20),)}, {TP: (Span(0, 10),)})


def test_a_topic_whose_offsets_go_back_is_covered_from_its_beginning() -> None:
    buffer = Buffer()
    buffer.hear(complete(0, 1, Span(0, 500)))
    buffer.hear(replace(complete(0, 2, Span(0, 20)), restarted=frozenset([TP])))
    assert buffer.progress() == SourceProgress({TP: (Span(0, 20),)}, {TP: (Span(0, 20),)}, {TP: (0, 2)})


def test_the_buffer_saves_the_lowest_entry_that_is_still_buffered() -> None:
    """And what comes right before it: that may be another part, which was passed over."""
    buffer = Buffer()
    for entry in (written(0, 3, "a"), written(0, 5, "b", table=TableReference("c", ("db",), "u")), written(1, 8, "c")):
        buffer.hear(entry)
    buffer.settle(("db", "t"), buffer.read)
    assert buffer.position() == {0: 4, 1: 9}


def test_the_buffer_saves_the_read_position_once_nothing_is_buffered() -> None:
    buffer = Buffer()
    buffer.hear(written(0, 3, "a"))
    buffer.hear(Envelope(0, 4, CommitComplete(COMMIT)))
    buffer.settle(("db", "t"), buffer.read)
    assert buffer.position() == {0: 5}


def test_what_is_heard_during_a_commit_stays_buffered() -> None:
    buffer = Buffer()
    buffer.hear(written(0, 3, "a"))
    read = dict(buffer.read)
    buffer.hear(written(0, 4, "b"))
    buffer.hear(complete(0, 5, Span(40, 50)))
    buffer.hear(complete(0, 6, Span(30, 40)))
    buffer.settle(("db", "t"), read)
    assert [e.offset for e in buffer.tables()["db", "t"]] == [4]


def test_a_redelivered_entry_is_buffered_once() -> None:
    buffer = Buffer()
    buffer.hear(written(0, 3, "a"))
    buffer.hear(written(0, 3, "a"))
    buffer.hear(complete(0, 4, Span(30, 40)))
    assert len(buffer.tables()["db", "t"]) == 1


def test_references_that_differ_in_uuid_share_one_commit() -> None:
    buffer = Buffer()
    buffer.hear(written(0, 1, "a"))
    buffer.hear(written(0, 2, "b", table=TableReference("other", ("db",), "t", UUID(int=5))))
    buffer.hear(complete(0, 3, Span(10, 20)))
    buffer.hear(complete(0, 4, Span(20, 30)))
    assert len(buffer.tables()) == 1


NAMES, IDS = st.text("aZ9._-", min_size=1, max_size=5), st.text("aZ9_-", max_size=5)


@given(st.dictionaries(st.integers(0, 300), st.integers(0, 2**60)))
def test_control_offsets_survive_their_text(offsets: dict[int, int]) -> None:
    assert decode_control(encode_control(offsets)) == offsets


def test_control_offsets_are_written_as_java_writes_them() -> None:
    assert encode_control({1: 7, 0: 3}) == '{"0":3,"1":7}'


@given(st.dictionaries(st.builds(TopicPartition, NAMES, st.integers(0, 9), IDS), st.integers(0, 2**60)))
def test_source_offsets_survive_their_text(offsets: dict[TopicPartition, int]) -> None:
    assert decode_source(encode_source(offsets)) == offsets


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_committing_in_any_number_of_steps_admits_every_file_once(order: tuple[int, ...]) -> None:
    entries = [written(p, o, f"{p}-{o}") for p in range(3) for o in range(4)]
    ledger, admitted = Ledger({}), []
    read: dict[int, int] = {}
    for p in order:
        for entry in (e for e in entries if e.partition == p):
            read[p] = entry.offset + 1
            found = admit([e for e in entries if e.offset < read.get(e.partition, 0)], read, NOWHERE, ledger)
            admitted += [f.file_path for f in found.data_files]
            ledger = found.ledger
    assert sorted(admitted) == sorted(f"{p}-{o}" for p in range(3) for o in range(4))


def ended(offset: int, parts: int) -> Envelope:
    return Envelope(0, offset, DataComplete(COMMIT), {TP: (Span(10, 20),)}, parts)


def part(offset: int, table: str) -> Envelope:
    found = written(0, offset, table, table=TableReference("c", ("db",), table))
    return replace(found, spans={TP: (Span(10, 20),)})


def test_a_publication_of_which_a_part_was_not_heard_never_counts() -> None:
    buffer = Buffer()
    buffer.hear(part(1, "a"))
    with pytest.raises(DataLossError, match="has 2 parts, and 1 were read"):
        buffer.hear(ended(3, parts=2))


def test_a_commit_never_ends_behind_a_part_that_was_passed_over() -> None:
    """Else the table leaves that part out for ever, whoever hears it later."""
    buffer = Buffer({0: 1})
    buffer.hear(part(2, "b"))
    assert (buffer.whole(), buffer.position()) == ({0: 1}, {0: 1})


def test_a_successor_never_starts_in_the_middle_of_a_publication() -> None:
    """Else it could not count the parts; a table that has its part already leaves it out by its ledger."""
    buffer = Buffer({0: 1})
    for entry in (part(1, "a"), part(2, "b"), ended(3, parts=2)):
        buffer.hear(entry)
    buffer.settle(("db", "a"), buffer.whole())
    assert buffer.position() == {0: 1}
    buffer.settle(("db", "b"), buffer.whole())
    assert buffer.position() == {0: 4}


def test_what_a_rollback_has_taken_away_is_not_held_and_not_called_settled() -> None:
    properties = KEY.properties(Ledger({0: 9}, {TP: 60}, {TP: 60}))
    ledger = KEY.read(line_of(KEY.summary(Ledger({0: 5}, {TP: 30}, {TP: 30}))), properties)
    assert ledger.gone == {TP: (Span(30, 60),)}
    progress = SourceProgress({TP: (Span(0, 70),)}, {TP: (Span(0, 60),)})
    after = admit([written(0, 9, "a")], {0: 10}, progress, ledger).ledger
    assert (after.source, after.settled, after.missing) == ({TP: 70}, {TP: 30}, {TP: (Span(30, 60),)})
    assert passed_over(after, progress) == {}


def test_what_a_rollback_has_taken_away_stays_away_until_it_is_to_come_back() -> None:
    properties = KEY.properties(Ledger({0: 9}, {TP: 60}, {TP: 60}))
    head = KEY.summary(Ledger({0: 5}, {TP: 30}, {TP: 30}))
    progress = SourceProgress({TP: (Span(0, 70),)}, {TP: (Span(0, 60),)})
    for offset in (9, 10, 11):
        ledger = admit(
            [written(0, offset, str(offset))], {0: offset + 1}, progress, KEY.read(line_of(head), properties)
        ).ledger
        properties |= KEY.properties(ledger)
        head = KEY.summary(ledger)
        assert ledger.missing == {TP: (Span(30, 60),)}
        assert less(ledger.gone, KEY.known_to_be_gone(properties)) == {}
    assert KEY.read(line_of(head), properties | brought_back(KEY, ledger, properties, None)).gone == {}


def test_after_a_rollback_a_replay_brings_nothing_back() -> None:
    properties = KEY.properties(Ledger({0: 9}, {TP: 60}, {TP: 60}))
    ledger = KEY.read(line_of(KEY.summary(Ledger({0: 5}, {TP: 30}, {TP: 30}))), properties)
    assert not admit([written(0, 7, "a")], {0: 9}, NOWHERE, ledger)


def test_what_is_committed_again_is_gone_no_longer() -> None:
    ledger = Ledger({0: 5}, {TP: 30}, {TP: 30}, gone={TP: (Span(30, 60),)})
    again = replace(written(0, 9, "a"), spans={TP: (Span(30, 60),)})
    progress = SourceProgress({TP: (Span(30, 60),)}, {})
    assert admit([again], {0: 10}, progress, ledger).ledger.gone == {}
    left_out = {TP: (Span(30, 40),)}
    assert admit([again], {0: 10}, progress, ledger, left_out).ledger.gone == left_out


def test_a_ledger_says_what_is_settled_only_where_that_is_not_all() -> None:
    other = TopicPartition("s", 1)
    said = KEY.summary(Ledger({}, {TP: 50, other: 60}, {TP: 50, other: 55}))
    assert said["calving.source-offsets"] == '{"s":[50,60]}'
    assert said["calving.settled-offsets"] == '{"s":{"1":55}}'


def test_the_longer_form_of_version_0_1_0_is_read() -> None:
    said = {
        KEY.offsets: '{"0":3}',
        "calving.source-offsets": '{"s":{"0":50}}',
        "calving.settled-offsets": '{"s":{"0":0}}',
    }
    assert KEY.read(line_of(said), {}) == Ledger({0: 3}, {TP: 50}, {TP: 0})


def test_the_saved_position_is_never_in_the_middle_of_a_publication_that_is_known_by_its_records() -> None:
    """A topic without an identity that was recreated has other records at the same offsets."""
    other = TableReference("c", ("db",), "u")
    buffer = Buffer()
    buffer.hear(complete(0, 1, Span(10, 20)))
    for entry in (written(0, 2, "a"), written(0, 3, "b", table=other)):
        buffer.hear(replace(entry, spans={TP: (Span(10, 20),)}))
    buffer.hear(complete(0, 4, Span(10, 20)))
    buffer.settle(("db", "t"), buffer.whole())
    assert buffer.position() == {0: 2}


def test_a_part_that_is_missing_is_noticed_unless_its_publication_is_in_the_tables() -> None:
    end = replace(complete(0, 4, Span(10, 20)), parts=2)
    known = Buffer()
    known.hear(complete(0, 1, Span(10, 20)))
    with pytest.raises(DataLossError, match="has 2 parts, and 0 were read"):
        known.hear(end)
    settled = Buffer()
    settled.hear(Envelope(0, 1, CommitComplete(COMMIT), attached=Attachment({TP: (Span(10, 20),)})))
    settled.hear(end)


_ODD = ("", "{", "[" * 100_000, "5", "null", '{"s":5}', '{"s":{"x":[1]}}', "[1]")


@pytest.mark.parametrize("text", _ODD, ids=lambda text: text[:12])
@pytest.mark.parametrize(
    "name",
    [KEY.offsets, *map(KEY.of_table, ("calving.source-offsets", "calving.missing-offsets", "calving.held-offsets"))],
)
def test_a_property_that_somebody_has_changed_is_named_with_a_remedy(name: str, text: str) -> None:
    properties = {**KEY.properties(Ledger({0: 5}, {TP: 50}, {TP: 50})), name: text}
    with pytest.raises(TableTroubleError, match="give the property its former value") as raised:
        KEY.read(line_of(), properties), KEY.left_out(properties)
    assert str(raised.value).startswith(f"'{name}' in the table's properties")


@pytest.mark.parametrize("text", ["{", "5", "[5]", "null", '[{"snapshots":5}]'])
def test_a_list_of_ledgers_that_somebody_has_changed_is_named(text: str) -> None:
    with pytest.raises(TableTroubleError, match="ledgers-at"):
        list(KEY.ledgers_at({KEY.of_table("calving.ledgers-at"): text}))


@pytest.mark.parametrize("text", ["{", "5", "{}", '{"log":"log-1"}', '{"log":"log-1","control":{"x":1}}'])
def test_a_recovery_that_somebody_has_changed_is_named(text: str) -> None:
    with pytest.raises(TableTroubleError, match="recovered-at"):
        KEY.is_superseded({KEY.of_table("calving.recovered-at"): text}, NOWHERE)
