"""Messages of Protobuf, Google and Confluent that mean a single value, by docs/reference/converters.md, and their bytes."""

from __future__ import annotations

import base64
import struct
from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from tests.fuzz.forms import Clock, Day, Digits
from tests.fuzz.nodes import Node
from tests.fuzz.protobuf_bytes import EIGHT, VARINT, sized, tag, varint

_EPOCH = date(1970, 1, 1)
_PLACES = 5
_FAR, _NEAR = "type.example/own.Message", "type.googleapis.com/google.protobuf.StringValue"
KINDS = ("duration", "struct", "value", "list-value", "any", "known-decimal", "decimal-text", "date", "time-micros")
TYPES = {
    "duration": ("google/protobuf/duration.proto", ".google.protobuf.Duration"),
    "struct-text": ("google/protobuf/struct.proto", ".google.protobuf.Struct"),
    "value-text": ("google/protobuf/struct.proto", ".google.protobuf.Value"),
    "list-value-text": ("google/protobuf/struct.proto", ".google.protobuf.ListValue"),
    "any-text": ("google/protobuf/any.proto", ".google.protobuf.Any"),
    "known-decimal": ("confluent/type/decimal.proto", ".confluent.type.Decimal"),
    "decimal-text": ("confluent/type/decimal.proto", ".confluent.type.Decimal"),
    "date": ("google/type/date.proto", ".google.type.Date"),
    "time-micros": ("google/type/timeofday.proto", ".google.type.TimeOfDay"),
}
"""Files and names of the messages."""


class Span(int):
    """Milliseconds."""

    raw: bytes


class Told(str):
    """A decimal as text."""

    raw: bytes


class Scaled(Digits):
    """A decimal that brings its scale."""

    raw: bytes


def drawn(random: Random, kind: str, name: str) -> Node:
    """An optional field of one of ``KINDS``."""
    kind = f"{kind}-text" if f"{kind}-text" in TYPES else kind
    make = None if kind in ("date", "time-micros") else _value
    return Node(kind, True, name, size=20, loose=True, form=1, make=make)


def options(node: Node) -> bytes:
    """The options of a field: of a decimal Confluent's, with precision and scale."""
    if node.kind != "known-decimal":
        return b""
    given = (("scale", _PLACES), ("precision", node.size))
    return sized(1088, b"".join(sized(2, sized(1, k.encode()) + sized(2, str(v).encode())) for k, v in given))


def body(node: Node, value: Any) -> bytes:
    """The fields of the message."""
    match node.kind:
        case "value-text":
            return _of_json(value)
        case "struct-text" | "list-value-text":
            return _inside(_of_json(value))
        case "any-text":
            text = value["value"]
            within = sized(1, text.encode()) if value["@type"] == _NEAR else base64.b64decode(text)
            return sized(1, value["@type"].encode()) + sized(2, within)
    match value:
        case Day():
            day = _EPOCH + timedelta(days=value.days)
            return _number(1, day.year) + _number(2, day.month) + _number(3, day.day)
        case Clock():
            seconds, micros = divmod(value.micros, 1_000_000)
            parts = seconds // 3600, seconds // 60 % 60, seconds % 60, micros * 1000
            return b"".join(_number(i, part) for i, part in enumerate(parts, 1))
    raw: bytes = value.raw
    return raw


def _value(random: Random, node: Node) -> Any:
    match node.kind:
        case "duration":
            return _duration(random)
        case "any-text":
            return _any(random)
        case "known-decimal" | "decimal-text":
            return _decimal(random, node.kind == "decimal-text")
    if node.kind == "list-value-text":
        return [_json(random, 2) for _ in range(random.randint(0, 3))]
    if node.kind == "value-text":
        return _json(random, 2) or 0.0
    return {name: _json(random, 2) for name in random.sample(("a", "b", "é", ""), random.randint(0, 1))}


def _duration(random: Random) -> Span:
    nanos = random.choice((0, 1, 999_999, 1_000_000, 999_999_999, random.randrange(10**9)))
    seconds, sign = random.choice((0, 1, 60, random.randrange(315_576_000_000))), random.choice((1, -1))
    made = Span(sign * (seconds * 1000 + nanos // 1_000_000))
    made.raw = _number(1, sign * seconds) + _number(2, sign * nanos)
    return made


def _any(random: Random) -> dict[str, str]:
    raw, text = random.randbytes(random.choice((0, 1, 4))), random.choice(("x", "é", ""))
    far = {"@type": _FAR, "value": base64.b64encode(raw).decode()}
    return random.choice((far, {"@type": _NEAR, "value": text}))


def _decimal(random: Random, is_text: bool) -> Scaled | Told:
    scale = random.choice((0, 1, _PLACES)) if not is_text else random.choice((-2, 0, 3, 20))
    number = random.choice((1, -1)) * random.randrange(10 ** random.randint(1, 15))
    exact = Decimal(number).scaleb(-scale)
    raw = number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
    made = Told(f"{exact:f}") if is_text else Scaled(exact.quantize(Decimal(1).scaleb(-_PLACES)))
    made.raw = sized(1, raw) + _number(2, random.choice((0, 20))) + _number(3, scale)
    return made


def _json(random: Random, depth: int) -> Any:
    choice = random.random() if depth else 1
    if choice < 0.2:
        return [_json(random, depth - 1) for _ in range(random.randint(0, 2))]
    if choice < 0.4:
        return {"k": _json(random, depth - 1)}
    return random.choice((None, True, False, 5.0, -0.5, 1e300, "x", "é", ""))


def _of_json(value: Any) -> bytes:
    """As google.protobuf.Value."""
    match value:
        case None:
            return _number(1, 0)
        case bool():
            return _number(4, int(value))
        case float():
            return tag(2, EIGHT) + struct.pack("<d", value)
        case str():
            return sized(3, value.encode())
        case dict():
            return sized(5, b"".join(sized(1, sized(1, k.encode()) + sized(2, _of_json(v))) for k, v in value.items()))
    return sized(6, b"".join(sized(1, _of_json(item)) for item in value))


def _inside(value: bytes) -> bytes:
    """The message of which a Value is made, without the tag and the size."""
    place = 1
    while value[place] & 0x80:
        place += 1
    return value[place + 1 :]


def _number(field: int, number: int) -> bytes:
    return tag(field, VARINT) + varint(number)
