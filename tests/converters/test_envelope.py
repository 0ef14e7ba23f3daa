"""JSON with Connect's envelope; text; bytes."""

from __future__ import annotations

import base64
import json
import struct
import time as time_
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from calving.converters.interface import converter
from calving.converters.plain import BytesConverter, StringConverter
from calving.errors import ConfigError
from calving.model.record_path import Limits
from tests.converters.decoding import decode

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


INT8, INT64 = {"type": "int8"}, {"type": "int64"}
DECIMAL = {"type": "bytes", "name": DATA + "Decimal", "parameters": {"scale": "10"}}
INNER = {"type": "struct", "optional": True, "fields": [{"field": "x", "type": "int32"}]}


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(17, "big", signed=True)).decode()


def test_a_decimal_of_38_digits_keeps_them_all() -> None:
    number = 12345678901234567890123456789012345678
    found = of(envelope([{"field": "v", **DECIMAL}], {"v": unscaled(number)}))
    assert found.values == {0: {"v": Decimal("1234567890123456789012345678.9012345678")}}


@pytest.mark.parametrize("payload", [{}, {"v": None}])
def test_a_default_stands_for_null_and_for_a_missing_field(payload: Any) -> None:
    field = {"field": "v", "type": "int64", "optional": True, "default": 7}
    assert of(envelope([field], payload)).values == {0: {"v": 7}}


def test_a_default_of_a_logical_type_is_read_as_its_values_are() -> None:
    field = {"field": "v", **DECIMAL, "default": unscaled(15_000_000_000)}
    assert of(envelope([field], {})).values == {0: {"v": Decimal("1.5")}}


def test_a_null_stays_null_where_defaults_are_turned_off() -> None:
    field = {"field": "v", "type": "int64", "optional": True, "default": 7}
    off = converter("json", {"schemas.enable": "true", "replace.null.with.default": "false"}, is_key=False)
    assert decode(off, [envelope([field], {"v": None})]).values == {0: {"v": None}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "float"}, 1e39),
        ({"type": "float"}, 3.4028236e38),
        ({"type": "double"}, "1.5"),
        ({"type": "double"}, True),
        (INT8, 128),
        ({"type": "int16"}, -32769),
        ({"type": "int32"}, 2**31),
        (INT64, 2**63),
        (INT64, 1.5),
        (INT64, True),
        (INT64, "1"),
        ({"type": "string"}, 1),
        ({"type": "string"}, {"a": 1}),
        ({"type": "boolean"}, "true"),
        ({"type": "bytes"}, 1),
        ({"type": "int32", "name": DATA + "Time"}, 86_400_000),
        ({"type": "int32", "name": DATA + "Time"}, -1),
        ({"type": "int32", "name": DATA + "Date"}, 2**31),
        (DECIMAL, 0.12345678901),
        (DECIMAL, unscaled(10**38)),
        (DECIMAL, True),
        ({"type": "array", "items": INT8}, "ab"),
        ({"type": "array", "items": {"type": "string"}}, "ab"),
        ({"type": "map", "keys": {"type": "string"}, "values": INT8}, [["a", 1]]),
        ({"type": "map", "keys": {"type": "int8"}, "values": INT8}, [[1]]),
        (INNER, [["x", 1]]),
        (INNER, {"x": None}),
        (INT8, None),
    ],
)
def test_a_value_that_is_not_of_its_type_is_bad_and_its_field_named(schema: dict[str, Any], value: Any) -> None:
    found = of(envelope([{"field": "v", **schema}], {"v": value}))
    assert found.bad[0].startswith("field 'v")


def test_a_whole_number_may_be_written_as_a_fraction() -> None:
    assert of(envelope([{"field": "v", **INT64}], {"v": 3.0})).values == {0: {"v": 3}}


def test_the_names_of_nested_fields_stand_in_the_reason() -> None:
    assert "field 'v.x'" in of(envelope([{"field": "v", **INNER}], {"v": {"x": "1"}})).bad[0]


def test_an_optional_struct_with_a_required_field_may_be_null() -> None:
    fields = [{"field": "v", **INNER}]
    assert of(envelope(fields, {"v": None}), envelope(fields, {"v": {"x": 1}})).values == {
        0: {"v": None},
        1: {"v": {"x": 1}},
    }


def test_a_null_payload_of_a_required_struct_is_bad() -> None:
    assert "null, but a value is required" in of(envelope([{"field": "v", **INT8}], None)).bad[0]


def test_without_a_schema_a_payload_is_schemaless_json() -> None:
    found = of(b'{"schema":null,"payload":{"a":0.1,"b":[1]}}', b'{"payload":{"a":0.1,"b":[1]},"schema":null}')
    assert found.values == {i: {"a": Decimal("0.1"), "b": [1]} for i in (0, 1)}
    assert found.types == ["objects"]


@pytest.mark.parametrize("around", [b"%b", b'{"schema":null,"payload":%b}'])
def test_the_limit_of_nesting_holds_for_values_without_a_schema(around: bytes) -> None:
    options = {"schemas.enable": "true" if b"schema" in around else "false"}
    made = converter("json", options, is_key=False, limits=Limits(nesting=3))
    found = decode(made, [around % b'{"a":[[1]]}', around % b'{"a":[[[1]]]}'])
    assert list(found.values) == [0]
    assert "nested deeper than 3 levels" in found.bad[1]


@pytest.mark.parametrize("blanks", [(",", ":"), (", ", ": "), (" ,\n", " :\t")])
@pytest.mark.parametrize("turned", [False, True])
def test_what_stands_around_a_payload_does_not_change_it(blanks: tuple[str, str], turned: bool) -> None:
    whole = json.loads(envelope([{"field": "v", "type": "string"}], {"v": '"}, '}))
    parts = dict(reversed(whole.items())) if turned else whole
    values = [json.dumps({**parts, "payload": {"v": text}}, separators=blanks).encode() for text in ("a", "b", '"}}')]
    assert list(of(*values).values.values()) == [{"v": "a"}, {"v": "b"}, {"v": '"}}'}]


@pytest.mark.parametrize(
    ("twice", "expected"),
    [
        (b'{"schema":{"type":"int8"},"payload":1,"payload":2}', 2),
        (b'{"schema":{"type":"string"},"schema":{"type":"int8"},"payload":3}', 3),
    ],
)
def test_the_last_of_two_members_counts_whatever_came_before(twice: bytes, expected: int) -> None:
    first = b'{"schema":{"type":"int8"},"payload":1}'
    assert of(twice).values == {0: expected}
    assert of(first, twice).values == {0: 1, 1: expected}


def test_a_schema_may_stand_in_the_options_instead_of_every_value() -> None:
    schema = json.dumps({"type": "struct", "fields": [{"field": "v", **INT64}]})
    fixed = converter("json", {"schemas.enable": "true", "schema.content": schema}, is_key=False)
    assert decode(fixed, [b'{"v":1}', b'{"v":"x"}']).values == {0: {"v": 1}}


def test_many_bad_values_cost_no_more_than_as_many_good_ones() -> None:
    """Each is read once more to name its field, and none is looked for among the others."""
    good, wrong = (envelope([{"field": "v", **INT8}], {"v": value}) for value in (1, 1000))

    def seconds(values: list[bytes]) -> float:
        made = converter("org.apache.kafka.connect.json.JsonConverter", {}, is_key=False)
        started = time_.thread_time()
        made.decode(values, None)
        return time_.thread_time() - started

    assert seconds([wrong] * 8_000) < 1 + seconds([good] * 8_000)


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("ShortConverter", struct.pack(">h", -5), -5),
        ("IntegerConverter", struct.pack(">i", -70000), -70000),
        ("LongConverter", struct.pack(">q", -(2**40)), -(2**40)),
        ("FloatConverter", struct.pack(">f", 1.5), 1.5),
        ("DoubleConverter", struct.pack(">d", 0.1), 0.1),
        ("BooleanConverter", b"\x01", True),
    ],
)
def test_a_single_value_is_big_endian_and_other_lengths_are_bad(name: str, raw: bytes, expected: Any) -> None:
    made = converter(f"org.apache.kafka.connect.converters.{name}", {}, is_key=False)
    found = decode(made, [raw, b"", raw[:-1], raw + b"\x00", raw])
    assert found.values == {0: expected, 4: expected}
    assert sorted(found.bad) == [1, 2, 3]


def test_a_single_value_has_a_short_name_too() -> None:
    assert decode(converter("long", {}, is_key=True), [bytes(8)]).values == {0: 0}


def test_a_byte_that_is_neither_0_nor_1_is_no_boolean() -> None:
    assert list(decode(converter("boolean", {}, is_key=False), [b"\x00", b"\x02"]).bad) == [1]


def test_text_may_be_in_another_encoding() -> None:
    latin = StringConverter({"converter.encoding": "ISO-8859-1"}, is_key=False)
    assert decode(latin, ["é".encode("latin-1")]).values == {0: "é"}


def test_an_encoding_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match=r"value\.converter\.converter\.encoding = utf-9: there is no such encoding"):
        StringConverter({"converter.encoding": "utf-9"}, is_key=False)


@pytest.mark.parametrize("native", ["1", "0"])
def test_no_bytes_are_no_decimal(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVING_NATIVE", native)
    field = {"field": "v", "type": "bytes", "name": DATA + "Decimal", "parameters": {"scale": "2"}}
    found = of(envelope([field], {"v": ""}), envelope([field], {"v": "AA=="}))
    assert list(found.values) == [1]
    assert "no bytes are no decimal" in found.bad[0]


@pytest.mark.parametrize("value", [b"", b" "])
@pytest.mark.parametrize("name", ["json", "org.apache.kafka.connect.json.JsonConverter"])
def test_an_empty_value_is_named(name: str, value: bytes) -> None:
    assert "it is empty" in decode(converter(name, {}, is_key=False), [value]).bad[0]


@pytest.mark.parametrize("name", ["json", "org.apache.kafka.connect.json.JsonConverter"])
def test_a_byte_order_mark_is_named(name: str) -> None:
    mark, whole = b"\xef\xbb\xbf", envelope([{"field": "v", "type": "int32"}], {"v": 1})
    found = decode(converter(name, {}, is_key=False), [mark + whole])
    assert "byte order mark" in found.bad[0]


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"scale": "-999999999"}, "a decimal of scale -999999999: a table takes numbers of at most 38 digits"),
        ({"scale": "999999999"}, "a decimal with 999999999 digits after the point: a table takes at most 38"),
        ({"scale": "-99999999999"}, "a Decimal whose parameter 'scale' is no whole number: \"-99999999999\""),
        ({"scale": None}, "a Decimal whose parameter 'scale' is no whole number: null"),
        ({"scale": [1]}, "a Decimal whose parameter 'scale' is no whole number: [1]"),
        ({"scale": "x"}, "a Decimal whose parameter 'scale' is no whole number: \"x\""),
        (
            {"scale": "2", "connect.decimal.precision": ""},
            "a Decimal whose parameter 'connect.decimal.precision' is no whole number: \"\"",
        ),
        ({"scale": "2", "connect.decimal.precision": "-1"}, "a Decimal whose connect.decimal.precision is -1"),
    ],
)
def test_a_decimal_that_no_table_has_is_named_with_its_field(parameters: dict[str, Any], reason: str) -> None:
    price = {"type": "bytes", "name": DATA + "Decimal", "parameters": parameters, "field": "price"}
    found = of(envelope([{"type": "struct", "fields": [price], "field": "o"}], {"o": {"price": "AQ=="}}))
    assert found.bad == {0: f"not a Connect envelope: field 'o.price': {reason}"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "struct"},
        {"type": "struct", "fields": 3},
        {"type": "struct", "fields": [3]},
        {"type": "struct", "fields": {"a": 1}},
        {"type": "struct", "fields": [{"type": "int32", "field": 5}]},
        {"type": "struct", "fields": [{"type": "int32", "field": ["a"]}]},
        {"type": ["a"]},
        {"type": {"a": 1}},
        {"type": None},
        {"type": "map", "keys": 3, "values": {"type": "int8"}},
        {"type": "array", "items": [1]},
        {"type": "bytes", "name": DATA + "Decimal", "parameters": 3},
        {"type": "bytes", "name": DATA + "Decimal", "parameters": "scale"},
    ],
)
def test_a_schema_that_is_none_of_connect_is_refused_without_words_of_python(schema: Any) -> None:
    (reason,) = of(json.dumps({"schema": schema, "payload": 1}).encode()).bad.values()
    assert not any(word in reason for word in ("<class", "object", "NoneType", "hashable", "argument"))
    assert reason.startswith("not a Connect envelope: ")
