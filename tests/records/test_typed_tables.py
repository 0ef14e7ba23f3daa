"""Typed values all the way into a file that can be read."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, MapType, NestedField, StringType, StructType, UUIDType

from calving.model.offsets import Range
from calving.model.record_path import (
    ConverterSpec,
    RecordPath,
    RouteRule,
    Routing,
    Tolerance,
    TopicConverters,
)
from calving.model.tables import TableSpec
from calving.tasks.pipeline import Pipeline
from calving.tasks.selection import Timings
from calving.tasks.spec import TaskSpec
from harness.blocks import Given
from harness.registry import avro

SOME = UUID("00112233-4455-6677-8899-aabbccddeeff")
UUID_TEXT = {"type": "string", "logicalType": "uuid"}
UUIDS = {"type": "map", "values": UUID_TEXT}
UUID_MAP = MapType(11, StringType(), 12, UUIDType(), value_required=True)
INNER = StructType(NestedField(2, "x", IntegerType(), required=True))


def written(folder: Path, column: Any, value: ConverterSpec, values: list[bytes]) -> list[Any]:
    """The column ``v`` of the rows that a task made of the values."""
    schema = Schema(NestedField(1, "v", column, required=False))
    unpartitioned = UNPARTITIONED_PARTITION_SPEC.model_dump_json()
    table = TableSpec("db.t", schema.model_dump_json(), unpartitioned, f"file://{folder}", {}, {})
    spec = TaskSpec(
        0,
        (),
        RecordPath(
            {},
            Routing((RouteRule("db.t"),)),
            converters={"": TopicConverters(value=value)},
            tolerance=Tolerance("topic"),
        ),
        {"db.t": table},
        {},
    )
    pipeline = Pipeline(spec, Timings())
    accounts = pipeline.run(Given(Range("bench", 0, 0, len(values)), 0, values))
    assert (accounts.written, accounts.bad) == (len(values), [])
    pipeline.writers.close()
    (file,) = folder.rglob("*.parquet")
    return [row["v"] for row in pq.read_table(file).to_pylist()]


@pytest.mark.parametrize(
    ("kind", "column", "value", "expected"),
    [
        (UUIDS, UUID_MAP, {"a": SOME}, [("a", SOME)]),
        (["null", UUIDS], UUID_MAP, {"a": SOME}, [("a", SOME)]),
        (
            {"type": "map", "values": UUIDS},
            MapType(21, StringType(), 22, UUID_MAP, value_required=True),
            {"a": {"b": SOME}},
            [("a", [("b", SOME)])],
        ),
    ],
)
def test_maps_of_uuids_can_be_read_again(tmp_path: Path, kind: Any, column: Any, value: Any, expected: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}
    raw = avro(1, schema, {"v": value})[5:]
    found = written(tmp_path, column, ConverterSpec("avro", {"schema": json.dumps(schema)}), [raw] * 3)
    assert found == [expected] * 3


@pytest.mark.parametrize("values", [[None], [None, {"x": 1}]])
def test_an_optional_struct_with_a_required_field_may_be_null_in_all_rows(tmp_path: Path, values: list[Any]) -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": ["null", inner]}]}
    raw = [avro(1, schema, {"v": value})[5:] for value in values]
    assert written(tmp_path, INNER, ConverterSpec("avro", {"schema": json.dumps(schema)}), raw) == values


@pytest.mark.parametrize("many", [1, 2_000])
def test_an_envelope_s_null_struct_may_have_required_fields(tmp_path: Path, many: int) -> None:
    fields = [{"field": "x", "type": "int32"}]
    schema = {"type": "struct", "fields": [{"field": "v", "type": "struct", "optional": True, "fields": fields}]}
    raw = [json.dumps({"schema": schema, "payload": {"v": v}}).encode() for v in (None, {"x": 1})] * many
    found = written(tmp_path, INNER, ConverterSpec("json", {"schemas.enable": "true"}), raw)
    assert sorted(found, key=str) == sorted([None, {"x": 1}] * many, key=str)


@pytest.mark.parametrize("beside", ["7", "+7"])
def test_a_number_in_a_struct_becomes_the_text_of_its_own_digits(tmp_path: Path, beside: str) -> None:
    """Arrow does not take ``+7`` for a number: the whole struct is then converted value by value."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    fields = {"d": decimal, "f": "float", "n": "string"}
    inner = {"type": "record", "name": "I", "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": inner}]}
    kinds = {"d": StringType(), "f": StringType(), "n": IntegerType()}
    column = StructType(*(NestedField(i, n, kind, required=False) for i, (n, kind) in enumerate(kinds.items(), 2)))
    raw = avro(1, schema, {"v": {"d": Decimal("123456789012345678.90"), "f": 0.1, "n": beside}})[5:]
    found = written(tmp_path, column, ConverterSpec("avro", {"schema": json.dumps(schema)}), [raw])
    assert found == [{"d": "123456789012345678.90", "f": "0.1", "n": 7}]
