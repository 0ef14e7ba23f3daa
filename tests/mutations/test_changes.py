"""Records that change rows of a table: what each does, which one counts, and what becomes of those that cannot."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.casting.table import TableConverter
from calving.errors import BadRecordError, ConfigError
from calving.iceberg.rules import TableSettings
from calving.model.files import FileContent
from calving.model.offsets import Range
from calving.model.record_path import Evolution, Limits, RouteRule, Routing, Tolerance, TransformSpec
from calving.model.tables import RowMutations
from calving.runtime.batch import BatchRunner
from calving.tasks.spec import TaskSpec
from harness.forms import forms
from tests.iceberg.reader import rows_of
from tests.mutations.changing import NAME, Changing, Message


def change(op: str, key: int | None, value: str | None = None, **more: Any) -> Message:
    return {"id": key}, {"id": key, "v": value, "op": op, **more}


@pytest.mark.parametrize(
    ("ops", "left"),
    [
        ("I", "v0"),
        ("IU", "v1"),
        ("ID", None),
        ("IDI", "v2"),
        ("DIU", "v2"),
        ("IUD", None),
        ("UDU", "v2"),
    ],
)
@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "batch by batch"])
def test_the_last_change_of_a_key_counts(tmp_path: Path, ops: str, left: str | None, together: bool) -> None:
    """Rules M1 to M4."""
    sink = Changing(tmp_path)
    sink.take(change("c", 7, "other"))
    messages = [change(op, 1, f"v{i}") for i, op in enumerate(ops)]
    for batch in [messages] if together else [[message] for message in messages]:
        sink.take(*batch)
    assert sink.rows("id", "v") == ([(1, left)] if left is not None else []) + [(7, "other")]


def test_a_batch_writes_at_most_one_row_and_one_key_for_each_key(tmp_path: Path) -> None:
    """Rule M4."""
    sink = Changing(tmp_path)
    ((files,),) = sink.take(*(change("u", key, f"v{i}") for i in range(20) for key in (1, 2, 3))).written.values()
    assert sum(file.record_count for file in files.data_files) == 3
    (keys,) = files.delete_files
    assert (keys.content, keys.equality_ids, keys.record_count) == (FileContent.EQUALITY_DELETES, (1,), 3)
    assert sink.counts == {"superseded": 57}


@pytest.mark.parametrize(
    ("tables", "account"),
    [
        ({}, "read 3 + copied 3 = written 0, dead letters 0, superseded 4, deleted 2"),
        ({"db.second": TableSettings()}, "read 3 + copied 3 = written 3, dead letters 0, superseded 2, deleted 1"),
    ],
    ids=["two mutation tables", "a mutation and an append table"],
)
def test_the_account_of_records_that_go_to_two_tables_adds_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tables: Mapping[str, TableSettings], account: str
) -> None:
    """Rule I1."""
    sink = Changing(tmp_path, routing=Routing((RouteRule(NAME), RouteRule("db.second"))), tables=tables)
    with caplog.at_level("INFO"):
        sink.take(change("c", 1, "a"), change("u", 1, "b"), change("d", 1))
    assert account in caplog.messages


def test_an_insert_that_appends_writes_no_key_but_for_what_came_before_it(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations("op", inserts="append"))
    ((files,),) = sink.take(change("c", 1, "a"), change("c", 2, "a")).written.values()
    assert files.delete_files == ()
    sink.take(change("d", 1), change("c", 1, "b"))
    assert sink.rows("id", "v") == [(1, "b"), (2, "a")]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("u", 1),
        ("Update", 1),
        (" D ", 0),
        ("delete", 0),
        ("r", 1),
        ("c", 1),
        ("", 1),
        (None, 1),
        ("true", 0),
        ("false", 1),
    ],
)
def test_the_first_letter_says_what_a_record_does(tmp_path: Path, text: Any, left: int) -> None:
    """Rule M1; and the field that says whether a row is deleted, as Debezium's unwrapped events have it."""
    sink = Changing(tmp_path)
    sink.take(change("c", 1, "a"))
    sink.take(change(text, 1, "b"))
    assert sink.rows("v") == [("b",)] * left


def test_the_operation_may_be_nested_and_need_be_no_column(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations("_cdc.op"))
    sink.take(({"id": 1}, {"id": 1, "v": "a"}))
    assert sink.table.schema().column_names == ["id", "v"]
    sink.take(({"id": 1}, {"id": 1, "_cdc": {"op": "D"}}))
    assert sink.rows("id") == []


def test_without_an_operation_every_record_replaces_the_row_of_its_key(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations(upsert=True))
    sink.take(change("d", 1, "a"), change("c", 2, "a"))
    sink.take(change("d", 1, "b"))
    assert sink.rows("id", "v") == [(1, "b"), (2, "a")]


def test_a_delete_needs_only_its_key(tmp_path: Path) -> None:
    """Rule M10."""
    sink = Changing(tmp_path, evolution=Evolution(create=True, evolve=True))
    sink.take(change("c", 1, "a"), change("c", 2, "b"))
    sink.take(({"id": 1}, {"id": 1, "op": "d", "unknown": {"x": 1}}))
    assert sink.rows("id") == [(2,)]
    assert "unknown" not in sink.table.schema().column_names


def test_a_key_that_the_table_does_not_have_deletes_nothing(tmp_path: Path) -> None:
    """Rule M5."""
    sink = Changing(tmp_path)
    sink.take(change("c", 1, "a"))
    sink.take(change("d", 9))
    assert sink.rows("id") == [(1,)]
    assert sink.counts == {"deleted": 1}


def test_a_record_without_a_value_in_an_id_column_is_bad(tmp_path: Path) -> None:
    """Rule M6."""
    sink = Changing(tmp_path)
    sink.take(change("c", 1, "a"))
    outcome = sink.take(change("u", None, "b"), change("d", None), change("u", 1, "c"))
    reason = "table db.t: field id is null, but identifies the row"
    assert sink.reasons(outcome) == [(1, reason), (2, reason)]
    assert sink.rows("id", "v") == [(1, "c")]


@pytest.mark.parametrize("beside", [[], [("c", 2, {})], [("c", 2, {"more": 1})], [("d", 2, {})]], ids=str)
def test_a_record_without_its_key_is_bad_for_that_alone_and_asks_for_no_column(
    tmp_path: Path, beside: Sequence[tuple[str, int, dict[str, int]]]
) -> None:
    """Regardless of its other faults, and of the records beside it."""
    sink = Changing(tmp_path, evolution=Evolution(create=True, evolve=True))
    sink.take(change("c", 1, "a", n=1))
    outcome = sink.take(
        change("u", None, "b", n="x"), change("u", None, "b", new=1), *(change(op, i, "c", **m) for op, i, m in beside)
    )
    reason = "table db.t: field id is null, but identifies the row"
    assert sink.reasons(outcome) == [(1, reason), (2, reason)]
    assert "new" not in sink.table.schema().column_names


def test_the_key_of_a_row_is_converted_once(tmp_path: Path) -> None:
    sink = Changing(tmp_path, limits=Limits(block_records=100))
    sink.take(change("c", 1, "a"))
    with mock.patch.object(TableConverter, "convert", autospec=True, side_effect=TableConverter.convert) as convert:
        sink.take(*(change("u", key, "b") for key in range(10)))
        assert convert.call_count == 1
        sink.take(*(change("d" if key < 3 else "u", key, "c") for key in range(10)))
    assert [len(call.args[1]) for call in convert.call_args_list] == [10, 7, 3]


def test_an_event_that_empties_its_source_is_bad_or_skipped_and_never_an_insert(tmp_path: Path) -> None:
    sink = Changing(tmp_path)
    sink.take(change("c", 1, "a"))
    outcome = sink.take(change("t", 2, "b"))
    assert sink.reasons(outcome) == [(1, "truncate event")]
    other = sink.with_(mutations=RowMutations("op", on_truncate="skip"))
    other.take(change("t", 2, "b"))
    assert (other.counts, other.rows("id")) == ({"truncate event": 1}, [(1,)])


@pytest.mark.parametrize("key", [{"id": 1}, 1], ids=["an object", "a single value"])
def test_a_tombstone_deletes_the_row_of_its_key_if_it_is_told_to(tmp_path: Path, key: Any) -> None:
    sink = Changing(tmp_path)
    sink.take(change("c", 1, "a"), change("c", 2, "a"))
    sink.take((key, None))
    assert (sink.counts, sink.rows("id")) == ({"tombstone": 1}, [(1,), (2,)])
    other = sink.with_(mutations=RowMutations("op", tombstones="delete"))
    other.take((key, None))
    assert other.rows("id") == [(2,)]
    assert other.reasons(other.take((None, None))) == [(4, "a record with neither a value nor a key identifies no row")]


def test_a_value_that_is_null_as_json_is_a_tombstone(tmp_path: Path) -> None:
    """As in Connect, and whether or not the value passes transforms."""
    for chain in ((), (TransformSpec("route", "RegexRouter", {"regex": "x", "replacement": "y"}),)):
        sink = Changing(tmp_path / f"{len(chain)}", RowMutations("op", tombstones="delete"), transforms=chain)
        sink.take(change("c", 1, "a"), change("c", 2, "a"))
        sink.take(({"id": 1}, b"null"), ({"id": 2}, b"null"), change("c", 2, "b"))
        assert (sink.rows("id", "v"), sink.counts) == ([(2, "b")], {"deleted": 1, "superseded": 1})


def test_a_deleted_row_stays_and_is_marked_if_it_is_told_to(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations("op", delete_mode="soft"))
    sink.take(change("c", 1, "a"), change("c", 2, "b"))
    sink.take(change("d", 1, "a"))
    assert sink.rows("id", "v", "_cdc_deleted") == [(1, "a", True), (2, "b", False)]
    sink.take(change("u", 1, "c"))
    assert sink.rows("id", "v", "_cdc_deleted") == [(1, "c", False), (2, "b", False)]


def test_by_an_order_field_the_greatest_value_of_a_batch_counts(tmp_path: Path) -> None:
    """Rule M3, over partitions of the topic."""
    sink = Changing(tmp_path, RowMutations(upsert=True, order_field="lsn"), slots=2)
    sink.take_all(
        {0: [change("u", 1, "new", lsn=9), change("u", 2, "new", lsn=3)], 1: [change("u", 1, "old", lsn=4)] * 4}
    )
    assert sink.rows("id", "v") == [(1, "new"), (2, "new")]


@pytest.mark.parametrize(("mode", "left"), [("hard", [(1, "late")]), ("soft", [(1, "gone")])])
def test_a_late_update_brings_a_row_back_unless_its_delete_has_marked_it(
    tmp_path: Path, mode: Any, left: list[tuple[int, str]]
) -> None:
    """Rule M8."""
    sink = Changing(tmp_path, RowMutations("op", order_field="lsn", delete_mode=mode))
    sink.take(change("c", 1, "a", lsn=1))
    sink.take(change("d", 1, "gone", lsn=5))
    sink.take(change("u", 1, "late", lsn=3))
    assert sink.rows("id", "v") == left


@pytest.mark.parametrize("mode", ["hard", "soft"])
@pytest.mark.parametrize("op", ["u", "d"])
@pytest.mark.parametrize("order", [{}, {"lsn": None}], ids=["missing", "null"])
def test_a_change_without_its_order_value_is_bad(tmp_path: Path, mode: Any, op: str, order: dict[str, Any]) -> None:
    """It would lose to every row that has one (rule M8)."""
    sink = Changing(tmp_path, RowMutations("op", order_field="lsn", delete_mode=mode))
    sink.take(change("c", 1, "a", lsn=1), change("c", 2, "a", lsn=1))
    outcome = sink.take(change(op, 1, "b", **order), change("u", 2, "b", lsn=2))
    assert sink.reasons(outcome) == [
        (2, "table db.t: field lsn is null or missing, but orders the changes: deletes need it, too")
    ]
    assert sink.rows("id", "v") == [(1, "a"), (2, "b")]


def test_a_change_without_its_order_value_stops_a_sink_that_tolerates_nothing(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations("op", order_field="lsn"))
    sink.take(change("c", 1, "a", lsn=1))
    with pytest.raises(BadRecordError, match=r"topic 'changes', partition 0, offset 1: .*field lsn is null or missing"):
        sink.with_(tolerance=Tolerance()).take(change("d", 1))


def test_records_without_the_cdc_field_are_inserts_and_the_log_counts_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Changing(tmp_path, slots=2)
    sink.take(change("c", 1, "a"), ({"id": 2}, {"id": 2, "v": "a"}), change("d", None), (None, {"id": 3, "op": None}))
    assert sink.rows("id") == [(1,), (2,), (3,)]
    lacking = [each.getMessage() for each in caplog.records if "cdc-field" in each.getMessage()]
    assert lacking == ["2 records without a value in cdc-field op: taken as inserts"]
    caplog.clear()
    sink.take(change("c", 4, "a"), change("u", 4, "b"))
    assert not [each for each in caplog.records if "cdc-field" in each.getMessage()]


def test_records_whose_operation_is_of_no_known_source_are_inserts_and_the_log_counts_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Changing(tmp_path)
    sink.take(change("c", 1, "a"), change("-D", 1), change("1", 2, "a"), change("remove", 3), change(" Load", 4, "a"))
    assert sink.rows("id") == [(1,), (2,), (3,), (4,)]
    told = [each.getMessage() for each in caplog.records if "cdc-field" in each.getMessage()]
    assert told == ["3 records whose text in cdc-field op names no operation: taken as inserts"]


@pytest.mark.parametrize("evolve", [False, True])
def test_a_soft_delete_needs_what_the_table_requires_unless_columns_evolve(tmp_path: Path, evolve: bool) -> None:
    sink = Changing(tmp_path, RowMutations("op", delete_mode="soft"), evolution=Evolution(create=True, evolve=evolve))
    sink.catalog.create_namespace("db")
    id_, v = NestedField(1, "id", LongType(), required=True), NestedField(2, "v", StringType(), required=True)
    sink.catalog.create_table("db.t", Schema(id_, v))
    sink.take(change("c", 1, "a"))
    outcome = sink.take(({"id": 1}, {"id": 1, "op": "d"}))
    reason = "table db.t: field 'v': the column is required, but the record has no value for it"
    assert sink.reasons(outcome) == ([] if evolve else [(1, reason)])
    assert sink.rows("id", "v", "_cdc_deleted") == ([(1, None, True)] if evolve else [(1, "a", False)])


@pytest.mark.parametrize("order", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "batch by batch"])
def test_a_change_whose_order_value_is_nan_is_bad(tmp_path: Path, order: str, together: bool) -> None:
    """It would win or lose by the boundaries of batches, because it is not less and not greater than another value."""
    sink = Changing(tmp_path, RowMutations("op", order_field="o"), columns={"o": "double"})
    sent = [change("c", 1, "five", o=5.0), change("u", 1, order, o=order), change("d", 1, o="NaN")]
    outcomes = [sink.take(*sent)] if together else [sink.take(each) for each in sent]
    reason = "table db.t: field o is NaN, which is neither before nor after another value, but orders the changes"
    bad = [(1, reason), (2, reason)] if order == "NaN" else [(2, reason)]
    assert [each for outcome in outcomes for each in sink.reasons(outcome)] == bad
    assert sink.rows("v") == [(order if order == "Infinity" else "five",)]


def test_an_id_column_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    sink = Changing(tmp_path, id_columns=("id", "v", "id"))
    sink.take(change("c", 1, "a"), change("c", 2, "a"))
    sink.take(change("u", 1, "a", w=3), change("d", 2, "a"))
    assert sink.rows("id", "v") == [(1, "a")]


def test_an_order_column_that_the_table_requires_is_not_made_optional(tmp_path: Path) -> None:
    evolution = Evolution(create=True, evolve=True)
    sink = Changing(tmp_path, RowMutations("op", order_field="lsn"), ("id", "lsn"), evolution=evolution)
    sink.take(change("c", 1, "a", lsn=1))
    other = sink.with_(id_columns=("id",))
    other.take(change("u", 1, "b"))
    assert other.table.schema().find_field("lsn").required


def test_rows_from_before_the_order_field_are_older_than_all_changes(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations("op"))
    sink.take(change("c", 1, "a", lsn=None), change("c", 2, "a", lsn=9))
    ordered = sink.with_(mutations=RowMutations("op", order_field="lsn"))
    ordered.take(change("u", 1, "b", lsn=-1), change("u", 2, "b", lsn=8))
    assert ordered.rows("id", "v") == [(1, "b"), (2, "a")]


def test_soft_deletes_by_an_order_field_converge_in_whatever_order_they_come(tmp_path: Path) -> None:
    chance = random.Random(3)
    lsns = chance.sample(range(60), 60)
    sent = [(n % 5, chance.choice("cuud"), lsn) for n, lsn in enumerate(lsns)]
    sink = Changing(tmp_path, RowMutations("op", order_field="lsn", delete_mode="soft"), slots=2)
    for start in range(0, 60, 15):
        batch: dict[int, list[Message]] = {0: [], 1: []}
        for key, op, lsn in sent[start : start + 15]:
            batch[chance.randrange(2)].append(change(op, key, f"v{lsn}", lsn=lsn))
        sink.take_all(batch)
    last = {key: max((lsn, op) for k, op, lsn in sent if k == key) for key in range(5)}
    expected = [(key, f"v{lsn}", op == "d") for key, (lsn, op) in last.items()]
    assert sink.rows("id", "v", "_cdc_deleted") == expected


def test_partitions_that_are_not_split_become_steps_of_which_the_later_one_wins(tmp_path: Path) -> None:
    """Their rows are not shuffled."""
    sink = Changing(tmp_path, slots=2)
    sink.take(change("c", 1, "a"))
    with mock.patch("tests.fuzz.sink.shipping.send", side_effect=AssertionError("a shuffle")):
        outcome = sink.take_all({0: [change("u", 1, "b"), change("u", 2, "b")], 1: [change("u", 2, "c")] * 2})
    (steps,) = outcome.written.values()
    assert [len(step.delete_files) for step in steps] == [1, 1]
    assert sink.rows("id", "v") == [(1, "b"), (2, "c")]


def test_changes_that_do_not_fit_into_memory_become_steps(tmp_path: Path) -> None:
    sink = Changing(tmp_path, limits=Limits(block_records=3, buffered_bytes=1))
    ops = [change("u", key, f"v{i}") for i in range(4) for key in (1, 2)]
    (steps,) = sink.take(*ops, change("d", 1), change("d", 3)).written.values()
    assert len(steps) == 4
    assert [sum(file.record_count for file in step.data_files) for step in steps] == [2, 2, 1, 0]
    assert sink.rows("id", "v") == [(2, "v3")]
    assert sink.counts == {"superseded": 3, "deleted": 2}


@pytest.mark.parametrize("slots", forms([1, 4], [4]))
@pytest.mark.parametrize("buffered", [96 * 1024 * 1024, 1], ids=["fits into memory", "does not"])
@pytest.mark.parametrize("order_field", [None, "lsn"], ids=["in steps", "at once"])
def test_random_histories_come_to_what_a_dict_says(
    tmp_path: Path, slots: int, buffered: int, order_field: str | None
) -> None:
    for seed in range(2):
        rng = random.Random(seed)
        limits, mutations = (
            Limits(block_records=3, buffered_bytes=buffered),
            RowMutations("op", order_field=order_field),
        )
        sink = Changing(tmp_path / str(seed), mutations, slots=slots, limits=limits)
        rows: dict[int, str] = {}
        sink.take(change("c", 0, "first", lsn=-1))
        rows[0] = "first"
        for batch in range(4):
            messages: dict[int, Sequence[Message]] = {}
            for partition in range(2):
                made = []
                for i in range(rng.randint(1, 14)):
                    key, op, value = rng.randrange(5) * 2 + partition, rng.choice("cud"), f"{batch}-{i}"
                    made.append(change(op, key, value, lsn=100 * batch + i))
                    rows.pop(key, None)
                    if op != "d":
                        rows[key] = value
                messages[partition] = made
            sink.take_all(messages)
            assert sink.rows("id", "v") == sorted(rows.items()), seed


@pytest.mark.parametrize("terms", [("bucket(id, 4)",), ("g",)], ids=["by the key", "by what changes"])
def test_rows_are_found_in_whatever_partition_they_are(tmp_path: Path, terms: tuple[str, ...]) -> None:
    rng, rows = random.Random(5), dict[int, tuple[int, str]]()
    sink = Changing(tmp_path, partition_by=terms, slots=2)
    for batch in range(4):
        messages = []
        for i in range(12):
            key, op, group = rng.randrange(6), "c" if not rows else rng.choice("cuud"), rng.randrange(3)
            messages.append(change(op, key, f"{batch}-{i}", g=group))
            rows.pop(key, None)
            if op != "d":
                rows[key] = group, f"{batch}-{i}"
        sink.take(*messages)
        assert sink.rows("id", "g", "v") == sorted((key, *row) for key, row in rows.items())


@pytest.mark.parametrize("slots", [1, 2], ids=["one task", "a shuffle"])
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_one_batch_changes_rows_and_columns_in_files_of_any_format(
    tmp_path: Path, file_format: str, slots: int
) -> None:
    """A new column, a wider id column, a delete that has only its key, and a bad record."""
    sink = Changing(tmp_path, evolution=Evolution(evolve=True), slots=slots)
    sink.catalog.create_namespace("db")
    key, value = NestedField(1, "id", IntegerType(), required=True), NestedField(2, "v", StringType(), required=False)
    schema = Schema(key, value, identifier_field_ids=[1])
    sink.catalog.create_table(NAME, schema, properties={"write.format.default": file_format})
    sink.take(*(change("c", key, "a") for key in (1, 2, 3)))
    wide = 1 << 40
    outcome = sink.take(
        change("u", 1, "b", more=5), change("c", wide, "c"), change("u", None, "d"), ({"id": 2}, {"id": 2, "op": "d"})
    )
    assert [offset for offset, _ in sink.reasons(outcome)] == [5]
    assert [(key, v, more) for key, v, _, more in rows_of(sink.table)] == [
        (1, "b", 5),
        (wide, "c", None),
        (3, "a", None),
    ]
    sink.take(change("u", wide, "d", more=6), change("d", 1))
    assert [(key, v, more) for key, v, _, more in rows_of(sink.table)] == [(wide, "d", 6), (3, "a", None)]
    assert {task.file.file_format.value for task in sink.table.scan().plan_files()} == {file_format.upper()}


@pytest.mark.parametrize(
    "routing",
    [
        Routing(field="to", dynamic=True),
        Routing((RouteRule("db.t", "db.t"), RouteRule("db.u", ".*u")), field="to"),
    ],
    ids=["dynamic", "static"],
)
@pytest.mark.parametrize("slots", [1, 3])
def test_each_table_of_a_batch_gets_the_changes_of_its_own_rows(tmp_path: Path, routing: Routing, slots: int) -> None:
    sink, chance = Changing(tmp_path, routing=routing, slots=slots), random.Random(7)
    expected: dict[str, dict[int, str]] = {"db.t": {}, "db.u": {}}
    for batch in range(3):
        messages = []
        for n in range(30):
            name, key, op = chance.choice([*expected]), chance.randrange(6), chance.choice("cuud")
            messages.append(change(op, key, f"{batch}-{n}", to=name))
            expected[name].pop(key, None)
            if op != "d":
                expected[name][key] = f"{batch}-{n}"
        sink.take(*messages)
        for name, rows in expected.items():
            found = sink.catalog.load_table(name).scan().to_arrow().to_pylist()
            assert sorted((row["id"], row["v"]) for row in found) == sorted(rows.items())


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (StringType(), "a", "b"),
        (DecimalType(10, 2), "1.50", "1.51"),
        (DateType(), "2024-01-01", "2024-01-02"),
        (UUIDType(), "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"),
        (BooleanType(), True, False),
        (TimestamptzType(), "2024-01-01T00:00:00Z", "2024-01-01T00:00:01Z"),
    ],
    ids=str,
)
@pytest.mark.parametrize("slots", [1, 2])
def test_keys_of_every_type(tmp_path: Path, kind: IcebergType, one: Any, other: Any, slots: int) -> None:
    sink = Changing(tmp_path, slots=slots)
    sink.catalog.create_namespace("db")
    columns = NestedField(1, "id", kind, required=True), NestedField(2, "v", StringType(), required=False)
    sink.catalog.create_table("db.t", Schema(*columns))
    sink.take(change("c", one, "x"), change("c", other, "x"), change("u", one, "y"), change("c", other, "z"))
    sink.take(change("d", one), change("u", other, "last"))
    assert sink.rows("v") == [("last",)]


@pytest.mark.parametrize(
    ("kind", "unit", "good", "bad"),
    [
        (DecimalType(10, 2), None, ["1.50", 1.5, "1.500"], ["1.501", 1.504, 1.5 + 2**-40]),
        (TimeType(), None, ["01:02:03.000001", "01:02:03.000001000"], ["01:02:03.0000011"]),
        (TimestamptzType(), None, ["2024-01-01T00:00:00.123456Z", 5], ["2024-01-01T00:00:00.1234561Z"]),
        (TimestampType(), "ns", [1000], [1001, "2024-01-01T00:00:00.123456001"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("native", ["1", "0"])
def test_a_key_or_order_value_that_loses_digits_is_bad(
    tmp_path: Path, kind: IcebergType, unit: Any, good: list[Any], bad: list[Any], native: str
) -> None:
    """Two keys would become one, or an older change would win."""
    sink = Changing(tmp_path, RowMutations("op", order_field="n"), units={"id": unit} if unit else {})
    sink.catalog.create_namespace("db")
    columns = NestedField(1, "id", kind, required=True), NestedField(2, "n", DecimalType(9, 1), required=False)
    sink.catalog.create_table("db.t", Schema(*columns))
    with mock.patch.dict("os.environ", {"CALVING_NATIVE": native}):
        made = sink.take(
            *(change("c", each, n=1) for each in good),
            *(change("u", each, n=2) for each in bad),
            *(change("d", each, n=2) for each in bad),
            change("u", good[0], n=1.05),
        )
    reasons = dict(sink.reasons(made))
    assert [*reasons] == [*range(len(good), len(good) + 2 * len(bad) + 1)]
    assert all(f" loses digits as a {kind}, but identifies the row" in reasons[len(good) + i] for i in range(len(bad)))


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (DoubleType(), [2**53, 0.1, 1.5, 10**18, 1e300, "0.5", -(2**53)], [2**53 + 1, str(2**53 + 1), -(2**53) - 1]),
        (FloatType(), [2**24, 0.1, 1.5, "0.5"], [2**24 + 1, 1_700_000_000_001, 0.1 + 2**-40, "16777217"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("transforms", [(), (TransformSpec("t", "SetSchemaMetadata", {"schema.name": "x"}),)])
@pytest.mark.parametrize("native", ["1", "0"])
@pytest.mark.parametrize("together", [True, False])
def test_an_order_value_that_a_float_rounds_is_bad(
    tmp_path: Path, kind: IcebergType, good: list[Any], bad: list[Any], transforms: Any, native: str, together: bool
) -> None:
    """Two order values would become one, and an older change that comes later would win."""
    sink = Changing(tmp_path, RowMutations("op", order_field="n"), transforms=transforms)
    sink.catalog.create_namespace("db")
    columns = NestedField(1, "id", LongType(), required=True), NestedField(2, "n", kind, required=False)
    sink.catalog.create_table("db.t", Schema(*columns))
    messages = [change("u", i, n=n) for i, n in enumerate([*good, *bad])] + [change("d", 99, n=n) for n in bad]
    with mock.patch.dict("os.environ", {"CALVING_NATIVE": native}):
        made = [sink.take(*each) for each in ([messages] if together else [[one] for one in messages])]
    reasons = [reason for one in made for reason in sink.reasons(one)]
    assert [offset for offset, _ in reasons] == [*range(len(good), len(messages))]
    assert all(f" loses digits as a {kind}, but identifies the row or orders" in reason for _, reason in reasons)


@pytest.mark.parametrize("tolerated", [True, False])
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("ops", ["cd", "d", "ud"])
@pytest.mark.parametrize("native", ["1", "0"])
def test_a_delete_widens_its_key_as_a_row_does(
    tmp_path: Path, ops: str, apart: bool, tolerated: bool, native: str
) -> None:
    tolerance = {} if tolerated else {"tolerance": Tolerance()}
    sink = Changing(tmp_path, evolution=Evolution(evolve=True), **tolerance)  # type: ignore[arg-type]
    sink.catalog.create_namespace("db")
    columns = NestedField(1, "id", IntegerType(), required=True), NestedField(2, "v", StringType(), required=False)
    sink.catalog.create_table("db.t", Schema(*columns))
    messages = [change("c", 1, "x"), *(change(op, 2**40, "y", **({"new": 1} if op == "d" else {})) for op in ops)]
    with mock.patch.dict("os.environ", {"CALVING_NATIVE": native}):
        made = [sink.take(*each) for each in ([[one] for one in messages] if apart else [messages])]
    assert not any(one.dead_letters for one in made)
    assert sink.rows("id") == [(1,)]
    assert [(f.name, str(f.field_type)) for f in sink.table.schema().fields if f.name in ("id", "new")] == [
        ("id", "long")
    ]


def test_an_update_of_a_key_widens_it_for_the_old_key(tmp_path: Path) -> None:
    unwrap = TransformSpec("unwrap", "DebeziumTransform")
    sink = Changing(
        tmp_path, RowMutations("_cdc.op"), evolution=Evolution(evolve=True), transforms=(unwrap,), tolerance=Tolerance()
    )
    sink.catalog.create_namespace("db")
    sink.catalog.create_table("db.t", Schema(NestedField(1, "id", IntegerType(), required=True)))
    about = {"source": {"db": "d", "table": "t"}, "ts_ms": 1}
    created = {"op": "c", "before": None, "after": {"id": 2**40}, **about}
    sink.take((None, created), (None, {"op": "u", "before": {"id": 2**40}, "after": {"id": 5}, **about}))
    assert sink.rows("id") == [(5,)]


@pytest.mark.parametrize("slots", [1, 2])
def test_keys_inside_of_structs(tmp_path: Path, slots: int) -> None:
    """The structs have other fields, too, and a delete need not have them."""
    sink = Changing(tmp_path, id_columns=("k.a", "b"), slots=slots)
    sink.catalog.create_namespace("db")
    inner = StructType(NestedField(4, "x", LongType(), required=True), NestedField(5, "a", LongType(), required=True))
    columns = (
        NestedField(1, "k", inner, required=True),
        NestedField(2, "b", StringType(), required=True),
        NestedField(3, "v", StringType(), required=False),
    )
    sink.catalog.create_table("db.t", Schema(*columns))

    def row(op: str, a: int | None, b: str, value: str, **more: int) -> Message:
        return None, {"k": {"a": a, **more}, "b": b, "v": value, "op": op}

    sink.take(row("c", 1, "p", "v1", x=7), row("c", 1, "q", "v1", x=7), row("c", 2, "p", "v1", x=7))
    outcome = sink.take(row("d", 1, "p", ""), row("u", 2, "p", "v2", x=8), row("d", None, "p", ""))
    assert sink.rows("b", "v") == [("p", "v2"), ("q", "v1")]
    assert sink.reasons(outcome) == [(5, "table db.t: field k.a is null, but identifies the row")]


@pytest.mark.parametrize("slots", [1, 2])
def test_a_table_is_created_with_identifier_fields_inside_of_structs(tmp_path: Path, slots: int) -> None:
    sink = Changing(tmp_path, id_columns=("k.a", "b"), slots=slots)

    def row(op: str, k: Any, value: str) -> Message:
        return None, {"k": k, "b": 1, "v": value, "op": op}

    outcome = sink.take(row("c", {"a": 1, "x": 5}, "v1"), row("c", {"a": 2}, "v1"), row("c", {"x": 5}, "v1"))
    assert [offset for offset, _ in sink.reasons(outcome)] == [2]
    schema = sink.table.schema()
    assert {schema.find_column_name(each) for each in schema.identifier_field_ids} == {"b", "k.a"}
    sink.take(row("u", {"a": 1}, "v2"), row("d", {"a": 2}, ""), row("d", {"a": 3}, ""))
    assert sink.rows("v") == [("v2",)]


@pytest.mark.parametrize("where", [{"k": [{"a": 1}]}, {"k": 1}, {"k": {"a": 1.5}}, {"k": {"a": {"x": 1}}}], ids=str)
def test_what_cannot_hold_an_identifier_field_creates_no_table(tmp_path: Path, where: dict[str, Any]) -> None:
    sink = Changing(tmp_path, id_columns=("k.a",))
    ((_, reason),) = sink.reasons(sink.take((None, {**where, "op": "c"})))
    assert "the id-column 'k.a'" in reason


@pytest.mark.parametrize("name", ["ID", "K.Id"])
def test_id_columns_may_differ_by_case_if_all_columns_may(tmp_path: Path, name: str) -> None:
    """In a table that is created, and in one that was there."""

    def change(op: str, number: int, value: str) -> Message:
        return None, {"v": value, "op": op, **({"iD": number} if name == "ID" else {"k": {"iD": number}})}

    sink = Changing(tmp_path, id_columns=(name,), evolution=Evolution(create=True, case_insensitive=True))
    sink.take(change("c", 1, "a"), change("c", 2, "a"))
    assert name in sink.table.schema().column_names
    other = sink.with_(id_columns=(name.lower(),))
    other.take(change("u", 1, "b"), change("d", 2, ""))
    assert other.rows("v") == [("b",)]


def test_records_that_are_tried_one_by_one_come_to_the_same(tmp_path: Path) -> None:
    """As they are once something has gone wrong that only writing shows."""
    task = BatchRunner._task

    def trying(self: BatchRunner, number: int, ranges: Sequence[Range], tables: Any, *, trial_run: bool) -> TaskSpec:
        return task(self, number, ranges, tables, trial_run=True)

    sink = Changing(tmp_path)
    sink.take(change("c", 1, "a"), change("c", 2, "a"))
    with mock.patch.object(BatchRunner, "_task", trying):
        sink.take(change("u", 1, "b"), change("d", 2), change("u", None, "c"))
    assert sink.rows("id", "v") == [(1, "b")]


def test_keys_of_several_columns(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations("op"), ("tenant", "id"))

    def row(op: str, tenant: str, key: int, value: str) -> Message:
        return None, {"tenant": tenant, "id": key, "v": value, "op": op}

    sink.take(row("c", "a", 1, "x"), row("c", "b", 1, "x"), row("c", "a", 2, "x"))
    sink.take(row("d", "a", 1, ""), row("u", "b", 1, "y"))
    assert sink.rows("tenant", "id", "v") == [("a", 2, "x"), ("b", 1, "y")]


@pytest.mark.parametrize(
    ("id_columns", "mutations", "properties", "sentence"),
    [
        ((), RowMutations("op"), {}, "table db.t has no id columns: set iceberg.table.db.t.id-columns"),
        (("f",), RowMutations("op"), {}, "id column f is double"),
        (("nothing",), RowMutations("op"), {}, "table db.t has no column nothing, which is its id column"),
        (("id",), RowMutations("op"), {"format-version": "1"}, "has format version 1; row mutations need 2 or 3"),
        (("id",), RowMutations("op", order_field="lsn"), {}, "table db.t has no column lsn, which is its order-field"),
        (
            ("id",),
            RowMutations("op", delete_mode="soft", soft_delete_field="v"),
            {},
            "table db.t: its soft-delete-field v is string, not boolean",
        ),
    ],
)
def test_a_table_that_cannot_be_changed_by_its_keys_is_refused(
    tmp_path: Path, id_columns: tuple[str, ...], mutations: RowMutations, properties: dict[str, str], sentence: str
) -> None:
    created = Changing(tmp_path, None, (), properties=properties)
    created.read({0: [change("c", 1, "a", f=1.5)]})
    with pytest.raises(ConfigError, match=sentence):
        created.with_(mutations=mutations, id_columns=id_columns).read({0: [change("c", 1, "a", f=1.5)]})


def test_a_bad_record_stops_the_sink_unless_it_is_tolerated(tmp_path: Path) -> None:
    sink = Changing(tmp_path)
    sink.take(change("c", 1, "a"))
    with pytest.raises(BadRecordError, match="offset 1: truncate event"):
        sink.with_(tolerance=Tolerance()).take(change("t", 1, "a"))
