"""Values of ``nodes`` as Protobuf in Confluent's wire format. The bytes are made here, by the encoding's specification."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from google.protobuf import descriptor_pb2

from tests.fuzz import nodes, protobuf_known
from tests.fuzz.encoding import schema_id
from tests.fuzz.forms import Pairs
from tests.fuzz.meanings import bare
from tests.fuzz.nodes import ENUM, Node
from tests.fuzz.protobuf import (
    WRAPPERS,
    Form,
    in_map,
    is_group,
    is_packable,
    is_wrapped,
    numbered,
    path_of,
    scalar_type,
)
from tests.fuzz.protobuf_bytes import EIGHT, END, FOUR, SIZED, START, VARINT, sized, tag, varint

_F = descriptor_pb2.FieldDescriptorProto
_FIXED: dict[int, str] = {
    _F.TYPE_FIXED32: "<I",
    _F.TYPE_SFIXED32: "<i",
    _F.TYPE_FLOAT: "<f",
    _F.TYPE_FIXED64: "<Q",
    _F.TYPE_SFIXED64: "<q",
    _F.TYPE_DOUBLE: "<d",
}
_UNKNOWN = 18_000


def encoder(text: str, node: Node) -> Callable[[Any], bytes]:
    """Makes values of a schema, with their header."""
    path = path_of(node)
    indexes = b"\0" if path == (0,) else b"".join(varint(part << 1) for part in (len(path), *path))
    header = struct.pack(">bI", 0, schema_id(text)) + indexes
    writer = _Writer(Random(text), bool(node.form & Form.PROTO2))
    return lambda value: header + b"".join(writer.message(node, value))


def _scalar(kind: int, value: Any) -> tuple[int, bytes]:
    """The wire type and the bytes."""
    if kind in _FIXED:
        raw = struct.pack(_FIXED[kind], value)
        return (FOUR if len(raw) == 4 else EIGHT), raw
    if kind in (_F.TYPE_STRING, _F.TYPE_BYTES):
        raw = value.encode() if isinstance(value, str) else value
        return SIZED, varint(len(raw)) + raw
    if kind in (_F.TYPE_SINT32, _F.TYPE_SINT64):
        value = (value << 1) ^ (value >> 63)
    return VARINT, varint(int(value))


class _Writer:
    def __init__(self, random: Random, proto2: bool) -> None:
        self._random, self._proto2 = random, proto2

    def message(self, node: Node, value: Any) -> list[bytes]:
        """The fields of a message, one after the other."""
        value, groups = bare(value), []
        for number, field in numbered(node):
            item = value[field.name]
            if item is not None:
                lost = self._losers(node, field) if field.scale and node.form else []
                groups.append([*lost, *self._field(number, field, item, rare=node.form != 0)])
        if node.form:
            if self._random.random() < 0.15:
                groups.append([self._unknown()])
            if self._random.random() < 0.3:
                self._random.shuffle(groups)
        return [chunk for group in groups for chunk in group]

    def _losers(self, node: Node, field: Node) -> list[bytes]:
        """Other fields of the same oneof, which the last one replaces."""
        if self._random.random() < 0.8:
            return []
        number, other = self._random.choice([(n, f) for n, f in numbered(node) if f.scale == field.scale])
        is_message = other.kind in ("struct", "timestamp-micros") or is_wrapped(other)
        if is_message and other.name == field.name:  # a message merges with what comes later
            return []
        lost = settled(self._random, other, nodes.value(self._random, replace(other, optional=False)))
        return self._field(number, other, lost, rare=False)

    def _unknown(self) -> bytes:
        number, raw = _UNKNOWN + self._random.randrange(5), self._random.randbytes(4)
        inner = tag(1, VARINT) + b"\5" + sized(2, raw)
        return self._random.choice(
            (
                tag(number, VARINT) + varint(2**63 + 5),
                tag(number, EIGHT) + raw * 2,
                tag(number, FOUR) + raw,
                sized(number, raw),
                tag(number, START) + inner + tag(number, END),
            )
        )

    def _field(self, number: int, node: Node, value: Any, *, rare: bool) -> list[bytes]:
        """``rare``: some are written twice, in parts, or although they have the value that is implied."""
        if node.kind in protobuf_known.TYPES:
            return [sized(number, protobuf_known.body(node, value))]
        match node.kind:
            case "list" if is_packable(node.inner[0]):
                return self._packable(number, node, value)
            case "list":
                return [self._single(number, node.inner[0], item, rare) for item in value]
            case "map":
                return self._entries(number, node.inner, value, rare=rare)
            case "struct" if (
                rare and not node.mean and not is_group(node, self._proto2) and self._random.random() < 0.1
            ):
                chunks = self.message(node, value)
                cut = self._random.randint(0, len(chunks))
                return [sized(number, b"".join(part)) for part in (chunks[:cut], chunks[cut:])]
        has_presence = self._proto2 or node.optional or node.kind in ("struct", "timestamp-micros") or is_wrapped(node)
        twice = rare and not node.scale and node.kind != "struct" and self._random.random() < 0.08
        if not has_presence and _is_implied(node, value) and not twice and not (rare and self._random.random() < 0.3):
            return []
        once = self._single(number, node, value, rare and not twice)
        if not twice:
            return [once]
        before = nodes.value(self._random, replace(node, optional=False))
        return [self._single(number, node, before, False), once]

    def _packable(self, number: int, node: Node, value: Sequence[Any]) -> list[bytes]:
        inner = node.inner[0]
        scalars = [_scalar(_type(inner), _plain(inner, item)) for item in value]
        packed = self._proto2 == bool(node.form & Form.PACKED)
        cut = self._random.randint(0, len(scalars)) if node.form and self._random.random() < 0.2 else len(scalars)
        found: list[bytes] = []
        for part in (scalars[:cut], scalars[cut:]):
            if packed and part:
                found.append(sized(number, b"".join(raw for _, raw in part)))
            elif part:
                found += [tag(number, wire) + raw for wire, raw in part]
            packed = not packed
        return found

    def _entries(self, number: int, parts: Sequence[Node], pairs: Sequence[Any], *, rare: bool) -> list[bytes]:
        key, item = map(in_map, parts)
        found = []
        for k, v in pairs:
            name, implied = self._single(1, key, k, False), _is_implied(key, k)
            whole = [b"" if rare and implied and self._random.random() < 0.3 else name, self._single(2, item, v, False)]
            if rare and item.kind in ("int", "long", "string", "boolean", "double") and not is_wrapped(item):
                if self._random.random() < 0.05:
                    before = nodes.value(self._random, replace(item, optional=False))
                    found.append(sized(number, name + self._single(2, item, before, False)))
                if _is_implied(item, v) and self._random.random() < 0.3:
                    whole[1] = b""
                if self._random.random() < 0.2:
                    whole.reverse()
            found.append(sized(number, b"".join(whole)))
        return found

    def _single(self, number: int, node: Node, value: Any, rare: bool) -> bytes:
        match node.kind:
            case "struct" if node.mean:
                fields = bare(value)
                return sized(number, tag(1, VARINT) + varint(fields["scale"]) + sized(2, fields["value"]))
            case "struct" if is_group(node, self._proto2):
                return tag(number, START) + b"".join(self.message(node, value)) + tag(number, END)
            case "struct":
                return sized(number, b"".join(self.message(node, value)))
            case "timestamp-micros":
                seconds, micros = divmod(value.micros, 1_000_000)
                return sized(number, tag(1, VARINT) + varint(seconds) + tag(2, VARINT) + varint(micros * 1000))
        if is_wrapped(node):
            wire, raw = _scalar(WRAPPERS[node.kind][1], value)
            is_empty = rare and _is_implied(node, value)
            return sized(number, b"" if is_empty else tag(1, wire) + raw)
        wire, raw = _scalar(_type(node), _plain(node, value))
        return tag(number, wire) + raw


def settled(random: Random, node: Node, value: Any) -> Any:
    """A message of which at most one field of each oneof is set."""
    match node.kind:
        case "struct" if isinstance(value, dict):
            found = {n.name: settled(random, n, value[n.name]) for n in node.inner}
            those = [n.name for n in node.inner if n.scale and found[n.name] is not None]
            kept = random.choice(those) if those else ""
            return {name: None if name in those and name != kept else item for name, item in found.items()}
        case "list":
            return [settled(random, node.inner[0], item) for item in value]
        case "map":
            return Pairs((k, settled(random, node.inner[1], item)) for k, item in value)
    return value


def _type(node: Node) -> int:
    return _F.TYPE_ENUM if node.kind == "enum" else scalar_type(node)


def _plain(node: Node, value: Any) -> Any:
    return ENUM.index(value) if node.kind == "enum" else value


def _is_implied(node: Node, value: Any) -> bool:
    """Whether a field without presence that is not written has this value."""
    if node.kind in ("float", "double"):
        return struct.pack("<d", value) == bytes(8)
    return not _plain(node, value) if node.kind in (*WRAPPERS, "enum") else False
