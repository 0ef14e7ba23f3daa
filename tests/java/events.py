"""Change events of Debezium, AWS DMS and MongoDB, by seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.java import generate
from tests.java.generate import MOMENTS, dumps, envelope
from tests.java.reference import Message


def debezium(random: Random, count: int) -> list[Message]:
    found = []
    for _ in range(count // 2):
        source = {"db": "shop", "schema": "public", "table": "orders", "extra": 1}
        for name in random.sample(list(source), random.randrange(2)):
            source.pop(name)
        event: dict[str, Any] = {
            "op": random.choice(["c", "r", "u", "d", "t", 5]),
            "before": random.choice([None, generate.objects(random)]),
            "after": random.choice([None, generate.objects(random), generate.objects(random)]),
            "source": source,
            "ts_ms": random.choice([*MOMENTS, None]),
        }
        for name in random.sample(list(event), random.choice([0, 0, 0, 1])):
            event.pop(name)
        key = random.choice([None, '{"id":1}', "5", '"x"'])
        found.append(Message(dumps(event), key=key))
    own = {"op": "c", "after": {"id": 1, "_cdc": "own"}, "source": {"db": "shop", "table": "orders"}, "ts_ms": 5}
    found += [Message(dumps(own)), Message("[1]")]
    while len(found) < count:
        row, make = generate.struct(random)
        schema = _debezium_schema({**row, "optional": True})
        for _ in range(4):
            op = random.choice(["c", "u", "d"])
            event = {"op": op, "before": make(), "after": make(), "ts_ms": random.choice(MOMENTS)}
            event["source"] = {"db": "shop", "schema": "public", "table": "orders"}
            key = random.choice(
                [None, envelope({"type": "struct", "fields": [{"field": "id", "type": "int32"}]}, {"id": 1})]
            )
            found.append(Message(envelope(schema, event), True, key))
    return found


def _debezium_schema(row: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "string", "optional": False}
    source = {"type": "struct", "fields": [{"field": n, **text} for n in ("db", "schema", "table")]}
    fields: list[tuple[str, dict[str, Any]]] = [
        ("op", text),
        ("before", row),
        ("after", row),
        ("ts_ms", {"type": "int64"}),
        ("source", source),
    ]
    return {"type": "struct", "fields": [{"field": n, **s} for n, s in fields]}


def dms(random: Random, count: int) -> list[Message]:
    found = []
    for _ in range(count):
        about: dict[str, Any] = {
            "operation": random.choice(["load", "insert", "update", "delete", 5]),
            "timestamp": random.choice(["2024-01-02T12:00:00Z", 5, None]),
            "schema-name": "s",
            "table-name": random.choice(["t", 7]),
        }
        for name in random.sample(list(about), random.choice([0, 0, 0, 1])):
            about.pop(name)
        data = random.choice([generate.objects(random), generate.objects(random), None, 5])
        event = {"data": data, "metadata": random.choice([about, about, about, None, "x"])}
        found.append(Message(dumps(event)))
    return found


def mongo(random: Random, count: int) -> list[Message]:
    return [_mongo(random) for _ in range(count)]


def _mongo(random: Random) -> Message:
    text: dict[str, Any] = {"type": "string", "optional": True}
    change: dict[str, Any] = {
        "type": "struct",
        "optional": True,
        "fields": [
            {"field": "updatedFields", **text},
            {"field": "removedFields", "type": "array", "items": text, "optional": True},
        ],
    }
    fields: list[tuple[str, dict[str, Any]]] = [
        ("op", text),
        ("before", text),
        ("after", text),
        ("updateDescription", change),
        ("n", {"type": "int32"}),
    ]
    schema = {"type": "struct", "name": "x.Envelope", "fields": [{"field": n, **s} for n, s in fields]}
    changes = {"updatedFields": dumps(_document(random)), "removedFields": random.choice([None, [], ["a", "q"]])}
    event = {
        "op": random.choice("cud"),
        "before": random.choice([None, dumps(_document(random))]),
        "after": random.choice([None, dumps(_document(random))]),
        "updateDescription": random.choice([None, changes]),
        "n": 1,
    }
    key_schema = {"type": "struct", "name": "x.Key", "fields": [{"field": "id", **text}]}
    identity = random.choice(['{"$oid":"65a1b2c3d4e5f60718293a4b"}', "5", '"x"', '{"$numberLong":"7"}', '{"a":1}'])
    return Message(envelope(schema, event), True, envelope(key_schema, {"id": identity}))


def _document(random: Random, depth: int = 2) -> dict[str, Any]:
    return {name: _bson(random, depth) for name in random.sample(["_id", "a", "b", "c", "d"], random.randrange(1, 4))}


_BSON: tuple[Callable[[Random], Any], ...] = (
    lambda r: None,
    lambda r: r.choice([0, 1, -5, 2**31, 2**53 + 1]),
    lambda r: r.choice([0.5, 1e10, -0.0, float("nan"), float("-inf")]),
    lambda r: r.choice(["x", "", "ä"]),
    lambda r: r.random() < 0.5,
    lambda r: {"$oid": "65a1b2c3d4e5f60718293a4b"},
    lambda r: {"$numberInt": str(r.choice([0, -7]))},
    lambda r: {"$numberLong": str(r.choice([0, 2**53 + 1, -(2**63)]))},
    lambda r: {"$numberDouble": r.choice(["1.5", "NaN", "Infinity"])},
    lambda r: {"$numberDecimal": r.choice(["1.10", "1E+3"])},
    lambda r: {"$date": r.choice([1_704_196_800_123, -1, 253_402_300_799_999])},
    lambda r: {"$date": {"$numberLong": str(r.choice(MOMENTS))}},
    lambda r: {"$date": r.choice(["9999-12-31T23:59:59.999Z", "2024-01-02T12:00:00Z"])},
    lambda r: {"$timestamp": {"t": 1_704_196_800, "i": 1}},
    lambda r: {"$binary": {"base64": "aGk=", "subType": "00"}},
    lambda r: {"$regularExpression": {"pattern": "^a", "options": "mi"}},
    lambda r: {"$regex": "^a", "$options": "mi"},
    lambda r: {"$code": "f()"},
    lambda r: {"$symbol": "s"},
    lambda r: {"$minKey": 1},
    lambda r: {"$undefined": True},
)


def _bson(random: Random, depth: int) -> Any:
    kind = random.random()
    if depth and kind < 0.15:
        return _document(random, depth - 1)
    if depth and kind < 0.3:
        make = random.choice(_BSON)
        return [make(random) for _ in range(random.randrange(3))]
    if depth and kind < 0.36:
        return [_document(random, depth - 1) for _ in range(random.randrange(3))]
    return random.choice(_BSON)(random)
