"""Fields about a change that become columns of a mutation table, or do not (``metadata-columns``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from calving.model.record_path import Evolution, Tolerance, TransformSpec
from calving.model.tables import RowMutations
from tests.mutations.changing import NAME, Changing, Message

DEBEZIUM = TransformSpec("unwrap", "DebeziumTransform")
GROWING = Evolution(create=True, evolve=True)
SOURCE = {"db": "shop", "schema": "public", "table": "t", "ts_ms": 7}


def event(key: int, op: str = "c", **more: Any) -> Message:
    row = {"id": key, **more}
    sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {"id": key}, {"op": op, "ts_ms": 5, "source": SOURCE, **sides}


def mirror(folder: Path, *columns: str, **more: Any) -> Changing:
    given = {"evolution": GROWING, "tolerance": Tolerance(), "transforms": (DEBEZIUM,), **more}
    return Changing(folder, RowMutations("_cdc.op", metadata_columns=columns), **given)


def leaves(sink: Changing) -> list[str]:
    schema = sink.table.schema()
    return sorted(name for name in schema.column_names if not isinstance(schema.find_type(name), StructType))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ((), ["id"]),
        (("_cdc.op", "_cdc.ts"), ["_cdc.op", "_cdc.ts", "id"]),
        (("_cdc.key",), ["_cdc.key.id", "id"]),
        (("_cdc",), ["_cdc.key.id", "_cdc.offset", "_cdc.op", "_cdc.source", "_cdc.target", "_cdc.ts", "id"]),
        (("*",), ["_cdc.key.id", "_cdc.offset", "_cdc.op", "_cdc.source", "_cdc.target", "_cdc.ts", "id"]),
    ],
)
@pytest.mark.parametrize("big", [1, 2**70], ids=["columns", "objects"])
def test_a_mirror_has_the_columns_of_a_change_that_are_named(
    tmp_path: Path, columns: tuple[str, ...], expected: list[str], big: int
) -> None:
    sink = mirror(tmp_path, *columns)
    sink.take(event(1), event(2))
    sink.take(event(3, v=big), event(2, "d"), event(1, "u", v=4))
    assert leaves(sink) == sorted([*expected, "v"])
    assert sink.rows("id") == [(1,), (3,)]


def test_a_column_that_a_table_has_is_written_and_no_other_is_added_to_it(tmp_path: Path) -> None:
    kind = StructType(NestedField(3, "op", StringType(), required=False))
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "_cdc", kind, required=False))
    sink = mirror(tmp_path)
    sink.catalog.create_namespace("db")
    sink.catalog.create_table(NAME, schema)
    sink.take(event(1))
    assert (leaves(sink), sink.rows("id", "_cdc")) == (["_cdc.op", "id"], [(1, {"op": "I"})])


def test_columns_that_other_settings_need_are_there(tmp_path: Path) -> None:
    sink = mirror(tmp_path, partition_by=("_cdc.source",))
    sink = sink.with_(mutations=RowMutations("_cdc.op", order_field="_cdc.ts"))
    sink.take(event(1))
    assert leaves(sink) == ["_cdc.source", "_cdc.ts", "id"]


def test_fields_of_debeziums_unwrap_transform_are_no_columns_either(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations("__op", metadata_columns=("__lsn",)), evolution=GROWING)
    sink.take((None, {"id": 1, "_own": 2, "__op": "c", "__lsn": 9, "__table": "t"}))
    sink.take((None, {"id": 1, "__op": "d"}), (None, {"id": 2, "__op": "c", "__db": "d"}))
    assert (leaves(sink), sink.rows("id", "__lsn")) == (["__lsn", "_own", "id"], [(2, None)])


def test_a_table_to_which_rows_are_added_has_all_of_them(tmp_path: Path) -> None:
    sink = Changing(tmp_path, None, evolution=GROWING, transforms=(DEBEZIUM,))
    sink.take(event(1))
    assert "_cdc.op" in leaves(sink)


def test_case_is_ignored_where_it_does_not_count(tmp_path: Path) -> None:
    sink = Changing(
        tmp_path, RowMutations("__OP"), evolution=Evolution(create=True, evolve=True, case_insensitive=True)
    )
    sink.take((None, {"id": 1, "__Op": "c", "_CDC": {"a": 1}}))
    sink.take((None, {"id": 1, "__op": "d", "_Cdc": {"a": 1}}), (None, {"id": 2, "__OP": "u"}))
    assert (leaves(sink), sink.rows("id")) == (["id"], [(2,)])


def test_what_a_schema_requires_is_no_column_either(tmp_path: Path) -> None:
    from calving.model.record_path import ConverterSpec, TopicConverters

    spec = ConverterSpec("json", {"schemas.enable": "true"})
    fields = [
        {"field": "id", "type": "int64"},
        {"field": "__op", "type": "string"},
        {
            "field": "_cdc",
            "type": "struct",
            "fields": [{"field": "a", "type": "int64"}, {"field": "b", "type": "int64"}],
        },
    ]
    schema = {"type": "struct", "fields": fields}
    sink = Changing(
        tmp_path,
        RowMutations("__op", metadata_columns=("_cdc.b",)),
        evolution=GROWING,
        tolerance=Tolerance(),
        converters=TopicConverters(spec, spec),
    )
    sink.take((None, {"schema": schema, "payload": {"id": 1, "__op": "c", "_cdc": {"a": 1, "b": 2}}}))
    assert (leaves(sink), sink.rows("id", "_cdc")) == (["_cdc.b", "id"], [(1, {"b": 2})])
