"""A field that a record lacks has its column's default value (``write-default``); a null of the record stays null. By every
way of reading, as docs/reference/types.md has it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from calving.casting.table import TableConverter
from calving.converters.json import JsonConverter
from calving.model.record_path import Evolution
from calving.records.defaults import defaults_of
from calving.records.fields import Projection, arrow_schema, arrow_type, table_schema
from calving.records.presence import nulls_apart
from calving.records.values import Decoded, Values
from tests.catalogs.test_version_3 import DEFAULTS

LINE = StructType(
    NestedField(11, "x", IntegerType(), required=False, write_default=5),
    NestedField(12, "y", LongType(), required=False),
)
SCHEMA = Schema(
    NestedField(1, "a", LongType(), required=True, write_default=7),
    NestedField(2, "b", StringType(), required=False, write_default="none"),
    NestedField(3, "c", StringType(), required=False),
    NestedField(4, "s", LINE, required=False),
    NestedField(5, "l", ListType(20, LINE.model_copy(deep=True), element_required=False), required=False),
    NestedField(
        6, "m", MapType(21, StringType(), 22, LINE.model_copy(deep=True), value_required=False), required=False
    ),
)
RECORDS: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({}, {"a": 7, "b": "none"}),
    ({"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
    ({"a": 1, "b": None}, {"a": 1}),
    ({"b": "x"}, {"a": 7, "b": "x"}),
    ({"a": None}, None),
    ({"s": {}}, {"a": 7, "b": "none", "s": {"x": 5, "y": None}}),
    ({"s": {"y": 2}}, {"a": 7, "b": "none", "s": {"x": 5, "y": 2}}),
    ({"s": {"x": None}}, {"a": 7, "b": "none", "s": {"x": None, "y": None}}),
    ({"s": None}, {"a": 7, "b": "none"}),
    ({"l": [{"x": 1}, {"y": 2}, {"x": None}]}, {"a": 7, "b": "none", "l": [(1, None), (5, 2), (None, None)]}),
    ({"m": {"k": {"y": 3}, "n": {"x": None}}}, {"a": 7, "b": "none", "m": {"k": (5, 3), "n": (None, None)}}),
]
"""Records, and their rows without null columns; None for a bad one."""
CONVERTER = TableConverter("db.t", SCHEMA, Evolution(), {})
PROJECTIONS = {
    "the columns of a table that does not evolve": Projection((CONVERTER.target,), "ignore"),
    "the columns of a table that evolves": Projection((CONVERTER.target,), "add"),
    "whole": Projection(),
    "exactly": None,
}


def _rows(decoded: Decoded) -> dict[int, dict[str, Any] | None]:
    """The rows of the values by their places, without null columns; None for bad ones."""
    rows: dict[int, dict[str, Any] | None] = {}
    for values in decoded.values:
        found = CONVERTER.convert(values)
        rows |= {values.index[bad.index]: None for bad in found.bad}
        if found.rows is not None:
            rows |= {values.index[i]: _shown(row) for i, row in zip(found.index, found.rows.to_pylist(), strict=True)}
    return rows


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in row.items() if value is not None}
    if "l" in shown:
        shown["l"] = [(item["x"], item["y"]) for item in shown["l"]]
    if "m" in shown:
        shown["m"] = {key: (item["x"], item["y"]) for key, item in shown["m"]}
    return shown


def _decoded(projection: Projection | None, records: Sequence[Any]) -> Decoded:
    return JsonConverter({}, is_key=False).decode([json.dumps(each).encode() for each in records], projection)


@pytest.mark.parametrize("way", PROJECTIONS)
def test_a_field_that_is_missing_has_the_default_and_a_null_stays_null(way: str) -> None:
    records = [record for record, _ in RECORDS]
    assert _rows(_decoded(PROJECTIONS[way], records * 8)) == dict(enumerate([row for _, row in RECORDS] * 8))


@pytest.mark.parametrize(("record", "row"), RECORDS)
def test_the_default_of_a_record_does_not_depend_on_its_neighbours(record: Any, row: Any) -> None:
    assert _rows(_decoded(PROJECTIONS["the columns of a table that does not evolve"], [record])) == {0: row}


def test_the_decoder_reads_records_that_lack_fields() -> None:
    decoded = _decoded(PROJECTIONS["the columns of a table that does not evolve"], [{}, {"a": 1}, {"b": "x"}] * 4)
    assert [type(values.data) for values in decoded.values] == [pa.StructArray] * 3


def test_nothing_is_divided_for_a_column_without_a_default() -> None:
    columns = Schema(*(NestedField(i, n, LongType(), required=False) for i, n in enumerate("ab", 1)))
    target = TableConverter("db.t", columns, Evolution(), {}).target
    decoded = _decoded(Projection((target,), "ignore"), [{}, {"a": 1}, {"b": 1}])
    assert len(decoded.values) == 1


def test_each_type_has_its_default_by_the_fast_path_and_by_the_exact_one() -> None:
    columns = [
        {"id": i, "name": f"c{i}", "required": True, "type": kind, "write-default": default}
        for i, (kind, default) in enumerate(DEFAULTS.items(), 1)
    ]
    schema = table_schema(json.dumps({"type": "struct", "schema-id": 0, "fields": columns}))
    converter = TableConverter("db.t", schema, Evolution(), {})
    fast = converter.convert(Values(pa.array([{"x": 1}], pa.struct([("x", pa.int64())])), typed=True)).rows
    exact = converter.convert(Values([{"x": 1}], typed=False)).rows
    assert fast is not None and exact is not None and fast.equals(exact)
    texts = {field.name: _text(column) for field, column in zip(fast.schema, fast.columns, strict=True)}
    assert texts == {column["name"]: _expected(column) for column in columns}


def _text(column: pa.Array) -> Any:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.string())[0].as_py().replace(" ", "T").replace("Z", "+00:00")
    value = column[0].as_py()
    return value.hex() if isinstance(value, bytes) else value if isinstance(value, bool | int | float) else str(value)


def _expected(column: dict[str, Any]) -> Any:
    default = column["write-default"]
    return {"2007-12-03T10:15:30": "2007-12-03T10:15:30.000000", "2007-12-03T10:15:30+00:00": None}.get(
        default, default
    ) or "2007-12-03T10:15:30.000000+00:00"


def test_the_default_of_a_struct_is_made_of_those_of_its_fields() -> None:
    schema = Schema(NestedField(1, "s", LINE, required=False, write_default="{}"))
    rows = TableConverter("db.t", schema, Evolution(), {}).convert(Values([{}], typed=False)).rows
    assert rows is not None and rows.to_pylist() == [{"s": {"x": 5, "y": None}}]


def test_a_default_is_found_under_every_name_of_a_name_mapping() -> None:
    converter = TableConverter("db.t", SCHEMA, Evolution(), {2: ("old_b", "b")})
    rows = converter.convert(Values([{"a": 1, "old_b": None}, {"a": 1}], typed=False)).rows
    assert rows is not None and rows.column("b").to_pylist() == [None, "none"]
    assert converter.target.presence == {"a", "old_b", "b", "x"}


def arrow(data: Any) -> pa.Array:
    assert isinstance(data, pa.Array)
    return data


def test_values_are_divided_by_their_nulls_only_for_the_fields_in_question() -> None:
    kind = pa.struct([("A", pa.int64()), ("c", pa.string()), ("s", pa.struct([("x", pa.int32())]))])
    rows = [{"A": 1, "c": None, "s": {"x": 1}}, {"A": None, "c": "x", "s": {"x": None}}, {"A": 2, "c": "y", "s": None}]
    parts = nulls_apart(Values(pa.array(rows, kind), typed=True), {"a", "x"})
    assert [(list(part.index), arrow(part.data).to_pylist()) for part in parts] == [
        ([0], [rows[0]]),
        ([1], [{"c": "x", "s": {}}]),
        ([2], [{"A": 2, "c": "y", "s": None}]),
    ]


def test_a_table_without_defaults_has_none() -> None:
    assert defaults_of(Schema(NestedField(1, "a", LongType())).as_struct(), arrow_type) == {}
    assert arrow_schema(SCHEMA).field("a").type == defaults_of(SCHEMA.as_struct(), arrow_type)[1].column.type
