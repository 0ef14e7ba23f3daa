"""Change events of Debezium, MongoDB and AWS DMS around rows, and what the transforms that unwrap them make of these."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from pyiceberg.types import StructType

from calving.model.record_path import TransformSpec
from harness.blocks import RecordEnvelope
from tests.fuzz import avro, encoding, json_schemas, nodes, protobuf, protobuf_wire, rare
from tests.fuzz.chain import CHANGES, SINK, Dropped, Options, Record, Refused, told
from tests.fuzz.fates import TOMBSTONE
from tests.fuzz.forms import Instant
from tests.fuzz.nodes import Node
from tests.fuzz.oracle import Typed
from tests.fuzz.values import TEXT, convert

CDC = "_cdc"
PATTERN = "lake_{db}.{table}"
Encoder = Callable[[Any], bytes]
ENCODERS: dict[str, tuple[Callable[[Node], str], Callable[[str, Node], Encoder]]] = {
    "avro": (avro.schema, avro.encoder),
    "envelope": (encoding.connect_schema, encoding.envelope),
    "json-schema": (json_schemas.schema, json_schemas.encoder),
    "protobuf": (protobuf.schema, protobuf_wire.encoder),
}


def debezium_step(random: Random) -> TransformSpec:
    options = {"cdc.target.pattern": PATTERN} if random.random() < 0.4 else {}
    return TransformSpec("unwrap", random.choice(("", SINK)) + "DebeziumTransform", options)


# ---- events


def _about(random: Random) -> dict[str, Any]:
    source: dict[str, Any] = {
        "db": "shop",
        "schema": random.choice(("public", None)),
        "table": f"t{random.randint(0, 3)}",
    }
    if random.random() < 0.02:
        source.pop(random.choice([*source]))
    return source


def debezium(random: Random, rows: Sequence[bytes | None]) -> list[bytes | None]:
    """Events as JSON around rows as JSON, some of which are wrong."""
    return [_event(random, row, random.choice(rows)) for row in rows]


def _event(random: Random, row: bytes | None, other: bytes | None) -> bytes | None:
    if row is None or random.random() < 0.01:
        return None
    if random.random() < 0.02:
        return random.choice((b'{"ts_ms":5}', row, b'{"op":"m","ts_ms":5}', b'{"op":null,"after":{}}'))
    operation = random.choice(("c", "c", "u", "u", "d", "r", "t", "x"))
    sides = {"before": b"null", "after": row}
    if operation == "d":
        sides = {"before": row, "after": b"null"}
    elif operation == "u":
        sides["before"] = other or b"null"
    elif operation == "t":
        sides = {"before": b"null", "after": b"null"}
    if random.random() < 0.03:
        sides[random.choice([*sides])] = random.choice((b"null", b'"text"', b"[]", b'{"_cdc":1}', b'{"_CDC":1}', b"{}"))
    moment = random.choice((b"null", b"1767225600000", b"-5", b"7"))
    parts = {b"op": json.dumps(operation).encode(), b"ts_ms": moment, b"source": json.dumps(_about(random)).encode()}
    parts |= {side.encode(): text for side, text in sides.items()}
    if random.random() < 0.02:
        parts.pop(random.choice([*parts]))
    return b"{" + b",".join(b'"' + name + b'":' + text for name, text in parts.items()) + b"}"


def dms(random: Random, rows: Sequence[bytes | None]) -> list[bytes | None]:
    """Events of AWS DMS as JSON around rows as JSON, some of which are wrong."""
    made: list[bytes | None] = []
    for row in rows:
        about: dict[str, Any] = {
            "operation": random.choice(("load", "insert", "update", "delete", "x")),
            "timestamp": random.choice(("2024-01-02T12:00:00Z", None, "now")),
            "schema-name": "shop",
            "table-name": f"t{random.randint(0, 3)}",
        }
        if random.random() < 0.05:
            about["record-type"] = random.choice(("control", "data", None))
        if random.random() < 0.02:
            about.pop(random.choice([*about]))
        metadata = json.dumps(about).encode() if random.random() < 0.98 else random.choice((b"null", b'"x"', b"[]"))
        made.append(None if row is None else b'{"data":' + row + b',"metadata":' + metadata + b"}")
    return made


def typed(random: Random, converter: str, struct: StructType, count: int) -> tuple[str, list[bytes | None], list[Any]]:
    """Events of Debezium with a schema: it, the records, and their values."""
    row = nodes.record(random, struct, converter)
    loose = row.loose

    def text(name: str, optional: bool = True) -> Node:
        return Node("string", optional and converter != "protobuf", name, loose=loose)

    source = Node("struct", True, "source", (text("db", False), text("schema"), text("table", False)), loose=loose)
    sides = tuple(replace(row, name=name, optional=True) for name in ("before", "after"))
    moment = Node("long", converter != "protobuf", "ts_ms", loose=loose)
    event = Node("struct", inner=(*sides, text("op"), moment, source), loose=loose)
    schema_of, encoder_of = ENCODERS[converter]
    schema = schema_of(event)
    encode = encoder_of(schema, event)
    raws: list[bytes | None] = []
    values: list[Any] = []
    for number in range(count):
        if random.random() < 0.01:
            raws.append(None)
            values.append(TOMBSTONE)
            continue
        operation = random.choice(("c", "u", "d", "r", "t"))
        both: dict[str, Any] = {
            "before": nodes.value(random, replace(row, optional=False), number) if operation in "ud" else None,
            "after": nodes.value(random, replace(row, optional=False), number) if operation in "cru" else None,
        }
        if random.random() < 0.03:
            both[random.choice([*both])] = None
        about = {"db": "shop", "schema": random.choice(("public", (text("").optional and None) or "")), "table": "t"}
        value = {
            **both,
            "op": operation,
            "ts_ms": random.choice((1_767_225_600_000, -5, 0)),
            "source": about if random.random() < 0.98 else None,
        }
        raws.append(encode(value))
        values.append(rare.arrived(event, value))
    return schema, raws, values


# ---- what becomes of them


def _unwrapped(record: Record, options: Options) -> Record:
    event = record.fields
    if [*event] == ["ts_ms"]:
        raise Dropped("heartbeat")
    operation = _text(event, "op")
    name = "before" if operation == "d" else "after"
    row = event.get(name)
    if isinstance(row, dict) and _has_cdc(row, record):
        raise Refused("a column of this name")
    if not isinstance(row, dict):
        if operation == "m":
            raise Dropped("message")
        if operation == "t":
            return replace(record, value={CDC: {"op": "T"}}, empties=True)
        raise Refused("no row")
    source = event.get("source")
    if not isinstance(source, dict):
        raise Refused("no source")
    database = source.get("schema") if source.get("schema") is not None else source.get("db")
    if database is None:
        raise Refused("no database")
    database = convert(database, TEXT)
    table = _text(source, "table")
    moment = event.get("ts_ms")
    cdc = {
        "op": {"u": "U", "d": "D"}.get(operation, "I"),
        "ts": Instant(moment * 1000) if record.typed and moment is not None else moment,
        "offset": record.offset,
        "source": f"{database}.{table}",
        "target": options.get("cdc.target.pattern", "{db}.{table}").format(db=database, table=table),
    }
    key = record.key.value if isinstance(record.key, Typed) else record.key
    if isinstance(key, dict) or (record.typed and key is not None):
        cdc["key"] = key
    if not record.typed:
        return replace(record, value={**row, CDC: cdc})
    of_row = told(record.nodes[name])
    if _has_cdc([n.name for n in of_row.inner], record):
        raise Refused("a column of this name")
    kinds = {"ts": "timestamp-millis", "offset": "long", "key": "bytes"}
    inner = tuple(Node(kinds.get(n, "string"), True, n, loose=of_row.loose) for n in cdc if n != "key")
    if "key" in cdc:
        inner = (
            *inner,
            replace(record.key.node, name="key") if isinstance(record.key, Typed) else Node("bytes", True, "key"),
        )
    made = Node("struct", False, CDC, inner)
    return replace(record, value=Typed({**row, CDC: cdc}, replace(of_row, name="", inner=(*of_row.inner, made))))


def _text(fields: dict[str, Any], name: str) -> str:
    if fields.get(name) is None:
        raise Refused(f"no {name}")
    text: str = convert(fields[name], TEXT)
    return text


def _has_cdc(names: Iterable[str], record: Record) -> bool:
    return any((name.lower() if record.fold else name) == CDC for name in names)


def _of_dms(record: Record, options: Options) -> Record:
    data, about = record.fields.get("data"), record.fields.get("metadata")
    if isinstance(about, dict) and about.get("record-type") == "control":
        raise Dropped
    if not isinstance(data, dict) or not isinstance(about, dict) or _has_cdc(data, record):
        raise Refused("no event")
    operation, schema, table = (_text(about, name) for name in ("operation", "schema-name", "table-name"))
    cdc = {
        "op": {"update": "U", "delete": "D"}.get(operation, "I"),
        "ts": about.get("timestamp"),
        "source": f"{schema}.{table}",
    }
    return replace(record, value={**data, CDC: cdc})


# ---- MongoDB


_KINDS: tuple[tuple[str, Callable[[Random], tuple[Any, Any]]], ...] = (
    ("int", lambda r: _same(r.randint(-5, 2**31 - 1))),
    ("long", lambda r: _as_text(r.randint(-(2**63), 2**63 - 1), "$numberLong")),
    ("long", lambda r: _same(2**40)),
    ("int", lambda r: _as_text(r.randint(-7, 7), "$numberInt")),
    ("double", lambda r: _same(r.choice((0.5, 1e10, -2.25)))),
    ("double", lambda r: _as_text(1.5, "$numberDouble")),
    ("string", lambda r: _same(r.choice(("x", "", "é", "5")))),
    ("string", lambda r: ({"$oid": "65a1b2c3d4e5f60718293a4b"}, "65a1b2c3d4e5f60718293a4b")),
    ("boolean", lambda r: _same(r.random() < 0.5)),
    ("timestamp-millis", lambda r: _moment(r.randint(-(10**12), 4 * 10**12), r.random() < 0.5)),
    ("bytes", lambda r: ({"$binary": {"base64": "aGk=", "subType": "00"}}, b"hi")),
)


def _same(value: Any) -> tuple[Any, Any]:
    return value, value


def _as_text(value: Any, name: str) -> tuple[Any, Any]:
    return {name: str(value)}, value


def _moment(millis: int, long: bool) -> tuple[Any, Any]:
    return {"$date": {"$numberLong": str(millis)} if long else millis}, Instant(millis * 1000)


Documents = dict[str, tuple[Any, Any, Node]]
"""Fields: as they are written, their values and kinds."""


Shape = dict[str, int]
"""The fields of documents, with the places of their kinds."""


def _shape(random: Random, names: Sequence[str]) -> Shape:
    chosen = random.sample(names, random.randint(1, len(names)))
    return {name: 0 if name == "_id" else random.randrange(len(_KINDS)) for name in chosen}


def _document(random: Random, shape: Shape) -> Documents:
    found: Documents = {}
    for name, place in shape.items():
        kind, make = _KINDS[place]
        written, value = make(random)
        found[name] = written, value, Node(kind, True, name)
    return found


def mongo(
    random: Random, names: Sequence[str], count: int
) -> tuple[list[bytes | None], list[Any], list[RecordEnvelope], list[Any]]:
    """Events of MongoDB: the records, their values, and keys, written and decoded."""
    raws: list[bytes | None] = []
    values: list[Any] = []
    around: list[RecordEnvelope] = []
    keys: list[Any] = []
    names = ["_id", *random.sample(["a1", "b1", "c1", *names], 3)]
    # Each type of documents takes time.
    shapes = [_shape(random, names) for _ in range(40 if count < 500 else 2)]
    for number in range(count):
        operation = random.choice("cud")
        sides: dict[str, Documents | None] = {
            side: _document(random, random.choice(shapes)) if random.random() < 0.7 else None
            for side in ("before", "after")
        }
        updated = _document(random, random.choice(shapes)) if random.random() < 0.4 else None
        removed = random.sample(names[1:2], random.randint(0, 1))
        event: dict[str, Any] = {"op": operation, "source": {"db": "shop", "collection": "c"}, "ts_ms": 5}
        event |= {side: None if d is None else _written(d) for side, d in sides.items()}
        if updated is not None:
            event["updateDescription"] = {"updatedFields": _written(updated), "removedFields": removed}
        raws.append(json.dumps(event).encode())
        around.append(RecordEnvelope(json.dumps({"id": str(number)}).encode()))
        keys.append({"id": str(number)})
        values.append(event | {"documents": (sides["before"], sides["after"], updated, removed)})
    return raws, values, around, keys


def _written(document: Documents) -> str:
    return json.dumps({name: written for name, (written, _, _) in document.items()})


def _of_mongo(record: Record, options: Options) -> Record:
    event = dict(record.fields)
    before, after, updated, removed = event.pop("documents")
    identity = Node("int", True, "_id")
    number = int(record.key["id"])
    if before is None and after is None and updated is None:
        if event["op"] != "d":
            raise Refused("nothing")
        before = {"_id": (number, number, identity)}
    if after is None and updated is not None:
        after = {n: v for n, v in {**(before or {}), **updated}.items() if n not in removed}
        after.setdefault("_id", (number, number, identity))
    inner = [Node("string", True, "op"), Node("long", True, "ts_ms")]
    source = (Node("string", True, "db"), Node("string", True, "table"))
    value = {"op": event["op"], "ts_ms": event["ts_ms"], "source": {"db": "shop", "table": "c"}}
    for name, document in (("before", before), ("after", after)):
        if document is not None:
            value[name] = {n: v for n, (_, v, _) in document.items()}
            inner.append(Node("struct", True, name, tuple(node for _, _, node in document.values())))
    key = Typed({"id": number}, Node("struct", True, "key", (Node("int", True, "id"),)))
    node = Node("struct", inner=(*inner, Node("struct", True, "source", source)))
    return replace(record, value=Typed(value, node), key=key)


CHANGES |= {
    "DebeziumTransform": _unwrapped,
    "DmsTransform": _of_dms,
    "MongoDebeziumTransform": _of_mongo,
}
