"""Avro values become columns, whatever their schema ids."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from calving.data.converters.avro import AvroConverter
from calving.errors import ConfigError, Unavailable
from tests.records.decoding import decode
from tests.registry import SchemaRegistry, avro, framed

PLAIN = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def with_registry(registry: SchemaRegistry) -> AvroConverter:
    return AvroConverter({"schema.registry.url": registry.url}, is_key=False)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -7, -7),
        ("long", 2**40, 2**40),
        ("float", 1.5, 1.5),
        ("double", 1e300, 1e300),
        ("bytes", b"\x00\xff", b"\x00\xff"),
        ("string", "é", "é"),
        (["null", "string"], None, None),
        (["null", "string"], "x", "x"),
        (["string", "null"], "x", "x"),
        (["null", "int", "string"], 7, {"int": 7, "string": None}),
        (["null", "int", "string"], "x", {"int": None, "string": "x"}),
        (["null", "int", "string"], None, None),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", b"abc"),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "map", "values": ["null", "long"]}, {"a": 1, "b": None}, [("a", 1), ("b", None)]),
        ({"type": "int", "logicalType": "date"}, 19000, date(2022, 1, 8)),
        ({"type": "int", "logicalType": "time-millis"}, 3_723_500, time(1, 2, 3, 500_000)),
        ({"type": "long", "logicalType": "time-micros"}, 3_723_500_001, time(1, 2, 3, 500_001)),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            1704164645678,
            datetime(2024, 1, 2, 3, 4, 5, 678000, UTC),
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            1704164645678901,
            datetime(2024, 1, 2, 3, 4, 5, 678901, UTC),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            1704164645678,
            datetime(2024, 1, 2, 3, 4, 5, 678000),
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("-12.34"),
            Decimal("-12.34"),
        ),
        (
            {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("12.34"),
            Decimal("12.34"),
        ),
        (
            {"type": "string", "logicalType": "uuid"},
            UUID("00112233-4455-6677-8899-aabbccddeeff"),
            UUID("00112233-4455-6677-8899-aabbccddeeff"),
        ),
        (
            {"type": "array", "items": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}},
            [{"x": 1}],
            [{"x": 1}],
        ),
    ],
)
def test_every_type_is_decoded(registry: SchemaRegistry, kind: Any, value: Any, expected: Any) -> None:
    schema = record(v=kind)
    number = registry.register("t-value", json.dumps(schema))
    assert decode(with_registry(registry), [avro(number, schema, {"v": value})]).values == {0: {"v": expected}}


def test_schemas_of_different_ids_in_one_batch_keep_their_own_columns(registry: SchemaRegistry) -> None:
    wider = record(id="long", name=["null", "string"])
    a, b = registry.register("t-value", json.dumps(PLAIN)), registry.register("t-value", json.dumps(wider))
    values = [avro(a, PLAIN, {"id": 1}), avro(b, wider, {"id": 2, "name": "x"}), avro(a, PLAIN, {"id": 3})]
    assert decode(with_registry(registry), values).values == {
        0: {"id": 1},
        1: {"id": 2, "name": "x"},
        2: {"id": 3},
    }


def test_references_are_followed(registry: SchemaRegistry) -> None:
    inner = {"type": "record", "name": "Money", "namespace": "bank", "fields": [{"name": "cents", "type": "long"}]}
    registry.register("money", json.dumps(inner))
    outer = record(price="bank.Money", fee=["null", "bank.Money"])
    reference = {"name": "bank.Money", "subject": "money", "version": 1}
    number = registry.register("t-value", json.dumps(outer), references=[reference])
    named: dict[str, Any] = {}
    import fastavro

    fastavro.parse_schema(inner, named_schemas=named)
    value = avro(number, outer, {"price": {"cents": 7}, "fee": None}, named)
    assert decode(with_registry(registry), [value]).values == {0: {"price": {"cents": 7}, "fee": None}}


def test_a_schema_is_asked_for_once(registry: SchemaRegistry) -> None:
    number = registry.register("t-value", json.dumps(PLAIN))
    decode(with_registry(registry), [avro(number, PLAIN, {"id": i}) for i in range(100)])
    decode(with_registry(registry), [avro(number, PLAIN, {"id": i}) for i in range(100)])
    assert len(registry.requests) == 1


@pytest.mark.parametrize(
    ("poison", "reason"),
    [
        (b"", "shorter than its header"),
        (b'{"id":1}', "starts with byte 123"),
        (framed(99, b"\x02"), "has no schema 99"),
        (framed(1, b""), ""),
        (framed(1, b"\xff" * 20), ""),
    ],
)
def test_a_poison_value_is_told_from_the_others(registry: SchemaRegistry, poison: bytes, reason: str) -> None:
    number = registry.register("t-value", json.dumps(PLAIN))
    good = avro(number, PLAIN, {"id": 5})
    found = decode(with_registry(registry), [good, poison, good])
    assert found.values == {0: {"id": 5}, 2: {"id": 5}}
    assert reason in found.bad[1]


def test_text_that_is_not_utf8_is_bad(registry: SchemaRegistry) -> None:
    schema = record(s="string")
    number = registry.register("t-value", json.dumps(schema))
    found = decode(with_registry(registry), [avro(number, schema, {"s": "x"}), framed(number, b"\x04\xff\xff")])
    assert list(found.bad) == [1]


def test_a_schema_that_contains_itself_is_bad(registry: SchemaRegistry) -> None:
    schema = record(next=["null", "R"])
    number = registry.register("t-value", json.dumps(schema))
    found = decode(with_registry(registry), [avro(number, schema, {"next": None})])
    assert "contains itself" in found.bad[0]


def test_a_registry_that_does_not_answer_is_no_fault_of_the_records(registry: SchemaRegistry) -> None:
    registry.broken = True
    converter = AvroConverter({"schema.registry.url": registry.url, "schema.registry.max.retries": "0"}, is_key=False)
    with pytest.raises(Unavailable, match="schema registry"):
        converter.decode([framed(1, b"\x02")], None)


def test_a_fixed_schema_needs_no_registry() -> None:
    converter = AvroConverter({"schema": json.dumps(PLAIN)}, is_key=False)
    value = avro(1, PLAIN, {"id": 9})[5:]
    found = decode(converter, [value, b""])
    assert found.values == {0: {"id": 9}}
    assert list(found.bad) == [1]


def test_a_missing_registry_is_named() -> None:
    with pytest.raises(ConfigError, match=r"value.converter.schema.registry.url is missing"):
        AvroConverter({}, is_key=False)
