"""Schemas of ``nodes`` as Confluent's JSON Schema converter registers them, and in the other ways in which JSON Schema
says the same; values as JSON behind the header of Confluent's wire format.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.fuzz.encoding import CONNECT_NAMES, CONNECT_TYPES, SchemaText, is_paired, payload, schema_id
from tests.fuzz.json_branches import KINDS as SIMPLE
from tests.fuzz.nodes import Node

_TYPES = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "integer"),
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("map", "struct"), "object"),
    "bytes": "string",
}
_NAMES = {"float": "float32", "double": "float64"}
_NULL = {"type": "null"}
_ROOT = "https://schemas.example/schemas/"
Schema = dict[str, Any]


def schema(node: Node) -> SchemaText:
    writer = _Writer(Random(repr(node)))
    root = writer.written(node)
    if "json-schema $id" in writer.drawn:
        root["$id"] = f"{_ROOT}root.json"
    for word, found in writer.definitions.items():
        root[word] = found
    return SchemaText(
        json.dumps(root, ensure_ascii=False), references=tuple(writer.references), drawn=frozenset(writer.drawn)
    )


def encoder(text: str, node: Node) -> Callable[[Any], bytes]:
    """Makes values, with their header."""
    header = struct.pack(">bI", 0, schema_id(text))
    return lambda value: header + json.dumps(payload(node, value), ensure_ascii=False).encode()


class _Writer:
    def __init__(self, random: Random) -> None:
        self._random = random
        self.definitions: dict[str, Schema] = {}
        self._known: dict[str, Schema] = {}
        """References by what they refer to."""
        self.references: list[tuple[str, str]] = []
        self.drawn: set[str] = set()

    def written(self, node: Node, may_lack: bool = False) -> Schema:
        """``may_lack``: objects may be without it."""
        is_plain = not node.form
        found = self._type(node)
        default = {} if node.default is None else {"default": payload(node, node.default)}
        self.drawn |= {"json-schema default"} if default else set()
        if not node.optional or may_lack:
            return self._told(found, default, is_plain)
        match 0 if is_plain else self._random.randrange(6):
            case 1 | 2:
                self.drawn.add("json-schema anyOf null")
                return {"anyOf": [self._told(found, default, is_plain), _NULL]}
            case 3 if isinstance(found.get("type"), str) and "enum" not in found and not default:
                self.drawn.add("json-schema types with null")
                return found | {"type": self._shuffled(["null", found["type"]])}
            case 4 if "oneOf" in found and not default:
                return {"oneOf": self._shuffled([_NULL, found])}
            case 5:
                return {"oneOf": [_NULL, found]} | default
        return {"oneOf": [_NULL, found | default]}

    def _shuffled(self, items: list[Any]) -> list[Any]:
        self._random.shuffle(items)
        return items

    def _told(self, found: Schema, default: Schema, is_plain: bool) -> Schema:
        """In place, by a reference, or as one of several parts."""
        random = self._random
        if is_plain or random.random() < 0.6 or found.get("type") == "null":
            return found | default
        if random.random() < 0.3:
            self.drawn.add("json-schema allOf")
            narrowing = random.choice(({}, {"description": "no more"}, {"minLength": 0}))
            return {"allOf": self._shuffled([found | default, narrowing])}
        key = json.dumps(found | default, sort_keys=True)
        if key not in self._known:
            self._known[key] = self._defined(found | default)
        else:
            self.drawn.add("json-schema $ref again")
        self.drawn.add("json-schema $ref")
        return self._known[key]

    def _defined(self, found: Schema) -> Schema:
        random, number = self._random, len(self._known)
        word, name = (
            random.choice(("definitions", "$defs")),
            random.choice((f"d{number}", f"a/b~{number}", f"D {number}")),
        )
        if "$ref" not in json.dumps(found) and random.random() < 0.3:
            return self._identified(found, word, name)
        pointer = name.replace("~", "~0").replace("/", "~1").replace(" ", "%20")
        match 2 + random.randrange(3) if "$ref" in json.dumps(found) else random.randrange(6):
            case 0:
                self.drawn.add("json-schema reference")
                self.references.append((f"other{number}.json", json.dumps(found)))
                return {"$ref": f"other{number}.json"}
            case 1:
                self.drawn.add("json-schema reference")
                whole = {"type": "object", word: {name: found}}
                self.references.append((f"other{number}.json", json.dumps(whole)))
                return {"$ref": f"other{number}.json#/{word}/{pointer}"}
            case 2:
                self.definitions.setdefault(word, {})[name] = found | {"$anchor": f"here{number}"}
                return {"$ref": f"#here{number}"}
        self.definitions.setdefault(word, {})[name] = found
        return {"$ref": f"#/{word}/{pointer}"}

    def _identified(self, found: Schema, word: str, name: str) -> Schema:
        """With an ``$id`` of its own, by which it is found from the root's; at the root, or within another one."""
        self.drawn.add("json-schema $id")
        place = f"{len(self._known)}.json"
        told, within = self._random.choice(
            (
                (place, found | {"$id": place}),
                (f"{_ROOT}{place}", found | {"$id": place}),
                (f"/schemas/{place}", found | {"$id": f"{_ROOT}{place}"}),
                (f"sub/{place}#/{word}/inner", {"$id": f"sub/{place}", word: {"inner": found}}),
                (f"sub/{place}", {"$id": "sub/", word: {"inner": found | {"$id": place}}}),
                (f"{place}#here", {"$id": place, word: {"inner": found | {"$anchor": "here"}}}),
            )
        )
        self.definitions.setdefault(word, {})[name] = within
        return {"$ref": told}

    def _type(self, node: Node) -> Schema:
        match node.kind:
            case "list" if node.size:
                self.drawn.add("json-schema a schema for each place")
                places: list[Schema] = [{"type": "string"}, {"type": "object", "properties": {"a": {"type": "string"}}}]
                return {"type": "array"} | ({"prefixItems": places} if node.size == 1 else {"items": places})
            case "one-of":
                return self._one_of(node)
            case "json":
                self.drawn.add("json-schema any value")
                anything: tuple[Schema, ...] = ({}, {"enum": ["x", 5, True]}, {"type": "object"}, {"enum": [[1], "x"]})
                return anything[node.size]
            case "map" if is_paired(node):
                entry = {"key": self.written(node.inner[0]), "value": self.written(node.inner[1])}
                self.drawn.add("json-schema map of other keys")
                return {
                    "type": "array",
                    "connect.type": "map",
                    "items": {"type": "object", "properties": entry, "required": ["key", "value"]},
                }
        kind = CONNECT_TYPES[node.kind]
        found: Schema = {"type": _TYPES.get(kind, kind)}
        if kind not in ("boolean", "string", "array", "struct"):
            found["connect.type"] = _NAMES.get(kind, kind)
        if node.kind in CONNECT_NAMES:
            found["title"] = CONNECT_NAMES[node.kind]
        if node.mean:
            found["title"] = node.mean
        match node.kind:
            case "struct":
                found |= self._object(node)
            case "list":
                found["items"] = self.written(node.inner[0])
            case "map":
                found["additionalProperties"] = self.written(node.inner[1])
            case "decimal":
                found["connect.parameters"] = {"scale": str(node.scale), "connect.decimal.precision": str(node.size)}
            case "string" | "boolean" if node.form & 64 and not node.mean:
                found |= self._narrowed(node)
        return found

    def _narrowed(self, node: Node) -> Schema:
        """Branches without types, or values that are listed: neither changes the type, and nothing checks them."""
        self.drawn.add("json-schema narrowed")
        if node.form & 128:
            return {"enum": ["x", "y"] if node.kind == "string" else [True, False]}
        return {self._random.choice(("oneOf", "anyOf")): [{"maxLength": 5}, {"minLength": 6}]}

    def _object(self, node: Node) -> Schema:
        lacking = [n.name for n in node.inner if n.optional and n.form & 16]
        self.drawn |= {"json-schema not required"} if lacking else set()
        properties = {
            n.name: self.written(n, n.name in lacking) | {"connect.index": i} for i, n in enumerate(node.inner)
        }
        required = [n.name for n in node.inner if n.name not in lacking]
        if not node.form or self._random.random() < 0.6:
            return {"properties": properties, "required": required}
        if self._random.random() < 0.5:
            self.drawn.add("json-schema allOf of properties")
            return {"allOf": self._parts(properties, required)}
        branch = [n.name for n in node.inner if n.name in lacking and n.default is None and not _has_default(n)]
        if not branch or len(branch) == len(properties):
            return {"properties": properties, "required": required}
        self.drawn.add("json-schema properties of a branch")
        within = {name: properties.pop(name) for name in branch}
        words: tuple[Callable[[Schema], Schema], ...] = (
            lambda part: {"anyOf": [part, {"required": ["id"]}]},
            lambda part: {"oneOf": [{"minProperties": 1}, part]},
            lambda part: {"if": {"required": ["id"]}, "then": part},
            lambda part: {"if": {"required": ["id"]}, "else": part},
            lambda part: {"dependentSchemas": {"id": part}},
        )
        return {"properties": properties, "required": required} | self._random.choice(words)({"properties": within})

    def _parts(self, properties: Schema, required: Sequence[str]) -> list[Schema]:
        """The properties in two parts. Some are in both."""
        sides: list[Schema] = [{}, {}]
        for name, item in properties.items():
            side = self._random.randrange(2)
            sides[side][name] = item
            if self._random.random() < 0.1:
                sides[1 - side][name] = item
        of = [[name for name in required if name in side or self._random.random() < 0.1] for side in sides]
        return [{"properties": side, "required": names} for side, names in zip(sides, of, strict=True)]

    def _one_of(self, node: Node) -> Schema:
        branches = [self._branch(n) for n in node.inner]
        if all(set(branch) == {"type"} for branch in branches) and node.form & 64:
            self.drawn.add("json-schema types")
            return {"type": [branch["type"] for branch in branches]}
        word = "anyOf" if node.form & 128 else "oneOf"
        self.drawn.add(f"json-schema {word}")
        return {word: branches}

    def _branch(self, node: Node) -> Schema:
        match node.kind:
            case "one-of":
                self.drawn.add("json-schema union in a union")
                return {"anyOf" if node.form & 128 else "oneOf": [self._branch(n) for n in node.inner]}
            case "struct":
                made: Schema = {"type": "object", "properties": {n.name: self._branch(n) for n in node.inner}}
                required = [n.name for n in node.inner if not n.optional]
                found = made | ({"required": required} if required else {})
            case "list":
                found = {"type": "array", "items": self._branch(node.inner[0])}
            case _:
                found = {"type": SIMPLE[node.kind]}
                if node.default:
                    found = {"const": node.default} if node.form & 1 else {"type": "string", "enum": [node.default]}
        if node.kind in ("struct", "list") and node.form & 2:
            return self._told(found, {}, False)
        return found


def _has_default(node: Node) -> bool:
    return any(n.default is not None or _has_default(n) for n in node.inner)
