"""Short schemas that describe more columns, or more levels, than fit into memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2

from harness.registry import serialized

F = descriptor_pb2.FieldDescriptorProto
Json = Any


class Hostile(NamedTuple):
    """A schema for the registry; for Connect's envelope, the schema itself. ``refused``: why its records are bad."""

    converter: str
    kind: str
    text: str
    refused: str


EITHER = "iceberg.limits."
BYTES = "that take no bytes"
COLUMNS, LEVELS = "more than iceberg.limits.columns = 5000", "deeper than iceberg.limits.nesting = 32"


@cache
def hostile() -> Mapping[str, Hostile]:
    """The schemas, by name."""
    found: dict[str, Hostile] = {}
    for n in (12, 16, 22):
        for name, use in _AVRO.items():
            found[f"avro {name} {n}"] = Hostile("avro", "AVRO", json.dumps(_avro(n, use)), EITHER)
        for name, use in _JSON.items():
            found[f"json-schema {name} {n}"] = Hostile("json-schema", "JSON", json.dumps(_json(n, use)), EITHER)
        for name in ("messages", "repeated", "maps", "oneofs"):
            found[f"protobuf {name} {n}"] = Hostile("protobuf", "PROTOBUF", serialized(_protobuf(n, name)), EITHER)
    wide, deep = 6_000, 40
    found |= {
        "avro wide": Hostile("avro", "AVRO", json.dumps(_record("W", {f"f{i}": "int" for i in range(wide)})), COLUMNS),
        "avro deep": Hostile(
            "avro", "AVRO", json.dumps(_nested(deep, lambda s: {"type": "array", "items": s}, "int")), LEVELS
        ),
        "avro array of nulls": Hostile("avro", "AVRO", json.dumps(_nulls("array", "items")), BYTES),
        "avro map of nulls": Hostile("avro", "AVRO", json.dumps(_nulls("map", "values")), BYTES),
        "avro entries of nothing": Hostile("avro", "AVRO", json.dumps(_ENTRIES_OF_NOTHING), BYTES),
        "avro enum of many fields": Hostile(
            "avro",
            "AVRO",
            json.dumps(_record("E", {"e": _enum(5_000), **{f"e{i}": "Choice" for i in range(1_000)}})),
            "of an enum of 5000",
        ),
        "avro chain": Hostile("avro", "AVRO", json.dumps(_chain(deep)), LEVELS),
        "json-schema wide": Hostile(
            "json-schema", "JSON", json.dumps(_object({f"f{i}": {"type": "integer"} for i in range(wide)})), COLUMNS
        ),
        "json-schema deep": Hostile(
            "json-schema",
            "JSON",
            json.dumps(_nested(deep, lambda s: {"type": "array", "items": s}, {"type": "integer"})),
            LEVELS,
        ),
        "json-schema names": Hostile("json-schema", "JSON", json.dumps(_again()), "50000 names together"),
        "json-schema parts": Hostile("json-schema", "JSON", json.dumps(_parts(15_000)), COLUMNS),
        "json-schema required names": Hostile("json-schema", "JSON", json.dumps(_required(wide, 50_000)), COLUMNS),
        "protobuf wide": Hostile("protobuf", "PROTOBUF", serialized(_wide(wide)), COLUMNS),
        "protobuf deep": Hostile("protobuf", "PROTOBUF", serialized(_protobuf(deep, "chain")), LEVELS),
        "connect wide": Hostile(
            "connect",
            "",
            json.dumps({"type": "struct", "fields": [{"field": f"f{i}", "type": "int32"} for i in range(wide)]}),
            COLUMNS,
        ),
        "connect deep": Hostile(
            "connect", "", json.dumps(_nested(deep, lambda s: {"type": "array", "items": s}, {"type": "int32"})), LEVELS
        ),
        "avro beyond the stack": Hostile("avro", "AVRO", _beyond('{"type":"array","items":', '"int"'), ""),
        "json-schema beyond the stack": Hostile(
            "json-schema", "JSON", _beyond('{"type":"array","items":', '{"type":"integer"}'), ""
        ),
        "connect beyond the stack": Hostile("connect", "", _beyond('{"type":"array","items":', '{"type":"int32"}'), ""),
        "json-schema references beyond the stack": Hostile("json-schema", "JSON", json.dumps(_references(20_000)), ""),
        "protobuf beyond the stack": Hostile("protobuf", "PROTOBUF", serialized(_protobuf(20_000, "chain")), ""),
        "avro chain beyond the stack": Hostile("avro", "AVRO", json.dumps(_chain(2_000)), ""),
    }
    return found | _long() | _shared()


def _nested(levels: int, around: Callable[[Json], Json], inner: Json) -> Json:
    for _ in range(levels):
        inner = around(inner)
    return inner


def _beyond(before: str, inner: str, levels: int = 30_000) -> str:
    return before * levels + inner + "}" * levels


def _long() -> dict[str, Hostile]:
    """Schemas of up to a megabyte, in which one thing is long or occurs often."""
    most, names = "iceberg.limits.schema-bytes", "50000 names together"
    namespace = _record("W", {f"f{i}": {"type": "fixed", "name": f"F{i}", "size": 1} for i in range(4_000)})
    array = {"type": "array", "items": {"type": "integer"}, "default": [0] * 300_000}
    return {
        "avro text": Hostile("avro", "AVRO", json.dumps({**_record("R", {"f": "int"}), "doc": "x" * 2**20}), most),
        "json-schema text": Hostile("json-schema", "JSON", json.dumps({"description": "x" * 2**20}), most),
        "protobuf text": Hostile("protobuf", "PROTOBUF", serialized(_with(_default, 800_000)), most),
        "connect text": Hostile("connect", "", json.dumps({"type": "int32", "doc": "x" * 2**20}), most),
        "avro namespace": Hostile(
            "avro", "AVRO", json.dumps({**namespace, "namespace": "a." * 50_000 + "b"}), "more than 1000 characters"
        ),
        "avro name of a type": Hostile("avro", "AVRO", json.dumps(_record("R", {"f": "T" * 900_000})), "TTT..."),
        "avro precision": Hostile("avro", "AVRO", json.dumps(_decimal("scale", 10**18)), "at most 38"),
        "avro precision beyond a double": Hostile(
            "avro", "AVRO", json.dumps(_decimal("precision", 0)).replace("0", "1e999999999"), "inf"
        ),
        "json-schema default": Hostile("json-schema", "JSON", json.dumps(_object({"a": array})), names),
        "json-schema pointer": Hostile(
            "json-schema", "JSON", json.dumps(_object({"a": {"$ref": "#/" + "a/" * 400_000}})), "/a/a..."
        ),
        "protobuf imports": Hostile("protobuf", "PROTOBUF", serialized(_with(_imports, 20_000)), "no reference"),
        "protobuf same import": Hostile("protobuf", "PROTOBUF", serialized(_with(_import, 30_000)), "no reference"),
        "protobuf messages unused": Hostile("protobuf", "PROTOBUF", serialized(_with(_messages, 60_000)), "10000"),
        "connect name": Hostile("connect", "", json.dumps(_connect_field("f" * 900_000)), "fff..."),
    }


def _decimal(word: str, digits: int) -> Json:
    return _record("D", {"d": {"type": "bytes", "logicalType": "decimal", "precision": 9, word: digits}})


def _connect_field(name: str) -> Json:
    return {"type": "struct", "fields": [{"field": name, "type": "none"}]}


def _with(add: Callable[[Any, int], object], count: int) -> Any:
    """A file with a message, and more."""
    file = descriptor_pb2.FileDescriptorProto(name="l.proto", package="l", syntax="proto2")
    file.message_type.add(name="M").field.add(name="x", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    add(file, count)
    return file


def _default(file: Any, count: int) -> None:
    file.message_type[0].field.add(
        name="s", number=2, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL, default_value="x" * count
    )


def _imports(file: Any, count: int) -> None:
    """Names in Protobuf's own package, which are looked for among its modules."""
    file.dependency.extend(f"google/protobuf/a{i}.proto" for i in range(count))


def _import(file: Any, count: int) -> None:
    file.dependency.extend(["google/protobuf/a.proto"] * count)


def _messages(file: Any, count: int) -> None:
    for i in range(count):
        file.message_type.add(name=f"Z{i}")


def _shared() -> dict[str, Hostile]:
    """Schemas whose parts refer to one thing again and again."""
    tree = {f"R{i}": {"allOf": [{"$ref": f"#/R{i - 1}"}] * 2} for i in range(1, 15)}
    same = {f"R{i}": {**_object({}), "anyOf": [{"$ref": f"#/R{i - 1}"}] * 40} for i in range(1, 4)}
    leaf = _object({f"x{i}": {"type": "integer"} for i in range(2_000)})
    map_of_records = {"type": "map", "values": _avro(22, _AVRO["records"])}
    return {
        "avro map of records": Hostile("avro", "AVRO", json.dumps(map_of_records), COLUMNS),
        "json-schema tree of parts": Hostile(
            "json-schema",
            "JSON",
            json.dumps({**_object({"a": {"$ref": "#/R14"}}), **tree, "R0": _object({"x": {"type": "integer"}})}),
            EITHER,
        ),
        "json-schema tree of branches": Hostile(
            "json-schema",
            "JSON",
            json.dumps({**_object({"a": {"$ref": "#/R3"}}), **same, "R0": leaf}),
            "names together",
        ),
        "json-schema same branches": _same({"anyOf": [{}] * 20_000}, 30),
        "json-schema same conditions": _same({"dependentSchemas": {str(i): {} for i in range(20_000)}}, 30),
        "json-schema same types": _same({"type": [f"t{i}" for i in range(10_000)]}, 400),
        "json-schema many required names": Hostile(
            "json-schema", "JSON", json.dumps(_required_of_parts()), "names together"
        ),
    }


def _same(part: Json, times: int) -> Hostile:
    """An object with many references to one part."""
    schema = {"R": part, "allOf": [{"$ref": "#/R"}] * times, "properties": {}}
    return Hostile("json-schema", "JSON", json.dumps(schema), "names together")


def _required_of_parts() -> Json:
    """Many names in ``required`` of one part, and few in that of each of many others."""
    return {"allOf": [{"required": ["a"] * 30_000}, *[{"required": ["a"]}] * 4_900], "properties": {}}


def _record(name: str, fields: Mapping[str, Json]) -> Json:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def _enum(symbols: int) -> Json:
    return {"type": "enum", "name": "Choice", "symbols": [f"s{i}" for i in range(symbols)]}


_AVRO: Mapping[str, Callable[[str], Json]] = {
    "records": lambda before: before,
    "unions": lambda before: ["null", before],
    "unions of several": lambda before: ["null", "string", before],
    "arrays": lambda before: {"type": "array", "items": before},
    "maps": lambda before: {"type": "map", "values": ["null", before]},
}


def _avro(n: int, use: Callable[[str], Json]) -> Json:
    """Records of which each uses the one before it twice. Each is defined where it is first used."""
    schema = _record("R0", {"x": "int"})
    for i in range(1, n + 1):
        schema = _record(f"R{i}", {"a": use(schema), "b": use(f"R{i - 1}")})
    return schema


def _chain(n: int) -> Json:
    """Records within each other, defined one after the other in a union."""
    names = [_record("R0", {"x": "int"}), *(_record(f"R{i}", {"a": f"R{i - 1}"}) for i in range(1, n + 1))]
    return _record("Root", {"all": names})


def _nulls(kind: str, elements: str) -> Json:
    """Many values for each byte of an element."""
    element = _record("E", {**{f"n{i}": "null" for i in range(2_000)}, "b": "boolean"})
    return _record("A", {"e": element, "x": {"type": kind, elements: ["null", "E"]}})


_ENTRIES_OF_NOTHING = _record(
    "A",
    {
        "x": {
            "type": "array",
            "items": _record("io.confluent.connect.avro.MapEntry", {"key": "null", "value": "null"})
            | {"connect.internal.type": "MapEntry"},
        }
    },
)


def _again() -> Json:
    """Many references to one part with many names, each spelled in another way."""
    places = [f"#{'/' * i}d{'/' * j}R" for i in range(1, 40) for j in range(1, 40)]
    part = {"properties": {"a": {"type": "integer"}}, "required": ["q"] * 50_000}
    return {"d": {"R": part}, "allOf": [{"$ref": place} for place in places]}


def _parts(count: int) -> Json:
    """An object whose properties stand in one part of ``allOf`` each."""
    return {"allOf": [_object({f"f{i}": {"type": "integer"}}) for i in range(count)]}


def _required(columns: int, names: int) -> Json:
    """Many names in ``required``, each of which may be a property."""
    return _object({f"f{i}": {"type": "integer"} for i in range(columns)}) | {
        "required": [f"r{i}" for i in range(names)]
    }


def _object(properties: Mapping[str, Json]) -> Json:
    return {"type": "object", "properties": dict(properties)}


_JSON: Mapping[str, Callable[[Json], Json]] = {
    "references": lambda before: before,
    "unions": lambda before: {"oneOf": [{"type": "null"}, {"type": "string"}, before]},
    "either": lambda before: {"anyOf": [before, {"type": "null"}]},
    "items": lambda before: {"type": "array", "items": before},
    "maps": lambda before: {"type": "object", "connect.type": "map", "additionalProperties": before},
    "all": lambda before: {"allOf": [before, {"title": "t"}]},
}


def _json(n: int, use: Callable[[Json], Json]) -> Json:
    definitions: dict[str, Json] = {"R0": _object({"x": {"type": "integer"}})}
    for i in range(1, n + 1):
        before = {"$ref": f"#/definitions/R{i - 1}"}
        definitions[f"R{i}"] = _object({"a": use(before), "b": use(before)})
    return {"definitions": definitions, **_object({"root": {"$ref": f"#/definitions/R{n}"}})}


def _references(n: int) -> Json:
    definitions: dict[str, Json] = {f"R{i}": {"$ref": f"#/definitions/R{i - 1}"} for i in range(1, n)}
    return {"definitions": {"R0": {"type": "integer"}, **definitions}, "$ref": f"#/definitions/R{n - 1}"}


def _protobuf(n: int, way: str) -> Any:
    """The first message of the file uses the second twice, and so on; with ``chain`` once."""
    file = descriptor_pb2.FileDescriptorProto(name="h.proto", package="h", syntax="proto3")
    for i in range(n):
        message = file.message_type.add(name=f"M{i}")
        if way == "oneofs":
            message.oneof_decl.add(name="choice")
        for number, name in enumerate("a" if way == "chain" else "ab", 1):
            field = message.field.add(name=name, number=number, type=F.TYPE_MESSAGE, label=F.LABEL_OPTIONAL)
            field.type_name = f".h.M{i + 1}"
            if way == "repeated":
                field.label = F.LABEL_REPEATED
            elif way == "oneofs":
                field.oneof_index = 0
            elif way == "maps":
                entry = message.nested_type.add(name=f"{name.upper()}Entry")
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
                entry.field.add(
                    name="value", number=2, type=F.TYPE_MESSAGE, label=F.LABEL_OPTIONAL, type_name=field.type_name
                )
                field.label, field.type_name = F.LABEL_REPEATED, f".h.M{i}.{name.upper()}Entry"
    leaf = file.message_type.add(name=f"M{n}")
    leaf.field.add(name="x", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    return file


def _wide(n: int) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="w.proto", package="w", syntax="proto3")
    message = file.message_type.add(name="W")
    for i in range(n):
        message.field.add(name=f"f{i}", number=i + 1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    return file
