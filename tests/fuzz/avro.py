"""Schemas and values of ``nodes`` as Avro in Confluent's wire format. The bytes are made here, by the format's specification."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tests.fuzz.encoding import SchemaText, on_wire, schema_id, unscaled
from tests.fuzz.forms import single
from tests.fuzz.meanings import SCALED, bare
from tests.fuzz.nodes import ENUM, Node

_TEMPORAL = {
    "date": "int",
    "time-millis": "int",
    **dict.fromkeys(
        (
            "time-micros",
            *(f"{where}timestamp-{unit}" for where in ("", "local-") for unit in ("millis", "micros", "nanos")),
        ),
        "long",
    ),
}
_MAP_ENTRY = "io.confluent.connect.avro.MapEntry"


def schema(node: Node) -> SchemaText:
    """As JSON. A type that has a name is mostly defined once, and named where it comes again."""
    writer = _Writer(Random(repr(node)))
    text = json.dumps(writer.written(node, ""))
    return SchemaText(text, references=tuple(writer.references), drawn=frozenset(writer.drawn))


class _Writer:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._known: dict[Any, str] = {}
        """Full names of types by what they are."""
        self._shared: dict[Any, tuple[str, SchemaText]] = {}
        """Of those that are subjects of their own also the schemas."""
        self._names: set[str] = set()
        self.references: list[tuple[str, str]] = []
        self.drawn: set[str] = set()

    def written(self, node: Node, space: str) -> Any:
        """``space``: the namespace around the schema."""
        if node.kind == "union":
            found = [self._type(n, space, n.name) for n in node.inner]
        else:
            found = [self._type(node, space)]
        if node.optional:
            found = [*found, "null"] if _null_is_last(node) else ["null", *found]
            self.drawn |= {"avro null last"} if _null_is_last(node) else set()
        return found if node.kind == "union" or node.optional else found[0]

    def _type(self, node: Node, space: str, called: str = "") -> Any:
        """``called``: the short name that the type has to have."""
        meant = {"connect.name": node.mean, "connect.version": 1} if node.mean else {}
        match node.kind:
            case "struct" | "enum" | "fixed" | "decimal-fixed" | "uuid-fixed":
                return self._named(node, space, called)
            case "list":
                return {"type": "array", "items": self.written(node.inner[0], space)}
            case "map" if node.inner[0].kind != "string":
                return {"type": "array", "items": self._entry(node, space)}
            case "map":
                return {"type": "map", "values": self.written(node.inner[1], space)}
            case "decimal":
                return {"type": "bytes", "logicalType": "decimal", "precision": node.size, "scale": node.scale}
            case "uuid":
                return {"type": "string", "logicalType": "uuid"}
        if node.kind in _TEMPORAL:
            return {"type": _TEMPORAL[node.kind], "logicalType": node.kind}
        return {"type": node.kind} | meant if meant else node.kind

    def _entry(self, node: Node, space: str) -> Any:
        """The element of an array that Connect writes for a map whose keys are no text."""
        self.drawn.add("avro map entries")
        key, value = (replace(n, name=name) for n, name in zip(node.inner, ("key", "value"), strict=True))
        name = self._new_name("Entry", "io.confluent.connect.avro")
        named = {"name": name, "connect.internal.type": "MapEntry"}
        if _MAP_ENTRY not in self._names:
            self._names.add(_MAP_ENTRY)
            named = {"name": "MapEntry", "namespace": "io.confluent.connect.avro"}
        fields = [{"name": n.name, "type": self.written(n, "io.confluent.connect.avro")} for n in (key, value)]
        return {"type": "record", **named, "fields": fields}

    def _named(self, node: Node, space: str, called: str) -> Any:
        random, key = self._random, (called, _plain(node))
        known = self._known.get(key)
        is_debezium = node.mean == SCALED and not called
        if known is not None and ("." in known or not space) and (is_debezium or called or random.random() < 0.8):
            self.drawn.add("avro type named again")
            if key in self._shared and self._shared[key] not in self.references:
                self.references.append(self._shared[key])
            known_space, _, short = known.rpartition(".")
            return short if known_space == space and random.random() < 0.6 else known
        own = space or random.choice(("", "", "far", "far.off"))
        is_root = not self._names
        if own and random.random() < 0.3:
            own = random.choice((own, "other", f"{own}.inner"))
        if called and f"{own}.{called}".removeprefix(".") in self._names:
            own = f"{own or 'more'}.n{len(self._names)}"
        full = self._new_name(called or {"struct": "R", "enum": "E"}.get(node.kind, "F"), own)
        if is_debezium:
            own, _, full = "io.debezium.data", None, SCALED
            if full in self._names:  # of another form
                full = self._new_name("Scaled", own)
            self._names.add(full)
        self.drawn |= {"avro namespace"} if own else set()
        if own and node.kind == "struct" and not called and not is_root and random.random() < 0.3:
            return self._elsewhere(node, full, key)
        made = self._definition(node, full, own, space)
        self._known[key] = full
        return made

    def _elsewhere(self, node: Node, full: str, key: Any) -> str:
        """A record of another subject, to which the schema has a reference. It may have references of its own, also to
        what others refer to.
        """
        before, self._known = self._known, {shared: name for shared, (name, _) in self._shared.items()}
        outer, self.references = self.references, []
        made = self._definition(node, full, full.rpartition(".")[0], "")
        text = SchemaText(json.dumps(made), references=tuple(self.references))
        self.drawn |= {"avro reference within a reference"} if self.references else set()
        self._known, self.references = before | self._known | {key: full}, [*outer, (full, text)]
        self._shared[key] = full, text
        self.drawn.add("avro reference")
        return full

    def _new_name(self, short: str, space: str) -> str:
        prefix = f"{space}." if space else ""
        names = (f"{short}{number or ''}" for number in range(10_000))
        if short in "REF":
            names = (f"{short}{number}" for number in range(10_000))
        full = next(prefix + name for name in names if prefix + name not in self._names)
        self._names.add(full)
        return full

    def _definition(self, node: Node, full: str, own: str, space: str) -> dict[str, Any]:
        random, short = self._random, full.rpartition(".")[2]
        if own == space and random.random() < 0.6:
            name = {"name": short}
        else:
            name = {"name": full} if random.random() < 0.5 or not own else {"name": short, "namespace": own}
        made: dict[str, Any] = {**self._body(node, own), **name}
        if random.random() < 0.3:
            made["aliases"] = random.choice(([f"Old{short}"], ["gone.Other", f"Was{short}"]))
            self.drawn.add("avro alias")
        return made

    def _body(self, node: Node, own: str) -> dict[str, Any]:
        match node.kind:
            case "struct":
                meant = {"connect.name": node.mean, "connect.version": 1} if node.mean else {}
                return {"type": "record", "fields": [self._field(n, node.inner, own) for n in node.inner]} | meant
            case "enum":
                default = {"default": ENUM[0]} if self._random.random() < 0.3 else {}
                return {"type": "enum", "symbols": list(ENUM)} | default
            case "fixed":
                return {"type": "fixed", "size": node.size}
            case "uuid-fixed":
                return {"type": "fixed", "size": 16, "logicalType": "uuid"}
        digits = {"logicalType": "decimal", "precision": node.size, "scale": node.scale}
        return {"type": "fixed", "size": _fixed_size(node)} | digits

    def _field(self, node: Node, beside: Sequence[Node], own: str) -> dict[str, Any]:
        random = self._random
        made: dict[str, Any] = {"name": node.name, "type": self.written(node, own)}
        if random.random() < 0.15:
            # The writer's aliases say nothing about its own values, whatever they are called.
            made["aliases"] = [random.choice((f"old_{len(beside)}", beside[0].name))]
            self.drawn.add("avro alias")
        simple = {"long": 5, "int": 5, "string": "none", "boolean": True, "double": 0.5}
        if random.random() < 0.2 and node.optional and not _null_is_last(node):
            made["default"] = None
            self.drawn.add("avro default")
        elif random.random() < 0.2 and node.kind in simple and (not node.optional or _null_is_last(node)):
            made["default"] = simple[node.kind]
            self.drawn.add("avro default")
        return made


def _plain(node: Node) -> Any:
    """What a type is, whatever it is called, and whether it is optional where it stands."""
    inner = tuple((n.name, n.optional, _null_is_last(n), _plain(n)) for n in node.inner)
    return node.kind, node.size, node.scale, node.mean, inner


def _null_is_last(node: Node) -> bool:
    return node.optional and bool(node.form & 1)


def _fixed_size(node: Node) -> int:
    """Bytes of a decimal."""
    most: int = 10**node.size
    return most.bit_length() // 8 + 1


def encoder(text: str, node: Node) -> Callable[[Any], bytes]:
    """Makes values, with their header."""
    header = struct.pack(">bI", 0, schema_id(text))
    return lambda value: header + b"".join(_bytes(node, value))


def bodies(text: str, node: Node) -> Callable[[Any], bytes]:
    """Makes values without a header."""
    return lambda value: b"".join(_bytes(node, value))


def _long(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def _sized(raw: bytes) -> bytes:
    return _long(len(raw)) + raw


def _bytes(node: Node, value: Any) -> Iterator[bytes]:
    branches = len(node.inner) if node.kind == "union" else 1
    if value is None:
        yield _long(branches if _null_is_last(node) else 0)
        return
    value, first = bare(value), int(node.optional and not _null_is_last(node))
    if node.kind == "union":
        place, chosen = next((i, n) for i, n in enumerate(node.inner) if value[n.name] is not None)
        yield _long(place + first)
        yield from _bytes(chosen, value[chosen.name])
        return
    if node.optional:
        yield _long(first)
    match node.kind:
        case "struct":
            for inner in node.inner:
                yield from _bytes(inner, value[inner.name])
        case "list":
            yield from _blocks(node, [b"".join(_bytes(node.inner[0], item)) for item in value])
        case "map":
            key, item = node.inner
            yield from _blocks(node, [b"".join((*_bytes(key, k), *_bytes(item, v))) for k, v in value])
        case _:
            yield _primitive(node, value)


def _blocks(node: Node, items: Sequence[bytes]) -> Iterator[bytes]:
    """In one block or in several, with their bytes in front or without."""
    size = 1 if node.form & 2 else len(items)
    for start in range(0, len(items), size or 1):
        block = items[start : start + size]
        yield _long(-len(block)) + _long(sum(map(len, block))) if node.form & 4 else _long(len(block))
        yield from block
    yield b"\0"


def _primitive(node: Node, value: Any) -> bytes:
    match node.kind:
        case "boolean":
            return b"\1" if value else b"\0"
        case "float":
            return struct.pack("<f", single(value))
        case "double":
            return struct.pack("<d", value)
        case "string":
            return _sized(value.encode())
        case "bytes":
            return _sized(value)
        case "fixed":
            raw: bytes = value
            return raw
        case "enum":
            return _long(ENUM.index(value))
        case "decimal":
            return _sized(unscaled(value, node.scale))
        case "decimal-fixed":
            digits = unscaled(value, node.scale)
            return digits.rjust(_fixed_size(node), b"\xff" if digits[0] & 0x80 else b"\0")
        case "uuid":
            return _sized(str(value).encode())
        case "uuid-fixed":
            of_uuid: bytes = value.bytes
            return of_uuid
    return _long(on_wire(node, value))
