"""Records and configurations, by seed: all kinds of values, with and without Connect's schemas."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from tests.java.reference import Message

DATA = "org.apache.kafka.connect.data."
INTS = (0, 1, -1, 7, 127, 128, -129, 255, 2**15, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63))
MOMENTS = (0, 1, -1, 999, 86_399_999, 1_704_196_800_123, -62_135_596_800_000, -12_219_292_800_001, 253_402_300_799_999)
DOUBLES = (0.0, -0.0, 0.5, -0.5, 1.5, 3.0, 0.1, 1e-5, 1e10, 123456789.125, 1.1e300, 5e-324, 1e16)
TEXTS = (
    *("", "x", "5", "-7", "+8", "1.5", "1e3", "1_0", " 5", "0x1F", "300", "9223372036854775808", "1e39", "1e400"),
    *("true", "TRUE", "yes", "NaN", "Infinity", "2024-01-02", "31.12.99", "ä€😀", '"quoted"', "a\\b", "null"),
)
FIELDS = ("a", "b", "c", "a.b", "ts")


class Raw(str):
    """JSON text as it is."""


def dumps(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{dumps(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dumps, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def leaf(random: Random) -> Any:
    kind = random.choice(["int", "int", "moment", "double", "text", "text", "bool", "null", "big", "fraction"])
    match kind:
        case "int":
            return random.choice(INTS)
        case "moment":
            return random.choice(MOMENTS)
        case "double":
            return random.choice(DOUBLES)
        case "text":
            return random.choice(TEXTS)
        case "bool":
            return random.random() < 0.5
        case "big":
            return random.choice([2**63, -(2**70), 10**25])
        case "fraction":
            return Raw(random.choice(["0.12345678901234567890", "12345678901234567.25", "1.10", "1E2"]))
    return None


def schemaless(random: Random, depth: int = 2) -> Any:
    """Any JSON value; mostly no object."""
    kind = random.random()
    if depth and kind < 0.12:
        return {name: schemaless(random, depth - 1) for name in random.sample(FIELDS, random.randrange(3))}
    if depth and kind < 0.24:
        return [schemaless(random, depth - 1) for _ in range(random.randrange(4))]
    return leaf(random)


def objects(random: Random) -> dict[str, Any]:
    names = random.sample(FIELDS, random.randrange(1, 5))
    return {name: schemaless(random) for name in names}


# ---- with schemas

Typed = tuple[dict[str, Any], Callable[[], Any]]


def primitive(random: Random) -> Typed:
    bits = random.choice([8, 16, 32, 64])
    kinds: list[Typed] = [
        ({"type": f"int{bits}"}, lambda: random.choice([i for i in INTS if -(2 ** (bits - 1)) <= i < 2 ** (bits - 1)])),
        ({"type": "int64"}, lambda: random.choice([*MOMENTS, *INTS])),
        ({"type": "float"}, lambda: random.choice([0.0, 0.5, -1.5, 0.1, 1e10, 3.0])),
        ({"type": "double"}, lambda: random.choice(DOUBLES)),
        ({"type": "string"}, lambda: random.choice(TEXTS)),
        ({"type": "boolean"}, lambda: random.random() < 0.5),
        ({"type": "bytes"}, lambda: base64.b64encode(random.choice([b"", b"hi", b"\x00\xff"])).decode()),
        ({"type": "int32", "name": DATA + "Date", "version": 1}, lambda: random.choice([0, 1, -1, 19_724, -719_162])),
        ({"type": "int32", "name": DATA + "Time", "version": 1}, lambda: random.choice([0, 1, 86_399_999, 43_200_000])),
        ({"type": "int64", "name": DATA + "Timestamp", "version": 1}, lambda: random.choice(MOMENTS)),
        (
            {"type": "bytes", "name": DATA + "Decimal", "version": 1, "parameters": {"scale": "2"}},
            lambda: unscaled(random.choice([0, 5, -123, 10**20, 99_999])),
        ),
    ]
    return random.choice(kinds)


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def described(random: Random, depth: int = 2) -> Typed:
    """A schema and what makes values of it."""
    kind = random.random()
    optional = random.random() < 0.6
    if depth and kind < 0.12:
        schema, make = struct(random, depth - 1)
    elif depth and kind < 0.22:
        inner, item = described(random, depth - 1)
        schema, make = {"type": "array", "items": inner}, lambda: [item() for _ in range(random.randrange(3))]
    elif depth and kind < 0.3:
        inner, item = described(random, 0)
        schema = {"type": "map", "keys": {"type": "string"}, "values": inner}
        make = lambda: {name: item() for name in random.sample(["k", "l", "m"], random.randrange(3))}  # noqa: E731
    else:
        schema, make = primitive(random)
    schema = {**schema, "optional": optional}
    return schema, lambda: None if optional and random.random() < 0.2 else make()


def struct(random: Random, depth: int = 2) -> Typed:
    fields = [(name, described(random, depth)) for name in random.sample(FIELDS, random.randrange(1, 5))]
    schema = {"type": "struct", "fields": [{"field": name, **inner} for name, (inner, _) in fields]}
    return schema, lambda: {name: make() for name, (_, make) in fields}


def envelope(schema: Mapping[str, Any], payload: Any) -> str:
    return dumps({"schema": dict(schema), "payload": payload})


def messages(random: Random, count: int) -> list[Message]:
    """Half of them with schemas, and several of each schema."""
    found = [Message(dumps(objects(random))) for _ in range(count // 2 - 4)]
    found += [Message(dumps(schemaless(random))) for _ in range(4)]
    while len(found) < count:
        schema, make = struct(random)
        found += [Message(envelope(schema, make()), typed=True) for _ in range(3)]
    strange = [replace(m, timestamp=None) for m in found[:2]]
    return [*found, *strange]


def bare(random: Random, count: int) -> list[Message]:
    """Values that are no objects as often as not."""
    found = [Message(dumps(leaf(random))) for _ in range(count // 2)]
    while len(found) < count:
        schema, make = described(random)
        if schema["type"] != "struct":
            found += [Message(envelope(schema, make()), typed=True) for _ in range(2)]
    return found
