"""The defaults of schemas become the default values of columns of every type, or are not used for a stated reason."""

from __future__ import annotations

import itertools
import json
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.types import IcebergType, NestedField

from calving.converters.avro import AvroConverter
from calving.converters.interface import Converter, converter
from calving.iceberg.defaults import column_default
from calving.records.inferred import of_type
from calving.writing.schemas import iceberg_type
from harness.registry import SchemaRegistry, framed

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
DATA = "org.apache.kafka.connect.data."


def avro_type(kind: Any, default: Any, value: Any) -> pa.DataType:
    """The type of records with one field ``v``, whose schema gives it this default."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind, "default": default}]}
    body, without = BytesIO(), {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}
    fastavro.schemaless_writer(body, fastavro.parse_schema(without), {"v": value})
    return type_of(AvroConverter({"schema": json.dumps(schema)}, is_key=False), body.getvalue())


def connect_type(schema: dict[str, Any], value: Any, **options: str) -> pa.DataType:
    record = {"type": "struct", "optional": False, "fields": [{"field": "v", **schema}]}
    body = json.dumps({"schema": record, "payload": {"v": value}}).encode()
    return type_of(converter(JSON_CONVERTER, {"schemas.enable": "true", **options}, is_key=False), body)


def json_schema_type(registry: SchemaRegistry, schema: dict[str, Any], value: Any) -> pa.DataType:
    number = registry.register("t-value", json.dumps({"type": "object", "properties": {"v": schema}}), "JSON")
    made = converter(
        "io.confluent.connect.json.JsonSchemaConverter", {"schema.registry.url": registry.url}, is_key=False
    )
    return type_of(made, framed(number, json.dumps({"v": value}).encode()))


def type_of(made: Converter, body: bytes) -> pa.DataType:
    decoded = made.decode([body], None)
    assert not decoded.bad, decoded.bad
    data = decoded.values[0].data
    assert isinstance(data, pa.Array)
    return data.type


def declared(kind: pa.DataType) -> tuple[str, ...]:
    """The texts of the defaults of ``v``."""
    inferred: Any = of_type(kind)
    return tuple(inferred.get("defaults", {}).get("v", ()))


def column_of(kind: pa.DataType) -> IcebergType:
    inferred: Any = of_type(kind)
    return iceberg_type(inferred["struct"]["v"], itertools.count(1))


def default_of(kind: pa.DataType, column: str | None = None) -> Any:
    """The default of the column ``v``, as a table's schema has it."""
    return column_default(column_of(kind) if column is None else NestedField(1, "v", column).field_type, declared(kind))


@pytest.mark.parametrize(
    ("kind", "default", "value", "column"),
    [
        ("boolean", False, True, False),
        ("int", -7, 1, -7),
        ("long", 2**40, 1, 2**40),
        ("float", 1.5, 1.0, 1.5),
        ("double", 2, 1.0, 2.0),
        ("string", "", "x", ""),
        ("string", "é\n", "x", "é\n"),
        ("bytes", "\u00ff\u0000", b"x", "ff00"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u0001A", b"ab", "0141"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "A", "B"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "\u0001", b"\x02", "0.01"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 0}, "\u0064", b"\x02", "100"),
        ({"type": "int", "logicalType": "date"}, 19000, 1, "2022-01-08"),
        ({"type": "int", "logicalType": "time-millis"}, 1, 1, "00:00:00.001000"),
        ({"type": "long", "logicalType": "time-micros"}, 1, 1, "00:00:00.000001"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1, 1, "1970-01-01T00:00:00.001000+00:00"),
        ({"type": "long", "logicalType": "timestamp-micros"}, -1, 1, "1969-12-31T23:59:59.999999+00:00"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, 1, 1, "1970-01-01T00:00:00.000001"),
        ({"type": "string", "logicalType": "uuid"}, "0DB3E2A8-9D1D-42B9-AA7B-74EBE558DCEB", None, None),
        ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, 1, 1, "1970-01-01T00:00:00.000001"),
        ({"type": "string", "connect.name": "io.debezium.time.IsoDate"}, "2022-01-08", "2022-01-09", "2022-01-08"),
        (["long", "null"], 5, 1, 5),
        (["null", "long"], 5, 1, 5),
    ],
)
def test_a_default_of_avro_is_that_of_the_column(kind: Any, default: Any, value: Any, column: Any) -> None:
    if value is None:
        value, column = "0db3e2a8-9d1d-42b9-aa7b-74ebe558dceb", "0db3e2a8-9d1d-42b9-aa7b-74ebe558dceb"
    found = default_of(avro_type(kind, default, value))
    assert found == column and type(found) is type(column)


def test_a_default_of_null_is_none() -> None:
    assert declared(avro_type(["null", "long"], None, 1)) == ()
    assert declared(connect_type({"type": "int64", "optional": True, "default": None}, 1)) == ()


@pytest.mark.parametrize(
    ("kind", "default", "value", "reason"),
    [
        ({"type": "array", "items": "long"}, [], [1], "columns of structs, lists and maps have no default but null"),
        ({"type": "map", "values": "long"}, {"a": 1}, {}, "columns of structs, lists and maps"),
        (["long", "string"], 5, 1, "columns of structs, lists and maps"),
        ("double", "NaN", 1.0, "\"NaN\" is not of Avro's type 'double'"),
        ("int", True, 1, "true is not of Avro's type 'int'"),
        ("int", 2**40, 1, "1099511627776"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "C", "A", "\"C\" is not of Avro's type 'enum'"),
        ("bytes", "\u0100", b"x", "codec can't encode"),
        ({"type": "int", "logicalType": "time-millis"}, -1, 1, "-1 is not a time of day"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            "",
            b"\x02",
            "no bytes are no decimal",
        ),
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**62, 1, "out of bounds|outside the years|overflow"),
    ],
)
def test_a_default_that_no_column_can_have_is_not_used(kind: Any, default: Any, value: Any, reason: str) -> None:
    with pytest.raises((ValueError, OverflowError), match=reason):
        default_of(avro_type(kind, default, value))


@pytest.mark.parametrize(
    ("schema", "value", "column"),
    [
        ({"type": "int8", "default": 5}, 1, 5),
        ({"type": "double", "default": 1.5, "optional": True}, 1, 1.5),
        ({"type": "string", "default": "x"}, "y", "x"),
        ({"type": "bytes", "default": "AQI="}, "AQI=", "0102"),
        ({"type": "boolean", "default": False}, True, False),
        ({"type": "int32", "name": f"{DATA}Date", "default": 1}, 1, "1970-01-02"),
        ({"type": "int64", "name": f"{DATA}Timestamp", "default": 0}, 1, "1970-01-01T00:00:00+00:00"),
        ({"type": "bytes", "name": f"{DATA}Decimal", "parameters": {"scale": "2"}, "default": "AQI="}, 1, "2.58"),
        ({"type": "int64", "name": "io.debezium.time.Timestamp", "default": 0}, 1, "1970-01-01T00:00:00"),
        ({"type": "int32", "name": "io.debezium.time.Year", "default": 2024}, 1, 2024),
    ],
)
@pytest.mark.parametrize("replaces", ["true", "false"])
def test_a_default_of_connect_is_that_of_the_column(schema: Any, value: Any, column: Any, replaces: str) -> None:
    found = default_of(connect_type(schema, value, **{"replace.null.with.default": replaces}))
    assert found == column and type(found) is type(column)


@pytest.mark.parametrize(
    ("schema", "value", "column"),
    [
        ({"type": "integer", "default": 5}, 1, 5),
        ({"type": "number", "default": 5}, 1, 5.0),
        ({"type": "string", "enum": ["A", "B"], "default": "B"}, "A", "B"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}], "default": 5}, 1, 5),
    ],
)
def test_a_default_of_json_schema_is_that_of_the_column(
    schema: Any, value: Any, column: Any, registry: SchemaRegistry
) -> None:
    assert default_of(json_schema_type(registry, schema, value)) == column


def test_a_default_of_json_schema_that_is_not_of_the_type_is_not_used(registry: SchemaRegistry) -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        default_of(json_schema_type(registry, {"type": "integer", "default": "five"}, 1))


def test_a_number_that_json_cannot_write_is_not_used() -> None:
    with pytest.raises(ValueError, match="JSON has no number nan"):
        default_of(connect_type({"type": "double", "default": "NaN"}, 1))


@pytest.mark.parametrize(
    ("column", "default"),
    [
        ("string", "5"),
        ("decimal(9, 2)", "5.00"),
        ("double", 5.0),
        ("timestamptz", "1970-01-01T00:00:00.005000+00:00"),
        ("timestamp_ns", "1970-01-01T00:00:00.005000000"),
    ],
)
def test_a_declared_column_has_the_default_as_its_values_are(column: str, default: Any) -> None:
    assert default_of(avro_type("int", 5, 1), column) == default


def test_a_default_that_does_not_fit_the_declared_column_is_not_used() -> None:
    with pytest.raises(ValueError, match="'x' is not a long: not an integer"):
        default_of(avro_type("string", "x", "y"), "long")


def test_schemas_with_different_defaults_give_none() -> None:
    texts = [*declared(avro_type("int", 5, 1)), *declared(avro_type("int", 6, 1))]
    with pytest.raises(ValueError, match="different defaults, 5 and 6"):
        column_default(NestedField(1, "v", "long").field_type, texts)


@pytest.mark.parametrize(
    ("kind", "default", "other"),
    [("int", 5, 0), ("int", 0, -1), ("string", "", "x"), ("boolean", False, True), ("double", 0.0, 1.5)],
)
def test_a_default_that_is_false_empty_or_zero_differs_from_others(kind: str, default: Any, other: Any) -> None:
    value = {"int": 1, "string": "y", "boolean": True, "double": 1.0}[kind]
    texts = [*declared(avro_type(kind, default, value)), *declared(avro_type(kind, other, value))]
    for each in (texts, texts[::-1]):
        with pytest.raises(ValueError, match="different defaults"):
            column_default(NestedField(1, "v", kind).field_type, each)


def test_equal_defaults_of_different_types_are_one() -> None:
    texts = [*declared(avro_type("int", 5, 1)), *declared(avro_type("long", 5, 1))]
    assert column_default(NestedField(1, "v", "long").field_type, texts) == 5
