"""Records that change rows of a table: what each does, which one counts, and what becomes of those that cannot."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from calving.casting.table import TableConverter
from calving.errors import BadRecordError, ConfigError
from calving.model.files import FileContent
from calving.model.mutations import RowMutations
from calving.model.ranges import Range
from calving.model.record_path import Evolution, Limits, Tolerance
from calving.runtime.batch import BatchRunner
from calving.tasks.spec import TaskSpec
from tests.mutations.changing import Changing, Message


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
    (files,) = sink.take(*(change("u", key, f"v{i}") for i in range(20) for key in (1, 2, 3))).written.values()
    assert sum(file.record_count for file in files.data_files) == 3
    (keys,) = files.delete_files
    assert (keys.content, keys.equality_ids, keys.record_count) == (FileContent.EQUALITY_DELETES, (1,), 3)
    assert sink.counts == {"superseded": 57}


def test_an_insert_that_appends_writes_no_key_but_for_what_came_before_it(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations("op", inserts="append"))
    (files,) = sink.take(change("c", 1, "a"), change("c", 2, "a")).written.values()
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


def test_a_deleted_row_stays_and_is_marked_if_it_is_told_to(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations("op", delete_mode="soft"))
    sink.take(change("c", 1, "a"), change("c", 2, "b"))
    sink.take(change("d", 1, "a"))
    assert sink.rows("id", "v", "_deleted") == [(1, "a", True), (2, "b", False)]
    sink.take(change("u", 1, "c"))
    assert sink.rows("id", "v", "_deleted") == [(1, "c", False), (2, "b", False)]


def test_by_an_order_field_the_greatest_value_of_a_batch_counts(tmp_path: Path) -> None:
    """Rule M3, over partitions of the topic."""
    sink = Changing(tmp_path, RowMutations(upsert=True, order_field="lsn"), slots=2)
    sink.take_all(
        {0: [change("u", 1, "new", lsn=9), change("u", 2, "new", lsn=3)], 1: [change("u", 1, "old", lsn=4)] * 4}
    )
    assert sink.rows("id", "v") == [(1, "new"), (2, "new")]


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("buffered", [96 * 1024 * 1024, 1], ids=["in memory", "on disk"])
def test_random_histories_come_to_what_a_dict_says(tmp_path: Path, slots: int, buffered: int) -> None:
    for seed in range(2):
        rng = random.Random(seed)
        sink = Changing(tmp_path / str(seed), slots=slots, limits=Limits(block_records=3, buffered_bytes=buffered))
        rows: dict[int, str] = {}
        sink.take(change("c", 0, "first"))
        rows[0] = "first"
        for batch in range(4):
            messages: dict[int, Sequence[Message]] = {}
            for partition in range(2):
                made = []
                for i in range(rng.randint(1, 14)):
                    key, op, value = rng.randrange(5) * 2 + partition, rng.choice("cud"), f"{batch}-{i}"
                    made.append(change(op, key, value))
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

    def careful(self: BatchRunner, number: int, ranges: Sequence[Range], *, careful: bool) -> TaskSpec:
        return task(self, number, ranges, careful=True)

    sink = Changing(tmp_path)
    sink.take(change("c", 1, "a"), change("c", 2, "a"))
    with mock.patch.object(BatchRunner, "_task", careful):
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
