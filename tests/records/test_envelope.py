"""JSON with Connect's envelope; text; bytes."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from calving.data.converters.plain import BytesConverter, StringConverter
from calving.data.converters.registry import converter
from calving.errors import ConfigError
from tests.records.decoding import decode

DATA = "org.apache.kafka.connect.data."


def envelope(fields: list[dict[str, Any]], payload: Any) -> bytes:
    schema = {"type": "struct", "fields": fields, "optional": False, "name": "r"}
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def of(*values: bytes) -> Any:
    return decode(converter("org.apache.kafka.connect.json.JsonConverter", {}, is_key=False), list(values))


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "boolean"}, True, True),
        ({"type": "int8"}, -5, -5),
        ({"type": "int16"}, 300, 300),
        ({"type": "int32"}, 70000, 70000),
        ({"type": "int64"}, 2**40, 2**40),
        ({"type": "float"}, 1.5, 1.5),
        ({"type": "double"}, 1e300, 1e300),
        ({"type": "double"}, "NaN", "nan"),
        ({"type": "string"}, "2024-01-02", "2024-01-02"),
        ({"type": "bytes"}, "aGVsbG8=", b"hello"),
        ({"type": "int32", "name": DATA + "Date"}, 19000, date(2022, 1, 8)),
        ({"type": "int32", "name": DATA + "Time"}, 3_723_500, time(1, 2, 3, 500_000)),
        ({"type": "int64", "name": DATA + "Timestamp"}, 1704164645678, datetime(2024, 1, 2, 3, 4, 5, 678000, UTC)),
        (
            {"type": "bytes", "name": DATA + "Decimal", "parameters": {"scale": "2"}},
            base64.b64encode((-1234).to_bytes(2, "big", signed=True)).decode(),
            Decimal("-12.34"),
        ),
        ({"type": "bytes", "name": DATA + "Decimal", "parameters": {"scale": "2"}}, 12.34, Decimal("12.34")),
        ({"type": "array", "items": {"type": "int32", "optional": True}}, [1, None], [1, None]),
        ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int64"}}, {"a": 1}, [("a", 1)]),
        ({"type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}}, [[1, "a"]], [(1, "a")]),
        (
            {"type": "struct", "fields": [{"field": "x", "type": "bytes", "optional": True}]},
            {"x": "aGk="},
            {"x": b"hi"},
        ),
        ({"type": "string", "optional": True}, None, None),
    ],
)
def test_every_type_is_decoded(schema: dict[str, Any], value: Any, expected: Any) -> None:
    found = of(envelope([{"field": "v", **schema}], {"v": value})).values[0]["v"]
    assert found == expected or (expected == "nan" and found != found)


def test_the_schema_is_found_in_any_order_and_spacing() -> None:
    text = envelope([{"field": "v", "type": "int32"}], {"v": 1})
    turned = json.dumps(dict(reversed(json.loads(text).items())), indent=2).encode()
    assert of(text, turned, b" " + text).values == {0: {"v": 1}, 1: {"v": 1}, 2: {"v": 1}}


def test_a_null_payload_is_a_tombstone() -> None:
    assert of(b'{"schema":null,"payload":null}', b"null").values == {0: None, 1: None}


@pytest.mark.parametrize(
    "poison",
    [
        b"",
        b'{"v":1}',
        b'{"schema":{"type":"int32"},"payload":',
        b'{"schema":{"type":"int32"},"payload":1',
        b'{"schema":{"type":"int32"},"payload":1}}',
        b'{"schema":{"type":"int33"},"payload":1}',
        b'{"schema":{"type":"int32"},"payload":4000000000}',
        b'{"schema":{"type":"int32"},"payload":"x"}',
        b'{"schema":{"type":"boolean"},"payload":1}',
        b'{"schema":{"type":"bytes"},"payload":"*"}',
        b'{"schema":' + b"[" * 50_000,
    ],
)
def test_a_poison_value_is_told_from_the_others(poison: bytes) -> None:
    good = envelope([{"field": "v", "type": "int32"}], {"v": 1})
    found = of(good, poison, good)
    assert list(found.bad) == [1]
    assert found.values == {0: {"v": 1}, 2: {"v": 1}}


def test_text_is_text_and_anything_else_is_bad() -> None:
    found = decode(StringConverter({}, is_key=False), ["é".encode(), b"\xff", b""])
    assert (found.values, list(found.bad)) == ({0: "é", 2: ""}, [1])


def test_bytes_are_taken_as_they_are() -> None:
    assert decode(BytesConverter({}, is_key=False), [b"\xff", b""]).values == {0: b"\xff", 1: b""}


def test_an_unknown_converter_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="there is no converter 'xml'; there are: json, avro"):
        converter("xml", {}, is_key=False)
