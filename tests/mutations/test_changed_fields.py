"""Updates of MongoDB that come with the changed fields alone keep the other values of the stored row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

from calving.model.files import PARTIAL
from calving.model.record_path import Evolution, Limits, TransformSpec
from calving.model.tables import RowMutations
from harness.documents import Difference
from harness.structure import check
from tests.iceberg.reader import rows_of
from tests.mutations.changing import NAME, Changing, Message
from tests.mutations.documents import KEEPING, TRANSFORMS, played

Document = dict[str, Any]
FIRST: Document = {
    "n": 1,
    "text": "a",
    "inner": {"x": 1, "y": {"p": 1, "q": 2}},
    "tags": ["r", "s", "t"],
    "lines": [{"sku": "k", "count": 1, "marks": [1, 2]}, {"sku": "l", "count": 2, "marks": []}],
}


def event(op: str, key: int = 1, **more: Any) -> Message:
    source = {"connector": "mongodb", "db": "shop", "collection": "orders"}
    sides = {"before": None, "after": None, "updateDescription": None}
    return {"id": str(key)}, {"op": op, "ts_ms": 5, "source": source, **sides, **more}


def put(document: Document = FIRST, key: int = 1, op: str = "c") -> Message:
    return event(op, key, after=json.dumps({"_id": key, **document}))


def patch(updated: Document | None = None, key: int = 1, **more: Any) -> Message:
    return event("u", key, updateDescription={"updatedFields": json.dumps(updated or {}), **more})


def sink_of(folder: Path, **more: Any) -> Changing:
    mutations, growing = more.pop("mutations", KEEPING), Evolution(create=True, evolve=True)
    return Changing(
        folder, mutations, ("_id",), transforms=more.pop("transforms", TRANSFORMS), evolution=growing, **more
    )


def row(sink: Changing, *columns: str) -> Any:
    names = [each.name for each in sink.table.schema().fields]
    (found,) = rows_of(sink.table)  # pyiceberg reads a list of structs that is null as an empty one
    return tuple(found[names.index(each)] for each in columns or FIRST)


CASES: dict[str, tuple[Message, Document]] = {
    "a field": (patch({"n": 2}), {"n": 2}),
    "a field that is gone": (patch(removedFields=["text"]), {"text": None}),
    "a field of a struct": (patch({"inner.x": 2}), {"inner": {"x": 2, "y": {"p": 1, "q": 2}}}),
    "a struct in a struct": (patch({"inner.y.p": 2}), {"inner": {"x": 1, "y": {"p": 2, "q": 2}}}),
    "a field of a struct that is gone": (patch(removedFields=["inner.y"]), {"inner": {"x": 1, "y": None}}),
    "a whole struct": (patch({"inner": {"x": 5}}), {"inner": {"x": 5, "y": None}}),
    "an element": (patch({"tags.1": "new"}), {"tags": ["r", "new", "t"]}),
    "an element behind the others": (patch({"tags.4": "new"}), {"tags": ["r", "s", "t", None, "new"]}),
    "an array that is cut off": (patch(truncatedArrays=[{"field": "tags", "size": 1}]), {"tags": ["r"]}),
    "an array that is cut off and changed": (
        patch({"tags.0": "z"}, truncatedArrays=[{"field": "tags", "size": 2}]),
        {"tags": ["z", "s"]},
    ),
    "a field of an element": (
        patch({"lines.1.sku": "new"}),
        {"lines": [FIRST["lines"][0], {"sku": "new", "count": 2, "marks": []}]},
    ),
    "elements of several kinds": (
        patch({"lines.0.count": 9, "lines.1": {"sku": "m"}, "lines.2": {"count": 3, "marks": [7]}}),
        {
            "lines": [
                {"sku": "k", "count": 9, "marks": [1, 2]},
                {"sku": "m", "count": None, "marks": None},
                {"sku": None, "count": 3, "marks": [7]},
            ]
        },
    ),
    "an array in an element": (
        patch({"lines.0.marks.1": 8}, truncatedArrays=[{"field": "lines.0.marks", "size": 1}]),
        {"lines": [{"sku": "k", "count": 1, "marks": [1, 8]}, FIRST["lines"][1]]},
    ),
}


@pytest.mark.parametrize("together", [True, False], ids=["in the batch of its row", "in a later commit"])
@pytest.mark.parametrize("case", CASES)
def test_a_change_keeps_all_other_values(tmp_path: Path, case: str, together: bool) -> None:
    message, changed = CASES[case]
    sink = sink_of(tmp_path)
    for batch in [[put(), message]] if together else [[put()], [message]]:
        assert not sink.take(*batch).dead_letters
    assert row(sink) == tuple({**FIRST, **changed}.values())
    check(sink.table, equality=False)


@pytest.mark.parametrize("batches", [1, 2, 6], ids=["a batch", "two publications", "publications of one each"])
def test_changes_of_a_commit_are_joined_in_their_order(tmp_path: Path, batches: int) -> None:
    sink = sink_of(tmp_path)
    sink.take(put())
    changes = [
        patch({"lines.1.count": 5, "inner.x": 2}),
        patch({"tags.3": "u"}, truncatedArrays=[{"field": "lines", "size": 1}]),
        patch({"n": 7, "lines.1": {"sku": "again"}}),
        patch({"lines.1.marks": [3], "inner.y.q": 4}, removedFields=["text"]),
        patch({"lines.1.marks.1": 4, "lines.0.sku": "z"}),
        patch({"tags.0": "q", "inner.y.p": 5}),
    ]
    size = len(changes) // batches
    sink.commit(*(sink.read({0: changes[at : at + size]}) for at in range(0, len(changes), size)))
    assert row(sink) == (
        7,
        None,
        {"x": 2, "y": {"p": 5, "q": 4}},
        ["q", "s", "t", "u"],
        [{"sku": "z", "count": 1, "marks": [1, 2]}, {"sku": "again", "count": None, "marks": [3, 4]}],
    )


@pytest.mark.parametrize(
    ("change", "inner", "lines"),
    [
        ({"n": 2}, {"x": 1, "y": {"p": 1, "q": 2}, "z": 9}, [{"sku": "k", "count": 1, "marks": [], "size": 7}]),
        (
            {"inner.x": 2, "lines.0.count": 5},
            {"x": 2, "y": {"p": 1, "q": 2}, "z": 9},
            [{"sku": "k", "count": 5, "marks": [], "size": 7}],
        ),
        (
            {"inner": {"x": 2, "y": {"p": 3, "q": 4}}, "lines": [{"sku": "m", "count": 5, "marks": []}]},
            {"x": 2, "y": {"p": 3, "q": 4}, "z": None},
            [{"sku": "m", "count": 5, "marks": [], "size": None}],
        ),
        ({"inner": None, "lines.0": {"sku": "m"}}, None, [{"sku": "m", "count": None, "marks": None, "size": None}]),
    ],
    ids=["another column", "a part", "the whole", "null"],
)
def test_fields_that_are_added_while_a_change_waits_are_kept_by_what_is_kept_in_part(
    tmp_path: Path, change: Document, inner: Any, lines: Any
) -> None:
    sink = sink_of(tmp_path)
    sink.take(put())
    waiting = sink.read({0: [patch(change)]})
    later = {"inner": {**FIRST["inner"], "z": 9}, "lines": [{"sku": "k", "count": 1, "marks": [], "size": 7}]}
    sink.take(put({**FIRST, **later}))
    sink.commit(waiting)
    assert row(sink, "inner", "lines") == (inner, lines)


def test_a_struct_that_is_kept_whole_keeps_what_an_earlier_change_kept_in_part(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put())
    sink.take(patch({"inner.x": 2}), patch({"n": 2}))
    assert row(sink, "n", "inner") == (2, {"x": 2, "y": {"p": 1, "q": 2}})


def test_a_change_behind_its_whole_row_needs_no_stored_one(tmp_path: Path) -> None:
    outcome = sink_of(tmp_path).take(put(), patch({"tags.0": "z"}), patch({"lines.0.sku": "y"}))
    ((steps),) = outcome.written.values()
    assert not any(PARTIAL in (file.equality_ids or ()) for step in steps for file in step.delete_files)


@pytest.mark.parametrize("batches", [1, 3])
def test_without_a_stored_row_only_whole_values_are_there(tmp_path: Path, batches: int) -> None:
    """An element alone would be an array that the document never had."""
    sink = sink_of(tmp_path)
    sink.take(put(key=2), event("d", 2))
    changes = [patch({"n": 5, "tags.1": "z"}), patch({"lines.0.sku": "y"}), patch({"tags.0": "a", "text": "b"})]
    size = len(changes) // batches
    sink.commit(*(sink.read({0: changes[at : at + size]}) for at in range(0, len(changes), size)))
    assert row(sink) == (5, "b", None, None, None)


def test_values_do_not_outlive_a_deleted_document(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put())
    sink.take(event("d"), patch({"n": 5, "tags.1": "z"}))
    assert row(sink) == (5, None, None, None, None)


def test_a_column_and_an_array_may_come_with_a_change(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put({"n": 1, "empty": []}))
    outcome = sink.take(patch({"empty.0": "first", "new.a.b": 1, "rows.0.c": 2}))
    assert not outcome.dead_letters
    assert row(sink, "n", "empty", "new", "rows") == (1, ["first"], {"a": {"b": 1}}, [{"c": 2}])


def test_a_change_may_create_the_table(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    assert not sink.take(patch({"a.b": 1, "tags.0": "x"}), put({"n": 1, "a": {"b": 2, "c": 3}}, key=2)).dead_letters
    assert sink.rows("_id", "n", "a") == [(1, None, {"b": 1, "c": None}), (2, 1, {"b": 2, "c": 3})]


def refused(folder: Path, schema: Schema, message: Message) -> str:
    sink = sink_of(folder)
    sink.catalog.create_namespace("db")
    sink.catalog.create_table(NAME, schema)
    ((_, reason),) = sink.reasons(sink.take(message))
    return reason


ID = NestedField(1, "_id", LongType(), required=False)


@pytest.mark.parametrize(
    ("column", "updated", "reason"),
    [
        (StringType(), {"a.b": 1}, "neither a struct nor a list"),
        (ListType(3, StringType(), False), {"a.b": 1}, "neither a struct nor a list"),
        (ListType(3, StringType(), False), {"a.0.b": 1}, "no struct"),
        (ListType(3, ListType(4, IntegerType(), False), False), {"a.0.1": 1}, "no struct"),
        (ListType(3, IntegerType()), {"a.0": 1}, "requires all elements"),
        (
            ListType(3, StructType(NestedField(4, "c", LongType(), required=True)), False),
            {"a.0.b": 1},
            "requires c of each",
        ),
        (ListType(3, StringType(), False), {"a.99999999": "x"}, "iceberg.limits.cells"),
        (
            StructType(NestedField(3, "b", LongType(), required=False)),
            {"a.b": 1, "a": {"b": 2}},
            "as a whole, and in part",
        ),
    ],
)
def test_a_change_that_the_column_cannot_keep_is_bad(
    tmp_path: Path, column: Any, updated: Document, reason: str
) -> None:
    schema = Schema(ID, NestedField(2, "a", column, required=False))
    assert reason in refused(tmp_path, schema, patch(updated))


def test_a_name_that_may_stand_for_two_columns_is_bad(tmp_path: Path) -> None:
    inner = StructType(NestedField(3, "c", LongType(), required=False))
    schema = Schema(ID, NestedField(2, "a", inner, required=False), NestedField(4, "a.b", LongType(), required=False))
    assert "a column 'a.b', and a column 'a'" in refused(tmp_path, schema, patch({"a.b": 1}))


def test_a_required_column_that_a_change_leaves_out_is_kept(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.catalog.create_namespace("db")
    sink.catalog.create_table(NAME, Schema(ID, NestedField(2, "n", LongType(), required=True)))
    sink.take(put({"n": 1}))
    assert not sink.take(patch({"text": "a"})).dead_letters
    assert row(sink, "n", "text") == (1, "a")


def test_a_soft_delete_keeps_its_mark(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, mutations=RowMutations("_cdc.op", on_unavailable_value="keep", delete_mode="soft"))
    sink.take(put({"n": 1, "text": "a"}))
    sink.take(patch({"n": 2}))
    assert row(sink, "n", "text", "_cdc_deleted") == (2, "a", False)


def test_a_change_behind_a_transform_that_may_rename_is_bad(tmp_path: Path) -> None:
    renaming = TransformSpec("rename", "ReplaceField$Value", {"renames": "n:m"})
    sink = sink_of(tmp_path, transforms=(*TRANSFORMS, renaming))
    sink.take(put())
    ((_, reason),) = sink.reasons(sink.take(patch({"n": 2})))
    assert "a transform behind MongoDebeziumTransform may have changed the names" in reason


def test_arrays_as_documents_cannot_be_changed_in_part(tmp_path: Path) -> None:
    documents = TransformSpec("documents", "MongoDebeziumTransform", {"array_handling_mode": "document"})
    sink = sink_of(tmp_path, transforms=(documents, TRANSFORMS[1]))
    sink.take(put())
    outcome = sink.take(patch({"tags.0": "x"}), patch({"n": 5}))
    assert [offset for offset, _ in sink.reasons(outcome)] == [1]
    assert row(sink, "n", "text") == (5, "a")


def test_what_only_a_stored_row_explains_is_no_column_of_a_table_to_which_rows_are_added(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, mutations=None)
    sink.take(put({"n": 1}))
    assert not sink.take(patch({"n": 2}, truncatedArrays=[{"field": "tags", "size": 1}])).dead_letters
    assert [each.name for each in sink.table.schema().fields] == ["_id", "n", "_cdc"]


def test_what_one_document_keeps_of_an_array_says_nothing_about_others(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(key=1), put(key=2))
    whole = ["w"]
    sink.take(patch({"tags.1": "new"}, 1), patch({"tags": whole}, 2), patch({"n": 2}, 1), patch({"n": 3}, 2))
    assert sink.rows("_id", "n", "tags") == [(1, 2, ["r", "new", "t"]), (2, 3, whole)]


@pytest.mark.parametrize("limits", [Limits(block_records=3), Limits(block_records=2, buffered_bytes=1)])
def test_tasks_that_spill_and_share_a_partition_join_the_same(tmp_path: Path, limits: Limits) -> None:
    sink = sink_of(tmp_path, limits=limits, slots=2)
    sink.take(*(put(key=key) for key in range(6)))
    sink.take(*(patch({f"tags.{n}": f"{n}", "lines.0.count": n}, key) for n in range(4) for key in range(6)))
    lines = [{"sku": "k", "count": 3, "marks": [1, 2]}, FIRST["lines"][1]]
    assert sink.rows("_id", "tags", "lines") == [(key, ["0", "1", "2", "3"], lines) for key in range(6)]


def test_the_histories_write_differences_as_mongo_does() -> None:
    old = {"a": 1, "b": {"c": 1, "d": 2}, "l": [1, 2, 3], "m": [{"x": 1}]}
    new = {"b": {"c": 1, "d": 3}, "l": [1, 9], "m": [{"x": 2}, {"x": 3}]}
    found = Difference(old, new)
    assert found.updated == {"b.d": 3, "l.1": 9, "m.0.x": 2, "m.1": {"x": 3}}
    assert (found.removed, found.cut) == (["a"], [{"field": "l", "size": 2}])


@pytest.mark.parametrize("seed", range(4))
def test_a_history_of_documents_is_in_the_table(tmp_path: Path, seed: int) -> None:
    assert played(tmp_path, seed)["patches"]
