"""The ledger: what a table branch says about the control log."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calving.model.events import CommitComplete, DataWritten, Envelope, TableReference
from calving.model.files import DataFile
from calving.model.offsets import Span, TopicPartition
from calving.protocol.ledger import (
    Buffer,
    Ledger,
    LedgerKey,
    admit,
    decode_control,
    decode_source,
    encode_control,
    encode_source,
)

KEY = LedgerKey("control", "connect-x", "log-1")
TABLE = TableReference("c", ("db",), "t")
COMMIT = UUID(int=1)
TP = TopicPartition("s", 0)


def written(partition: int, offset: int, *paths: str, table: TableReference = TABLE, rows: int = 1) -> Envelope:
    files = tuple(DataFile(path, "PARQUET", rows, 10) for path in paths)
    return Envelope(partition, offset, DataWritten(COMMIT, table, files), {TP: Span(offset * 10, offset * 10 + 10)})


def summary(control: str, log_id: str | None = "log-1") -> dict[str, str]:
    found = {"kafka.connect.offsets.control.connect-x": control}
    return found if log_id is None else found | {"calving.control-log-id": log_id}


def test_the_newest_snapshot_of_this_sink_decides() -> None:
    ancestry = [{"added-records": "1"}, summary('{"0":7}'), summary('{"0":3}')]
    assert KEY.read(ancestry, {}).control == {0: 7}


def test_a_snapshot_of_another_incarnation_of_the_log_does_not_count() -> None:
    assert KEY.read([summary('{"0":99}', "log-0"), summary('{"0":3}')], {}).control == {0: 3}


def test_what_was_read_of_the_source_counts_whatever_log_it_went_through() -> None:
    old = LedgerKey("control", "connect-x", "log-0")
    ledger = Ledger({0: 99}, {TP: 50})
    assert KEY.read([old.summary(ledger)], {}) == Ledger({}, {TP: 50})
    assert KEY.read([], old.properties(ledger)) == Ledger({}, {TP: 50})


def test_a_snapshot_of_the_java_sink_counts() -> None:
    assert KEY.read([summary('{"0":3}', None)], {}).control == {0: 3}


def test_the_table_property_decides_once_the_snapshots_have_expired() -> None:
    properties = KEY.properties(Ledger({0: 5}, {TP: 50}))
    assert KEY.read([{}], properties) == Ledger({0: 5}, {TP: 50})


def test_the_table_property_of_another_incarnation_does_not_count() -> None:
    properties = LedgerKey("control", "connect-x", "log-0").properties(Ledger({0: 5}, {}))
    assert KEY.read([], properties) == Ledger({}, {})


def test_two_branches_of_one_table_do_not_share_a_property() -> None:
    other = LedgerKey("control", "connect-x", "log-1", "audit")
    properties = KEY.properties(Ledger({0: 5}, {}))
    assert other.read([], properties) == Ledger({}, {})
    assert other.read([], properties | other.properties(Ledger({0: 2}, {}))).control == {0: 2}


def test_two_sinks_on_one_table_keep_their_own_ledgers() -> None:
    other = LedgerKey("control", "connect-y", "log-2")
    properties = KEY.properties(Ledger({0: 5}, {})) | other.properties(Ledger({0: 9}, {}))
    assert KEY.read([], properties).control == {0: 5}
    assert other.read([], properties).control == {0: 9}


def test_every_entry_of_the_summary_is_text() -> None:
    assert all(isinstance(value, str) for value in KEY.summary(Ledger({0: 5}, {TP: 3})).values())


def test_entries_below_the_ledger_are_left_out() -> None:
    found = admit([written(0, 4, "a"), written(0, 5, "b")], {0: 6}, Ledger({0: 5}, {}))
    assert [f.file_path for f in found.data_files] == ["b"]


def test_the_new_ledger_is_the_furthest_of_read_and_stored() -> None:
    found = admit([written(0, 9, "a")], {0: 10, 1: 2}, Ledger({0: 5, 1: 7}, {}))
    assert found.ledger.control == {0: 10, 1: 7}


def test_a_file_announced_twice_is_admitted_once() -> None:
    found = admit([written(0, 1, "a"), written(0, 2, "a", "b")], {0: 3}, Ledger({}, {}))
    assert [f.file_path for f in found.data_files] == ["a", "b"]


def test_a_file_without_rows_is_left_out() -> None:
    assert not admit([written(0, 1, "a", rows=0)], {0: 2}, Ledger({}, {}))


def test_source_offsets_of_what_is_admitted_accumulate() -> None:
    found = admit([written(0, 1, "a"), written(0, 2, "b")], {0: 3}, Ledger({}, {TopicPartition("s", 9): 4}))
    assert found.ledger.source == {TP: 30, TopicPartition("s", 9): 4}


def test_the_buffer_saves_the_lowest_entry_that_is_still_buffered() -> None:
    buffer = Buffer()
    for entry in (written(0, 3, "a"), written(0, 5, "b", table=TableReference("c", ("db",), "u")), written(1, 8, "c")):
        buffer.hear(entry)
    buffer.settle(("db", "t"), buffer.read)
    assert buffer.position() == {0: 5, 1: 9}


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
    buffer.settle(("db", "t"), read)
    assert [e.offset for e in buffer.tables()["db", "t"]] == [4]


def test_a_redelivered_entry_is_buffered_once() -> None:
    buffer = Buffer()
    buffer.hear(written(0, 3, "a"))
    buffer.hear(written(0, 3, "a"))
    assert len(buffer.tables()["db", "t"]) == 1


def test_references_that_differ_in_uuid_share_one_commit() -> None:
    buffer = Buffer()
    buffer.hear(written(0, 1, "a"))
    buffer.hear(written(0, 2, "b", table=TableReference("other", ("db",), "t", UUID(int=5))))
    assert len(buffer.tables()) == 1


@given(st.dictionaries(st.integers(0, 300), st.integers(0, 2**60)))
def test_control_offsets_survive_their_text(offsets: dict[int, int]) -> None:
    assert decode_control(encode_control(offsets)) == offsets


def test_control_offsets_are_written_as_java_writes_them() -> None:
    assert encode_control({1: 7, 0: 3}) == '{"0":3,"1":7}'


@given(st.dictionaries(st.tuples(st.text(max_size=5), st.integers(0, 9)), st.integers(0, 2**60)))
def test_source_offsets_survive_their_text(raw: dict[tuple[str, int], int]) -> None:
    offsets = {TopicPartition(*k): v for k, v in raw.items()}
    assert decode_source(encode_source(offsets)) == offsets


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_committing_in_any_number_of_steps_admits_every_file_once(order: tuple[int, ...]) -> None:
    entries = [written(p, o, f"{p}-{o}") for p in range(3) for o in range(4)]
    ledger, admitted = Ledger({}, {}), []
    read: dict[int, int] = {}
    for p in order:
        for entry in (e for e in entries if e.partition == p):
            read[p] = entry.offset + 1
            found = admit([e for e in entries if e.offset < read.get(e.partition, 0)], read, ledger)
            admitted += [f.file_path for f in found.data_files]
            ledger = found.ledger
    assert sorted(admitted) == sorted(f"{p}-{o}" for p in range(3) for o in range(4))
