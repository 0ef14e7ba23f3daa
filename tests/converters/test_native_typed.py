"""Connect's envelope and Avro by the decoders in Rust: each record becomes what it becomes without them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from io import BytesIO
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from calving.converters import native
from calving.converters.avro import AvroConverter
from calving.converters.avro_types import plain
from calving.converters.envelope import EnvelopeConverter
from calving.converters.interface import Converter, Decoded
from calving.records.arrays import entries, items_of

pytest.importorskip("calving_native")
COUNT = 600
LOGICAL = "org.apache.kafka.connect.data."


def envelope() -> Converter:
    return EnvelopeConverter({}, is_key=False)


def avro() -> Converter:
    return AvroConverter({"schema": json.dumps(AVRO)}, is_key=False)


# fmt: off
CONNECT = {"type": "struct", "fields": [
    {"field": "i8", "type": "int8"},
    {"field": "i64", "type": "int64", "optional": True},
    {"field": "f", "type": "float", "optional": True},
    {"field": "d", "type": "double", "optional": True},
    {"field": "s", "type": "string", "default": "x"},
    {"field": "b", "type": "bytes", "optional": True},
    {"field": "m", "type": "map", "keys": {"type": "string"}, "values": {"type": "int32", "optional": True}, "optional": True},
    {"field": "l", "type": "array", "items": {"type": "string", "optional": True}, "optional": True},
    {"field": "dec", "type": "bytes", "name": f"{LOGICAL}Decimal", "parameters": {"scale": "2"}, "optional": True},
    {"field": "dt", "type": "int32", "name": f"{LOGICAL}Date", "optional": True},
    {"field": "tm", "type": "int32", "name": f"{LOGICAL}Time", "optional": True},
    {"field": "ts", "type": "int64", "name": f"{LOGICAL}Timestamp", "optional": True},
    {"field": "o", "type": "struct", "fields": [{"field": "x", "type": "boolean"}], "optional": True},
]}
FITTING = {
    "i8": ("1", "-128"), "i64": ("9223372036854775807", "null"), "f": ("1.5", "0.1", "null", "3.4028235e38"),
    "d": ("0.1", "1e300", "-0"), "s": ('"a"', '"é\\n"'), "b": ('"AP8="', '""', "null"), "m": ('{"a":1,"b":null}', "{}"),
    "l": ('["a",null]', "[]"), "dec": ('"AP8="', "1.5", "12", '"gA=="'), "dt": ("19000",), "tm": ("0", "86399999"),
    "ts": ("1767225600000",), "o": ('{"x":true}', '{"x":false,"y":[1,{"z":2}]}', "null"),
}
ODD = (
    "null", "1.0", "128", "-129", "1e400", '"NaN"', '"1"', '"AP8"', '"AP9="', "{}", "[]", '{"x":null}', '{"a":1,"a":2}', "86400000",
    "-1", "-0", "1.555", "1.50", "99999999999999999999999999999999999999", "true", '"\\ud800"', "nul", "1e2", "3.5e38",
    '{"x":true,"x":false}', "[1]", "2147483648", '"AAAAAAAAAAAAAAAAAAAAAAA="',
)
AVRO = {"type": "record", "name": "R", "fields": [
    {"name": "i", "type": "int"},
    {"name": "l", "type": ["null", "long"]},
    {"name": "f", "type": ["float", "null"]},
    {"name": "d", "type": "double"},
    {"name": "b", "type": "boolean"},
    {"name": "s", "type": ["null", "string"]},
    {"name": "y", "type": ["null", "bytes"]},
    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
    {"name": "three", "type": {"type": "fixed", "name": "F", "size": 3}},
    {"name": "m", "type": {"type": "map", "values": ["null", "int"]}},
    {"name": "a", "type": {"type": "array", "items": ["null", {"type": "record", "name": "N", "fields": [
        {"name": "x", "type": "int"}, {"name": "e2", "type": "E"},
    ]}]}},
    {"name": "dec", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]},
    {"name": "eight", "type": {"type": "fixed", "name": "D", "size": 8, "logicalType": "decimal", "precision": 12, "scale": 3}},
    {"name": "dt", "type": {"type": "int", "logicalType": "date"}},
    {"name": "tm", "type": {"type": "int", "logicalType": "time-millis"}},
    {"name": "tu", "type": {"type": "long", "logicalType": "time-micros"}},
    {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "lt", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
    {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "raw", "type": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}},
    {"name": "o", "type": ["null", "N"]},
]}
# fmt: on
BODY = fastavro.parse_schema(json.loads(json.dumps(plain(AVRO))))


def enveloped(random: Random) -> bytes:
    """Mostly of one spelling, mostly with fitting values."""
    names = [name for name in FITTING if random.random() < 0.9]
    if random.random() < 0.1:
        random.shuffle(names)
    odd = random.choice(names) if names and random.random() < 0.4 else None
    parts = [f'"{name}":{random.choice(ODD if name == odd else FITTING[name])}' for name in names]
    if random.random() < 0.1:
        parts.append('"new":' + random.choice(ODD))
    payload = "{" + ",".join(parts) + "}"
    if random.random() < 0.03:
        payload = random.choice(("null", "[]", "1", payload[:-1], payload + "}"))
    schema = json.dumps(CONNECT, separators=(",", ":")) if random.random() < 0.9 else json.dumps(CONNECT)
    text = random.choices(
        (
            f'{{"schema":{schema},"payload":{payload}}}',
            f'{{"payload":{payload},"schema":{schema}}}',
            f'{{"schema": {schema} , "payload": {payload} }}',
            f'{{"schema":null,"payload":{payload}}}',
            f'{{"schema":{{}},"payload":{payload}}}',
        ),
        (80, 10, 5, 3, 2),
    )[0]
    return damaged(random, text.encode()) if random.random() < 0.03 else text.encode()


def damaged(random: Random, raw: bytes) -> bytes:
    place = random.randrange(len(raw) or 1)
    other = random.choice((0, 1, 2, 3, 127, 128, 255, random.randrange(256)))
    return random.choice((raw[:place], raw + b"x", raw[:place] + bytes([other]) + raw[place + 1 :]))


_LONG_NUMBERS = (b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x02", b"\x82" + b"\x80" * 9 + b"\x01", b"\x82\x80\x00")


def damaged_avro(random: Random, raw: bytes) -> bytes:
    """With one byte that is another, or with a number of many bytes in its place."""
    place = random.randrange(len(raw) or 1)
    if random.random() < 0.5:
        return damaged(random, raw)
    return raw[:place] + random.choice(_LONG_NUMBERS) + raw[place + 1 :]


def union() -> Converter:
    """Rust reads no union of several types, so all of its bytes are checked in Python."""
    return AvroConverter({"schema": json.dumps(UNION)}, is_key=False)


UNION = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", AVRO | {"name": "S"}, "boolean"]}]}


def test_damaged_bytes_have_one_fate_within_a_union_of_several_types_and_alone() -> None:
    random = Random(6)
    values = [written(random) for _ in range(COUNT)]
    alone = fates(avro().decode(values, None), COUNT)
    within = fates(union().decode([b"\x02" + value for value in values], None), COUNT)
    taken = [kind.startswith("[") for kind, _ in alone]
    assert [kind.startswith("[") for kind, _ in within] == taken
    assert COUNT / 2 < sum(taken) < COUNT


def written(random: Random) -> bytes:
    """A record of Avro, now and then damaged."""
    choice, out = random.choice, BytesIO()
    row = {
        "i": choice((0, 1, -1, 2**31 - 1, -(2**31))),
        "l": choice((None, 0, 2**63 - 1, -(2**63), 77)),
        "f": choice((None, 1.5, None, 1.5, float("nan"))),
        "d": choice((0.1, -0.0, float("inf"))),
        "b": choice((True, False)),
        "s": choice((None, "", "é", "x" * 200)),
        "y": choice((None, b"", b"\xff\0")),
        "e": choice("AB"),
        "three": b"abc",
        "m": choice(({}, {"k": 1, "z": None})),
        "a": choice(([], [None], [{"x": 1, "e2": "B"}] * 3)),
        "dec": choice((None, b"\0", b"\xff\x10", b"\x7f" * 4) * 4 + (b"\x7f" * 5, b"\0" * 17 + b"\1", b"")),
        "eight": choice((b"\0" * 8, b"\xff" * 8) * 4 + (b"\0\0\0\x10" * 2, b"\x7f" * 8)),
        "dt": choice((0, -800_000, 19_000, 2**31 - 1)),
        "tm": choice((0, 5, 86_399_999) * 4 + (86_400_000, -1)),
        "tu": choice((0, 86_399_999_999)),
        "ts": choice((0, 1_767_225_600_000_000)),
        "lt": 5,
        "u": uuid.UUID(int=random.getrandbits(128)),
        "raw": b"0123456789abcdef",
        "o": choice((None, {"x": 3, "e2": "A"})),
    }
    fastavro.schemaless_writer(out, BODY, row)
    return damaged_avro(random, out.getvalue()) if random.random() < 0.3 else out.getvalue()


def plainly(column: pa.Array) -> list[Any]:
    """Values, dates and times of which Python may have none as numbers."""
    kind, valid = column.type, column.is_valid().to_pylist()
    if isinstance(column, pa.StructArray):
        rows = list(zip(*map(plainly, column.flatten()), strict=True))
        return [row if there else None for row, there in zip(rows, valid, strict=True)]
    if isinstance(column, pa.ListArray):
        inner = [*map(plainly, entries(column))] if isinstance(column, pa.MapArray) else [plainly(items_of(column))]
        rows = list(zip(*inner, strict=True))
        first, ends = column.offsets[0].as_py(), column.offsets.to_pylist()
        return [
            rows[a - first : b - first] if there else None for a, b, there in zip(ends, ends[1:], valid, strict=False)
        ]
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def fates(found: Decoded, count: int) -> list[tuple[str, str]]:
    """Type and value of each record, or error and reason."""
    fate = {bad.index: (bad.error, bad.reason) for bad in found.bad}
    for values in found.values:
        rows, kind = values.data, ""
        if isinstance(values.data, pa.StructArray):
            values.data.validate(full=True)
            rows, kind = plainly(values.data), str([(field, field.nullable) for field in values.data.type])
        fate |= {place: (kind, repr(row)) for place, row in zip(values.index, rows, strict=True)}
    return [fate[i] for i in range(count)]


def decoded(
    make: Callable[[], Converter], values: Sequence[bytes], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Any], list[Any]]:
    """With the decoders, and without."""
    fast = fates(make().decode(values, None), len(values))
    with monkeypatch.context() as patch:
        patch.setenv(native.SWITCH, "0")
        return fast, fates(make().decode(values, None), len(values))


@pytest.mark.parametrize(("make", "record"), [(envelope, enveloped), (avro, written)])
def test_every_record_is_what_it_is_without_rust_among_others_and_alone(
    make: Callable[[], Converter], record: Callable[[Random], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(5)
    values = [record(random) for _ in range(COUNT)]
    fast, exact = decoded(make, values, monkeypatch)
    assert [v for v in zip(values, fast, exact, strict=True) if v[1] != v[2]] == []
    converter = make()
    alone = [fates(converter.decode([value], None), 1)[0] for value in values[:100]]
    assert alone == exact[:100]


@pytest.mark.parametrize(("make", "record"), [(envelope, enveloped), (avro, written)])
def test_many_of_them_are_read_by_rust(
    make: Callable[[], Converter], record: Callable[[Random], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    random, taken = Random(5), 0
    values = [record(random) for _ in range(COUNT)]
    read = native.Decoder.read

    def counting(self: native.Decoder, *given: Any) -> Any:
        nonlocal taken
        found = read(self, *given)
        taken += len(found[0])
        return found

    monkeypatch.setattr(native.Decoder, "read", counting)
    make().decode(values, None)
    assert taken * 4 > COUNT


def test_a_null_that_a_default_stands_for_becomes_the_default() -> None:
    schema = {"type": "struct", "fields": [{"field": "s", "type": "string", "optional": True, "default": "x"}]}
    values = [json.dumps({"schema": schema, "payload": payload}).encode() for payload in ({"s": "a"}, {"s": None}, {})]
    found = envelope().decode(values, None)
    assert [row for _, row in fates(found, 3)] == ["('a',)", "('x',)", "('x',)"]


def test_a_count_that_is_too_large_for_its_bytes_takes_no_memory() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}]}
    found = AvroConverter({"schema": json.dumps(schema)}, is_key=False).decode(
        [b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\0"], None
    )
    assert [bad.index for bad in found.bad] == [0]
