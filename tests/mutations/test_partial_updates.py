"""Updates that lack values keep those of the stored row (``on-unavailable-value = keep``)."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from calving.errors import OtherSettingsError, TableTroubleError
from calving.iceberg.resolution import RowChangeResolver, RowChanges
from calving.model.files import PARTIAL
from calving.model.record_path import Evolution, Limits
from calving.model.tables import RowMutations
from harness.structure import check
from tests.iceberg.reader import rows_of
from tests.mutations.changing import NAME, Changing, Message
from tests.mutations.test_unavailable_values import DEBEZIUM, FORMS, TEXT, event

KEEPING = RowMutations("op", on_unavailable_value="keep")
LARGE = "x" * 3_000


def put(key: int, op: str = "u", **row: Any) -> Message:
    return {"id": key}, {"id": key, "op": op, **row}


def gone(key: int) -> Message:
    return put(key, "d")


def sink_of(folder: Path, **more: Any) -> Changing:
    types = {"id": "long", "v": "long", "big": "string", "blob": "string"}
    return Changing(folder, more.pop("mutations", KEEPING), columns=more.pop("columns", types), **more)


def sink_with(folder: Path, **columns: IcebergType) -> Changing:
    """A sink whose table has these columns besides."""
    sink = sink_of(folder)
    sink.catalog.create_namespace("db")
    own = (NestedField(1, "id", LongType(), required=False), NestedField(2, "v", LongType(), required=False))
    more = (NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(columns.items(), 10))
    sink.catalog.create_table(NAME, Schema(*own, *more))
    return sink


def test_an_update_keeps_the_value_that_it_lacks(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, "c", v=1, big=LARGE), put(2, "c", v=1, big="b"))
    outcome = sink.take(put(1, v=2, big=TEXT))
    assert (outcome.dead_letters, sink.rows("id", "v", "big")) == ((), [(1, 2, LARGE), (2, 1, "b")])
    check(sink.table, equality=False)


STORED: dict[str, tuple[IcebergType, Any]] = {
    "text": (StringType(), "a"),
    "bytes": (BinaryType(), "AP8="),
    "hexadecimal bytes": (StringType(), "00ff"),
    "array of texts": (ListType(20, StringType()), ["a"]),
    "array of UUIDs": (ListType(20, UUIDType()), ["00000000-0000-0000-0000-000000000001"]),
    "array of bytes": (ListType(20, BinaryType()), ["AP8="]),
    "array of numbers": (ListType(20, IntegerType()), [1, 2]),
    "hstore as a map": (MapType(20, StringType(), 21, StringType()), {"a": "b"}),
    "hstore as JSON": (StringType(), '{"a":"b"}'),
}


@pytest.mark.parametrize("beside", [1, 2**70], ids=["columns", "objects"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_keeps_the_value(tmp_path: Path, form: str, beside: int) -> None:
    kind, stored = STORED[form]
    sink = sink_with(tmp_path, big=kind, n=DecimalType(38, 0))
    sink.take(put(1, "c", v=1, big=stored, n=1))
    before = sink.rows("big")
    outcome = sink.take(put(1, v=2, big=FORMS[form], n=beside))
    assert (outcome.dead_letters, sink.rows("v"), sink.rows("big")) == ((), [(2,)], before)


def test_updates_of_a_batch_are_joined_in_their_order(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, "c", v=0, big="a", blob="p"), put(2, "c", v=0, big="a", blob="p"))
    sink.take(put(1, v=1, big="b", blob=TEXT), put(2, v=1, big=TEXT, blob=TEXT), put(1, v=2, big=TEXT, blob=TEXT))
    assert sink.rows("id", "v", "big", "blob") == [(1, 2, "b", "p"), (2, 1, "a", "p")]


def test_an_insert_of_the_same_batch_has_the_value(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    outcome = sink.take(put(1, "c", v=0, big="a"), put(1, v=1, big=TEXT), put(1, v=2, big=TEXT))
    ((steps),) = outcome.written.values()
    assert (sink.rows("id", "v", "big"), sink.counts) == ([(1, 2, "a")], {"superseded": 2})
    assert not any(PARTIAL in (f.equality_ids or ()) for step in steps for f in step.delete_files)


def test_publications_of_one_commit_build_on_each_other(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, "c", v=0, big="a", blob="p"), put(2, "c", v=0, big="a", blob="p"))
    batches = [
        [put(1, v=1, big=TEXT, blob="q"), put(3, "c", v=0, big="c", blob="r")],
        [put(1, v=2, big="b", blob=TEXT), put(3, v=1, big=TEXT, blob=TEXT)],
        [put(1, v=3, big=TEXT, blob=TEXT), put(2, v=1, big="z", blob=TEXT)],
        [put(2, v=2, big=TEXT, blob="y")],
    ]
    sink.commit(*(sink.read({0: messages}) for messages in batches))
    assert sink.rows("id", "v", "big", "blob") == [(1, 3, "b", "q"), (2, 2, "z", "y"), (3, 1, "c", "r")]
    check(sink.table, equality=False)


def test_a_change_behind_it_replaces_the_row_of_a_partial_update(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(*(put(key, "c", v=0, big="a") for key in range(4)))
    batches = [
        [put(0, v=1, big=TEXT), put(1, v=1, big=TEXT)],
        [put(0, v=2, big="whole"), gone(1), put(2, v=1, big=TEXT)],
    ]
    sink.commit(*(sink.read({0: messages}) for messages in batches))
    assert sink.rows("id", "v", "big") == [(0, 2, "whole"), (2, 1, "a"), (3, 0, "a")]


@pytest.mark.parametrize("together", [True, False], ids=["in a batch", "in two publications"])
def test_a_value_does_not_outlive_its_deleted_row(tmp_path: Path, together: bool) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, "c", v=0, big="a", blob="p"))
    batches = [[gone(1)], [put(1, v=1, big=TEXT, blob="q")]]
    sink.commit(*(sink.read({0: each}) for each in ([[*batches[0], *batches[1]]] if together else batches)))
    assert sink.rows("id", "v", "big", "blob") == [(1, 1, None, "q")]


@pytest.mark.parametrize("together", [True, False], ids=["in a batch", "in two publications"])
def test_a_value_does_not_outlive_an_emptied_table(tmp_path: Path, together: bool) -> None:
    sink = sink_of(tmp_path, mutations=RowMutations("op", on_unavailable_value="keep", on_truncate="delete"))
    sink.take(put(1, "c", v=0, big="a", blob="p"))
    batches = [[put(1, v=1, big=TEXT, blob="q")], [(None, {"op": "t"}), put(1, v=2, big=TEXT, blob=TEXT)]]
    sink.commit(*(sink.read({0: each}) for each in ([[*batches[0], *batches[1]]] if together else batches)))
    assert sink.rows("id", "v", "big", "blob") == [(1, 2, None, None)]


@pytest.mark.parametrize("together", [True, False], ids=["in a batch", "in two publications"])
def test_an_update_without_a_row_becomes_one(tmp_path: Path, caplog: pytest.LogCaptureFixture, together: bool) -> None:
    sink = sink_of(tmp_path)
    batches = [[put(1, v=1, big=TEXT, blob="q")], [put(1, v=2, big=TEXT, blob=TEXT)]]
    with caplog.at_level(logging.WARNING):
        sink.commit(*(sink.read({0: each}) for each in ([[*batches[0], *batches[1]]] if together else batches)))
    assert sink.rows("id", "v", "big", "blob") == [(1, 2, None, "q")]
    assert "1 update without all values found no row of the key" in caplog.text


def test_an_update_without_a_row_may_be_skipped(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, mutations=RowMutations("op", on_unavailable_value="keep", on_missing_row="skip"))
    sink.take(put(2, "c", v=0, big="a"))
    sink.take(put(1, v=1, big=TEXT), put(2, v=1, big=TEXT), gone(3), put(3, v=1, big=TEXT))
    assert sink.rows("id", "v", "big") == [(2, 1, "a")]


def test_an_update_without_a_row_waits_for_a_required_column(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.catalog.create_namespace("db")
    own = (NestedField(1, "id", LongType(), required=False), NestedField(2, "v", LongType(), required=False))
    sink.catalog.create_table(NAME, Schema(*own, NestedField(3, "big", StringType(), required=True)))
    sink.take(put(1, "c", v=0, big="a"))
    sink.take(put(1, v=1, big=TEXT))
    assert sink.rows("id", "v", "big") == [(1, 1, "a")]
    outcome = sink.take(put(1, v=2))
    assert "field 'big': the column is required" in sink.reasons(outcome)[0][1]
    outcome = sink.read({0: [put(2, v=1, big=TEXT)]})
    with pytest.raises(TableTroubleError, match=r"column big is required, .* on-missing-row = skip"):
        sink.commit(outcome)
    assert sink.rows("id", "v", "big") == [(1, 1, "a")]


def test_an_inserted_row_with_a_placeholder_is_bad(tmp_path: Path) -> None:
    """Debezium's insert under a changed key: the value is in the row of the former key."""
    sink = sink_of(tmp_path)
    sink.take(put(1, "c", v=1, big="a"))
    outcome = sink.take(gone(1), put(2, "c", v=1, big=TEXT))
    assert "field 'big' of an inserted row has the placeholder" in sink.reasons(outcome)[0][1]
    assert sink.rows("id") == []


def test_an_update_that_changes_its_key_needs_all_values(tmp_path: Path) -> None:
    sink = Changing(
        tmp_path,
        RowMutations("_cdc.op", on_unavailable_value="keep"),
        evolution=Evolution(create=True, evolve=True),
        transforms=(DEBEZIUM,),
    )
    sink.take(event("c", {"id": 1, "v": 1, "big": "a"}), event("c", {"id": 3, "v": 1, "big": "a"}))
    key, moved = event("u", {"id": 2, "v": 2, "big": TEXT})
    outcome = sink.take((key, {**moved, "before": {"id": 1}}), event("u", {"id": 3, "v": 2, "big": TEXT}))
    assert ["the update has changed the key" in why for _, why in sink.reasons(outcome)] == [True]
    assert sink.rows("id", "v", "big") == [(1, 1, "a"), (3, 2, "a")]


def test_a_row_marked_as_deleted_keeps_its_values(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, mutations=RowMutations("op", on_unavailable_value="keep", delete_mode="soft"))
    sink.take(put(1, "c", v=1, big="a"), put(2, "c", v=1, big="b"))
    sink.take(put(1, "d", v=2, big=TEXT), put(2, "d", v=2, big=TEXT), put(2, v=3, big=TEXT))
    assert sink.rows("id", "v", "big", "_cdc_deleted") == [(1, 2, "a", True), (2, 3, "b", False)]


def test_a_field_inside_a_struct_is_kept_alone(tmp_path: Path) -> None:
    inner = StructType(NestedField(30, "b", StringType(), False), NestedField(31, "c", LongType(), True))
    sink = sink_with(tmp_path, s=StructType(NestedField(20, "a", LongType()), NestedField(21, "t", inner, False)))
    sink.take(put(1, "c", s={"a": 1, "t": {"b": "x", "c": 1}}), put(2, "c", s={"a": 1}))
    sink.take(put(1, s={"a": 2, "t": {"b": TEXT, "c": 2}}), put(2, s={"a": 2, "t": {"b": TEXT, "c": 3}}))
    assert sink.rows("id", "s") == [
        (1, {"a": 2, "t": {"b": "x", "c": 2}}),
        (2, {"a": 2, "t": {"b": None, "c": 3}}),
    ]


def test_a_field_that_shares_its_column_cannot_be_kept(tmp_path: Path) -> None:
    sink = sink_with(tmp_path, s=StringType(), n=DecimalType(38, 0))
    sink.take(put(1, "c", s={"a": "b"}))
    outcome = sink.take(put(1, s={"a": TEXT, "c": "d"}, n=2**70))
    assert "its column holds other fields, too" in sink.reasons(outcome)[0][1]


@pytest.mark.parametrize("keep_in", ["partition", "key of a struct"])
def test_a_row_is_written_into_the_partition_of_its_kept_value(tmp_path: Path, keep_in: str) -> None:
    partition = ("big",) if keep_in == "partition" else ("bucket(id, 3)", "truncate(big, 1)")
    sink = sink_of(tmp_path, partition_by=partition)
    sink.take(*(put(key, "c", v=0, big="ab"[key % 2]) for key in range(6)))
    sink.take(*(put(key, v=1, big=TEXT) for key in range(4)))
    assert sink.rows("id", "v", "big") == [(k, int(k < 4), "ab"[k % 2]) for k in range(6)]
    check(sink.table, equality=False)


@pytest.mark.parametrize("limits", [Limits(block_records=3), Limits(block_records=2, buffered_bytes=1)])
@pytest.mark.parametrize("slots", [1, 3])
def test_tasks_that_spill_and_share_a_partition_join_the_same(tmp_path: Path, limits: Limits, slots: int) -> None:
    sink = sink_of(tmp_path, limits=limits, slots=slots)
    sink.take(*(put(key, "c", v=0, big=f"a{key}", blob="p") for key in range(12)))
    updates = [put(key, v=n, big=TEXT, blob=f"q{n}" if n % 2 else TEXT) for n in range(1, 5) for key in range(12)]
    sink.take(*updates)
    assert sink.rows("id", "v", "big", "blob") == sorted(((k, 4, f"a{k}", "q3") for k in range(12)), key=repr)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_files_of_every_format_have_the_stored_values(tmp_path: Path, file_format: str) -> None:
    sink = sink_of(tmp_path, properties={"write.format.default": file_format})
    sink.take(*(put(key, "c", v=0, big=f"a{key}") for key in range(5)))
    sink.take(put(3, v=1, big=TEXT), put(1, v=1, big=TEXT))
    assert [row[2:4] for row in rows_of(sink.table)] == [(0, "a0"), (1, "a1"), (0, "a2"), (1, "a3"), (0, "a4")]


def test_a_renamed_widened_and_added_column_is_kept(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, columns={"id": "long", "n": "int", "big": "string"})
    sink.take(put(1, "c", n=1, big="a"))
    with sink.table.update_schema() as update:
        update.rename_column("big", "large")
        update.update_column("n", field_type=LongType())
        update.add_column("later", StringType())
    sink.take(put(1, n=TEXT, large=TEXT, later=TEXT))
    assert sink.rows("id", "n", "large", "later") == [(1, 1, "a", None)]


def test_a_column_that_is_added_while_an_update_waits_is_kept(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, "c", v=1, big="a"), put(2, "c", v=1, big="b"))
    waiting = sink.read({0: [put(1, v=2, big=TEXT)]})
    with sink.table.update_schema() as update:
        update.add_column("later", StringType())
        update.add_column("deep", StructType(NestedField(1, "x", LongType(), required=False)))
    sink.take(put(1, "c", v=3, big="c", later="l", deep={"x": 7}), put(2, "c", v=3, big="d", later="m", deep={"x": 8}))
    sink.commit(waiting)
    found = [(row[0], *row[2:4], *row[5:]) for row in rows_of(sink.table)]
    assert found == [(1, 2, "c", "l", {"x": 7}), (2, 3, "d", "m", {"x": 8})]


def test_a_row_that_was_moved_by_a_compaction_is_found(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    for key in range(4):
        sink.take(put(key, "c", v=0, big=f"a{key}"))
    waiting = sink.read({0: [put(1, v=1, big=TEXT), put(3, v=1, big=TEXT)]})
    moved = sink.table.scan().to_arrow()
    sink.table.overwrite(moved)
    sink.commit(waiting)
    assert sink.rows("id", "v", "big") == [(0, 0, "a0"), (1, 1, "a1"), (2, 0, "a2"), (3, 1, "a3")]


def test_a_refused_commit_reads_the_values_again_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_of(tmp_path)
    sink.take(*(put(key, "c", v=0, big="a") for key in range(3)))
    waiting = sink.read({0: [put(1, v=1, big=TEXT)]})
    resolve, tries = RowChangeResolver.resolve, [0]

    def overtaken(*given: Any) -> RowChanges:
        changes = resolve(*given)
        tries[0] += 1
        if tries[0] == 1:  # somebody else rewrites all rows before the commit
            rows = sink.table.scan().to_arrow()
            place = rows.schema.get_field_index("big")
            sink.table.overwrite(
                rows.set_column(place, rows.schema.field(place), pa.array(["b"] * 3, rows["big"].type))
            )
        return changes

    monkeypatch.setattr(RowChangeResolver, "resolve", overtaken)
    sink.commit(waiting)
    assert (tries, sink.rows("id", "v", "big")) == ([2], [(0, 0, "b"), (1, 1, "b"), (2, 0, "b")])
    history = sink.table.inspect.all_files()["file_path"].to_pylist()
    named = {path.removeprefix("file://") for path in history}
    written = {str(path) for path in Path(sink.table.location().removeprefix("file://"), "data").rglob("*.parquet")}
    assert {path for path in written if not path.endswith("-keys.parquet")} <= named


def test_files_wait_for_a_worker_that_keeps_values(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, "c", v=0, big="a"))
    waiting = sink.read({0: [put(1, v=1, big=TEXT)]})
    other = sink.with_(mutations=RowMutations("op", row_deletes="equality", inserts="append"))
    with pytest.raises(OtherSettingsError, match="row-deletes = equality"):
        other.commit(waiting)


def test_binary_values_come_back_as_they_were(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, columns={"id": "long", "v": "long", "big": "binary"})
    sink.take(put(1, "c", v=0, big=base64.b64encode(b"\x00\xff").decode()))
    sink.take(put(1, v=1, big=base64.b64encode(TEXT.encode()).decode()))
    assert sink.rows("v", "big") == [(1, b"\x00\xff")]
