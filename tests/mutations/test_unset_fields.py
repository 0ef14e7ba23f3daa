"""Updates without a field for some columns keep the stored values (``unset-fields = keep``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, LongType, MapType, NestedField, StringType, StructType

from calving.converters.native import SWITCH
from calving.model.record_path import ConverterSpec, Evolution, Limits, TopicConverters, TransformSpec
from calving.model.tables import RowMutations
from harness.registry import SchemaRegistry, framed
from harness.structure import check
from tests.converters.test_envelope import envelope
from tests.mutations.changing import NAME, Changing, Message
from tests.mutations.test_unavailable_values import DEBEZIUM, TEXT, event

KEEPING = RowMutations(upsert=True, unset_fields="keep")
INNER = StructType(
    NestedField(21, "x", LongType(), required=False),
    NestedField(22, "y", LongType(), required=False),
    NestedField(
        23, "z", StructType(NestedField(24, "p", LongType(), required=False), NestedField(25, "q", StringType())), False
    ),
)
BESIDE = {"columns": None, "objects": 2**70}
"""Another field, without which values are read in Rust, and with which they are read as objects."""


@pytest.fixture(params=["1", "0"], ids=["native", "exact"], autouse=True)
def _native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(SWITCH, request.param)
    yield


def put(key: int, **row: Any) -> Message:
    return {"id": key}, {"id": key, **row}


def json_schema(registry: SchemaRegistry) -> TopicConverters:
    return TopicConverters(ConverterSpec("json"), ConverterSpec("json-schema", {"schema.registry.url": registry.url}))


def by_json_schema(registry: SchemaRegistry, properties: Mapping[str, Any]) -> Callable[..., Message]:
    """Makes updates of objects with these properties."""
    number = registry.register("changes-value", json.dumps({"type": "object", "properties": properties}), "JSON")

    def made(key: int, **row: Any) -> Message:
        return {"id": key}, framed(number, json.dumps({"id": key, **row}).encode())

    return made


def sink_of(folder: Path, **more: Any) -> Changing:
    types = {"id": "long", "v": "long", "name": "string"}
    return Changing(folder, more.pop("mutations", KEEPING), columns=more.pop("columns", types), **more)


def sink_with(folder: Path, *columns: NestedField, **more: Any) -> Changing:
    """A sink whose table has these columns beside the key."""
    sink = sink_of(folder, **more)
    sink.catalog.create_namespace("db")
    schema = Schema(NestedField(1, "id", LongType(), required=True), *columns)
    sink.catalog.create_table(NAME, schema)
    return sink


def column(number: int, name: str, kind: IcebergType, **more: Any) -> NestedField:
    return NestedField(number, name, kind, required=more.pop("required", False), **more)


@pytest.mark.parametrize("beside", BESIDE)
def test_an_update_without_a_field_keeps_the_value_and_a_null_replaces_it(tmp_path: Path, beside: str) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, v=1, name="a"), put(2, v=1, name="b"), put(3, v=1, name="c"))
    more = {} if beside == "columns" else {"n": BESIDE[beside]}
    outcome = sink.take(put(1, v=2, **more), put(2, name=None, **more), put(3, v=3, name="d", **more))
    assert (outcome.dead_letters, sink.rows("id", "v", "name")) == (
        (),
        [(1, 2, "a"), (2, 1, None), (3, 3, "d")],
    )
    check(sink.table, equality=False)


def test_updates_of_one_key_fold_in_their_order(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, v=0, name="a"))
    sink.take(put(1, v=1), put(1, name="b"), put(1, v=None), put(2, v=7), put(2, name="n"))
    assert sink.rows("id", "v", "name") == [(1, None, "b"), (2, 7, "n")]


def test_publications_of_one_commit_build_on_each_other(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, v=0, name="a"))
    batches = [[put(1, v=1), put(2, v=5)], [put(1, name="b")], [put(1, v=2), put(2, name="c")]]
    sink.commit(*(sink.read({0: messages}) for messages in batches))
    assert sink.rows("id", "v", "name") == [(1, 2, "b"), (2, 5, "c")]


NESTED = [
    ({"s": {"x": 5}}, {"x": 5, "y": 2, "z": {"p": 3, "q": "t"}}),
    ({"s": {"z": {"p": 4}}}, {"x": 1, "y": 2, "z": {"p": 4, "q": "t"}}),
    ({"s": {"x": None, "z": None}}, {"x": None, "y": 2, "z": None}),
    ({"s": {}}, {"x": 1, "y": 2, "z": {"p": 3, "q": "t"}}),
    ({"s": None}, None),
    ({}, {"x": 1, "y": 2, "z": {"p": 3, "q": "t"}}),
]


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize(("change", "left"), NESTED, ids=[str(each[0]) for each in NESTED])
def test_a_field_that_a_struct_lacks_is_kept_alone(
    tmp_path: Path, change: dict[str, Any], left: Any, beside: str
) -> None:
    sink = sink_with(tmp_path, column(2, "s", INNER), column(3, "v", LongType()))
    whole = {"x": 1, "y": 2, "z": {"p": 3, "q": "t"}}
    sink.take(put(1, s=whole, v=1), put(2, s=whole, v=1))
    more = {} if beside == "columns" else {"n": BESIDE[beside]}
    sink.take(put(1, v=2, **change, **more), put(2, v=2, **change, **more), put(3, s=None, v=3))
    assert sink.rows("v", "s") == sorted([(2, left), (2, left), (3, None)], key=repr)


def test_what_a_null_struct_held_does_not_come_back(tmp_path: Path) -> None:
    sink = sink_with(tmp_path, column(2, "s", INNER))
    sink.take(put(1, s={"x": 1, "y": 2}))
    sink.take(put(1, s=None), put(1, s={"x": 5}))
    assert sink.rows("s") == [({"x": 5, "y": None, "z": None},)]


def test_a_null_struct_has_all_fields_that_its_schema_lacks(tmp_path: Path) -> None:
    converters = TopicConverters(ConverterSpec("json"), ConverterSpec("json", {"schemas.enable": "true"}))
    sink = sink_with(tmp_path, column(2, "s", INNER), converters=converters)

    def of(fields: str, **row: Any) -> Message:
        inner = [{"field": name, "type": "int64", "optional": True} for name in fields]
        outer = {"field": "s", "type": "struct", "optional": True, "fields": inner}
        return {"id": row["id"]}, envelope([{"field": "id", "type": "int64"}, outer], row)

    sink.take(of("xy", id=1, s={"x": 1, "y": 2}), of("xy", id=2, s={"x": 1, "y": 2}))
    sink.take(of("x", id=1, s=None), of("x", id=2, s={"x": 5}), of("x", id=1, s={"x": 5}))
    assert sink.rows("id", "s") == [(1, {"x": 5, "y": None, "z": None}), (2, {"x": 5, "y": 2, "z": None})]


def test_a_typed_map_for_a_struct_lacks_the_names_that_it_does_not_have(tmp_path: Path) -> None:
    converters = TopicConverters(ConverterSpec("json"), ConverterSpec("json", {"schemas.enable": "true"}))
    sink = sink_with(tmp_path, column(2, "s", INNER), converters=converters)
    numbers = {"type": "map", "keys": {"type": "string"}, "values": {"type": "int64", "optional": True}}

    def of(key: int, s: dict[str, Any] | None) -> Message:
        return {"id": key}, envelope(
            [{"field": "id", "type": "int64"}, {"field": "s", "optional": True, **numbers}], {"id": key, "s": s}
        )

    sink.take(*(of(key, {"x": 1, "y": 2}) for key in range(4)))
    sink.take(of(0, {"x": 5}), of(1, {"y": None}), of(2, {}), of(3, None))
    z = {"z": None}
    left = [{"x": 5, "y": 2, **z}, {"x": 1, "y": None, **z}, {"x": 1, "y": 2, **z}, None]
    assert sink.rows("id", "s") == [*enumerate(left)]


def test_an_object_without_a_schema_lacks_the_names_that_it_does_not_have(
    tmp_path: Path, registry: SchemaRegistry
) -> None:
    properties = {"id": {"type": "integer"}, "s": {"type": ["object", "null"]}}
    of = by_json_schema(registry, properties)
    sink = sink_with(tmp_path, column(2, "s", INNER), converters=json_schema(registry))
    whole = {"x": 1, "y": 2, "z": {"p": 3, "q": "t"}}
    sink.take(*(of(key, s=whole) for key in range(3)))
    sink.take(of(0, s={"x": 5}), of(1, s={"z": {"p": None}}), of(2, s=None))
    left = [{**whole, "x": 5}, {**whole, "z": {"p": None, "q": "t"}}, None]
    assert sink.rows("id", "s") == [*enumerate(left)]


def test_lists_and_maps_are_replaced_as_a_whole(tmp_path: Path) -> None:
    of_list = ListType(30, StructType(column(31, "a", LongType()), column(32, "b", LongType())), False)
    of_map = MapType(40, StringType(), 41, StructType(column(42, "a", LongType()), column(43, "b", LongType())), False)
    sink = sink_with(tmp_path, column(2, "l", of_list), column(3, "m", of_map), column(4, "v", LongType()))
    sink.take(put(1, l=[{"a": 1, "b": 2}], m={"k": {"a": 1, "b": 2}}, v=1))
    sink.take(put(1, l=[{"a": 3}, {"b": 4}], m={"k": {"b": 3}}))
    expected = [([{"a": 3, "b": None}, {"a": None, "b": 4}], [("k", {"a": None, "b": 3})], 1)]
    assert sink.rows("l", "m", "v") == expected


def test_a_new_key_has_null_or_the_default_for_what_it_lacks(tmp_path: Path, rest_uri: str) -> None:
    name = f"db.t{uuid4().hex}"
    sink = sink_of(tmp_path, name=name, keys={"type": "rest", "uri": rest_uri})
    sink.catalog.create_namespace_if_not_exists("db")
    schema = Schema(column(1, "id", LongType(), required=True), column(2, "v", LongType()))
    sink.catalog.create_table(name, schema, properties={"format-version": "3"})
    with sink.table.update_schema() as change:
        change.add_column("c", StringType(), required=True, default_value="w")
    sink.take(put(1, v=1, c="a"), put(2))
    sink.take(put(1, v=2), put(3, v=3), put(3, v=4))
    assert sink.rows("id", "v", "c") == [(1, 2, "a"), (2, None, "w"), (3, 4, "w")]


def test_an_update_of_a_missing_row_may_be_left_out(tmp_path: Path) -> None:
    mutations = RowMutations(upsert=True, unset_fields="keep", on_missing_row="skip")
    sink = sink_with(
        tmp_path, column(2, "v", LongType()), column(3, "name", StringType(), required=True), mutations=mutations
    )
    sink.take(put(1, v=1, name="a"), put(2, v=1))
    outcome = sink.take(put(1, v=2), put(3, v=3), put(4, v=None, name="d"))
    assert (outcome.dead_letters, sink.rows("id", "v", "name")) == ((), [(1, 2, "a"), (4, None, "d")])


def test_a_required_column_that_a_new_row_may_lack_makes_a_bad_record(tmp_path: Path) -> None:
    sink = sink_with(tmp_path, column(2, "v", LongType()), column(3, "name", StringType(), required=True))
    outcome = sink.take(put(1, v=1, name="a"), put(1, v=2), put(2, name="b"))
    assert [offset for offset, _ in sink.reasons(outcome)] == [1]
    assert sink.rows("id", "v", "name") == [(1, 1, "a"), (2, None, "b")]


def test_inserts_and_hard_deletes_are_as_before(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, mutations=RowMutations("op", unset_fields="keep"))
    sink.take(put(1, op="c", v=1, name="a"), put(2, op="c", v=1, name="b"))
    sink.take(put(1, op="c", v=2), put(2, op="d"), put(2, op="u", v=3))
    assert sink.rows("id", "v", "name") == [(1, 2, None), (2, 3, None)]


def test_a_soft_delete_keeps_the_values_that_it_lacks(tmp_path: Path) -> None:
    mutations = RowMutations(upsert=True, unset_fields="keep", delete_mode="soft", tombstones="delete")
    sink = sink_of(tmp_path, mutations=mutations, evolution=Evolution(create=True, evolve=True))
    sink.take(put(1, v=1, name="a"))
    sink.take(({"id": 1}, None))
    assert sink.rows("id", "v", "name", "_cdc_deleted") == [(1, 1, "a", True)]
    sink.take(put(1, v=2))
    assert sink.rows("id", "v", "name", "_cdc_deleted") == [(1, 2, "a", False)]


def test_placeholders_and_fields_that_lack_are_kept_together(tmp_path: Path) -> None:
    mutations = RowMutations("op", unset_fields="keep", on_unavailable_value="keep")
    sink = sink_of(tmp_path, mutations=mutations)
    sink.take(put(1, op="c", v=1, name="a"), put(2, op="c", v=1, name="b"))
    outcome = sink.take(put(1, op="u", name=TEXT), put(2, op="u", v=5, name=TEXT), put(2, op="u", name="c"))
    assert (outcome.dead_letters, sink.rows("id", "v", "name")) == ((), [(1, 1, "a"), (2, 5, "c")])


def test_an_update_without_all_fields_that_changes_its_key_is_bad(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, mutations=RowMutations("_cdc.op", unset_fields="keep"), transforms=(DEBEZIUM,))
    sink.take(event("c", {"id": 1, "v": 1, "name": "a"}))
    key, value = event("u", {"id": 2, "v": 2})
    outcome = sink.take((key, value | {"before": {"id": 1}}), event("u", {"id": 1, "v": 3}))
    assert [why for _, why in sink.reasons(outcome)] == [
        f"table {NAME}: the update has changed the key, and has no field for some columns: their values are in the row"
        " of the former key (unset-fields = keep). Let the source write whole rows"
    ]
    assert sink.rows("id", "v", "name") == [(1, 3, "a")]


def test_a_field_that_another_record_adds_is_kept(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, evolution=Evolution(create=True, evolve=True))
    sink.take(put(1, v=1, name="a"))
    sink.take(put(1, v=2), put(2, v=1, more="m"), put(1, more="k"), put(1, name="b"))
    assert sink.rows("id", "v", "name", "more") == [(1, 2, "b", "k"), (2, 1, None, "m")]


def test_names_may_differ_by_case(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, evolution=Evolution(create=True, case_insensitive=True))
    sink.take(put(1, V=1, name="a"))
    sink.take(put(1, NAME="b"), put(1, v=2))
    assert sink.rows("id", "v", "name") == [(1, 2, "b")]


@pytest.mark.parametrize("block", [1, 2, 7])
def test_a_record_becomes_the_same_among_others(tmp_path: Path, block: int) -> None:
    sink = sink_of(tmp_path, limits=Limits(block_records=block), slots=2)
    sink.take(*(put(key, v=key, name="a") for key in range(8)))
    rows: list[dict[str, Any]] = [{}, {"v": None}, {"name": "b"}, {"v": 9, "name": None}, {"v": 2**62}, {"n": 2**70}]
    sink.take(*(put(key, **rows[key % len(rows)]) for key in range(8)))
    names = ["a", "a", "b", None, "a", "a", "a", "a"]
    values = [0, None, 2, 9, 2**62, 5, 6, None]
    assert sink.rows("id", "v", "name") == [*zip(range(8), values, names, strict=True)]


RENAMED = TransformSpec("names", "ReplaceField$Value", {"renames": "a:v"})
FLAT = TransformSpec("flat", "Flatten$Value", {"delimiter": "_"})
SNAKE = TransformSpec("snake", "FieldNames$Value", {"style": "snake"})
INNER_A = {"type": ["object", "null"], "properties": {"a": {"type": ["integer", "null"]}, "b": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("transform", "properties", "column_name", "first", "lacking"),
    [
        (RENAMED, {"a": {"type": ["integer", "null"]}}, "v", {"a": 1}, {}),
        (FLAT, {"s": INNER_A}, "s_a", {"s": {"a": 1}}, {"s": {"b": 2}}),
        (FLAT, {"s": INNER_A}, "s_a", {"s": {"a": 1}}, {}),
        (SNAKE, {"unitPrice": {"type": ["integer", "null"]}}, "unit_price", {"unitPrice": 1}, {}),
    ],
    ids=["ReplaceField", "Flatten", "Flatten without the object", "FieldNames"],
)
def test_a_field_that_a_transform_would_rename_is_kept(
    tmp_path: Path,
    registry: SchemaRegistry,
    transform: TransformSpec,
    properties: Mapping[str, Any],
    column_name: str,
    first: dict[str, Any],
    lacking: dict[str, Any],
) -> None:
    of = by_json_schema(registry, {"id": {"type": "integer"}, **properties})
    columns = (column(2, column_name, LongType()), column(3, "more", LongType()))
    sink = sink_with(tmp_path, *columns, converters=json_schema(registry), transforms=(transform,))
    sink.take(of(1, **first), of(2, **first))
    outcome = sink.take(of(1, **lacking), of(2, **{name: _nulls(value) for name, value in first.items()}))
    assert (outcome.dead_letters, sink.rows("id", column_name)) == ((), [(1, 1), (2, None)])


def _nulls(value: Any) -> Any:
    return dict.fromkeys(value) if isinstance(value, dict) else None
