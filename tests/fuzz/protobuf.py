"""Schemas of ``nodes`` as Protobuf. Bits of a node's form choose what is rare: see ``Form``."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from google.protobuf import descriptor_pb2

from tests.fuzz import protobuf_known
from tests.fuzz.encoding import SchemaText
from tests.fuzz.meanings import SCALED
from tests.fuzz.nodes import Node

_F = descriptor_pb2.FieldDescriptorProto
TYPES = {
    "boolean": (_F.TYPE_BOOL,),
    "int": (_F.TYPE_SINT32, _F.TYPE_INT32, _F.TYPE_SFIXED32),
    "long": (_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64),
    "uint32": (_F.TYPE_UINT32, _F.TYPE_FIXED32),
    "uint64": (_F.TYPE_UINT64, _F.TYPE_FIXED64),
    "float": (_F.TYPE_FLOAT,),
    "double": (_F.TYPE_DOUBLE,),
    "string": (_F.TYPE_STRING,),
    "bytes": (_F.TYPE_BYTES,),
}
WRAPPERS = {
    "boolean": ("BoolValue", _F.TYPE_BOOL),
    "int": ("Int32Value", _F.TYPE_INT32),
    "long": ("Int64Value", _F.TYPE_INT64),
    "uint32": ("UInt32Value", _F.TYPE_UINT32),
    "uint64": ("UInt64Value", _F.TYPE_UINT64),
    "float": ("FloatValue", _F.TYPE_FLOAT),
    "double": ("DoubleValue", _F.TYPE_DOUBLE),
    "string": ("StringValue", _F.TYPE_STRING),
    "bytes": ("BytesValue", _F.TYPE_BYTES),
}
_COLORS = (("RED", 0), ("CRIMSON", 0), ("GREEN", 1), ("BLUE", 2), ("VERT", 1), ("ROUGE", 0))
"""Names of the numbers; the first of each is one of ``ENUM``."""
_DEFAULTS = {"boolean": "true", "int": "5", "long": "5", "double": "0.5", "string": "none", "enum": "BLUE"}
_KNOWN = ("timestamp", "wrappers")
_SCALED = SCALED.rpartition(".")[2]
_FAR = 2**29 - 1
"""The greatest number of a field."""


class Form:
    """Bits of the record's form, of a message's, and of a field's."""

    PROTO2 = 1
    WRAPPED, GROUP, PACKED, DEFAULT = 1, 2, 4, 8
    PLACE = 32 | 64
    NUMBERS = 256 | 512
    IMPORT = 1024


def is_wrapped(node: Node) -> bool:
    return bool(node.form & Form.WRAPPED) and node.kind in WRAPPERS and not node.mean


def is_group(node: Node, proto2: bool) -> bool:
    return proto2 and bool(node.form & Form.GROUP) and node.kind == "struct" and not node.mean


def is_packable(node: Node) -> bool:
    return not is_wrapped(node) and node.kind in (*TYPES, "enum") and node.kind not in ("string", "bytes")


def numbered(node: Node) -> list[tuple[int, Node]]:
    """The fields of a message with their numbers."""
    count, way = len(node.inner), (node.form & Form.NUMBERS) // 256
    numbers = [*range(1, count + 1)]
    if way == 1:
        numbers = [number * 15 for number in numbers]
    elif way == 2:
        numbers = [*reversed(numbers)]
    elif way == 3:
        numbers[-1] = _FAR
    return [*zip(numbers, node.inner, strict=True)]


def path_of(node: Node) -> tuple[int, ...]:
    """Where the record's message is in its file."""
    if not node.form:
        return (int(len(node.inner) % 2 == 0),)
    return ((0,), (1,), (0, 1), (1, 0, 0))[(node.form & Form.PLACE) // 32]


def schema(node: Node) -> SchemaText:
    """A file, serialized, in base64."""
    writer = _File(node)
    references = [("common.proto", _text(writer.common))] if writer.common is not writer.file else []
    return SchemaText(_text(writer.file), references=tuple(references), drawn=frozenset(writer.drawn))


def _text(file: Any) -> str:
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


class _File:
    def __init__(self, node: Node) -> None:
        self._proto2 = bool(node.form & Form.PROTO2)
        syntax = "proto2" if self._proto2 else "proto3"
        imports = [f"google/protobuf/{name}.proto" for name in _KNOWN]
        self.file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax=syntax, dependency=imports)
        self.common = self.file
        self.drawn: set[str] = {"protobuf 2"} if self._proto2 else set()
        if node.form & Form.IMPORT:
            self.drawn.add("protobuf import")
            self.common = descriptor_pb2.FileDescriptorProto(name="common.proto", package="t", syntax=syntax)
            self.file.dependency.append("common.proto")
        self._known: dict[Node, str] = {}
        self._colors()
        path = path_of(node)
        self.drawn |= {"protobuf nested message"} if len(path) > 1 else set()
        messages, prefix = self.file.message_type, ".t."
        for place in path[:-1]:
            for number in range(place + 1):
                outer = messages.add(name=f"Outer{number}")
            messages, prefix = outer.nested_type, f"{prefix}{outer.name}."
        for number in range(path[-1]):
            messages.add(name=f"Before{number}")
        self._message(messages.add(name="R"), node, f"{prefix}R")
        scaled = self.common.message_type.add(name=_SCALED)
        scaled.field.add(name="scale", number=1, type=_F.TYPE_INT32, label=_F.LABEL_OPTIONAL)
        scaled.field.add(name="value", number=2, type=_F.TYPE_BYTES, label=_F.LABEL_OPTIONAL)

    def _colors(self) -> None:
        colors = self.common.enum_type.add(name="Color")
        colors.options.allow_alias = True
        for name, number in _COLORS:
            colors.value.add(name=name, number=number)

    def _message(self, message: Any, node: Node, path: str) -> None:
        choices: dict[int, int] = {}
        for number, field in numbered(node):
            inner, repeated = field, field.kind == "list"
            if repeated:
                inner = field.inner[0]
            made = message.field.add(name=field.name, number=number)
            made.label = _F.LABEL_REPEATED if repeated or field.kind == "map" else _F.LABEL_OPTIONAL
            self._type(message, made, inner, f"{path}.", f"N{number}")
            if repeated and is_packable(inner) and field.form & Form.PACKED:
                made.options.packed = self._proto2
                self.drawn.add("protobuf packed or not")
            if field.scale:
                if field.scale not in choices:
                    choices[field.scale] = len(message.oneof_decl)
                    message.oneof_decl.add(name=f"choice_{field.scale}")
                made.oneof_index = choices[field.scale]
                self.drawn.add("protobuf oneof")
            elif self._proto2 and not repeated and field.kind != "map":
                self._of_proto2(made, field)
            elif field.optional and made.type != _F.TYPE_MESSAGE:
                made.proto3_optional = not self._proto2
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _of_proto2(self, made: Any, field: Node) -> None:
        if not field.optional:
            made.label = _F.LABEL_REQUIRED
            self.drawn.add("protobuf required")
        elif field.form & Form.DEFAULT and field.kind in _DEFAULTS and made.type != _F.TYPE_MESSAGE:
            made.default_value = _DEFAULTS[field.kind]
            self.drawn.add("protobuf default")

    def _type(self, message: Any, made: Any, node: Node, path: str, name: str) -> None:
        match node.kind:
            case "struct" if node.mean:
                made.type, made.type_name = _F.TYPE_MESSAGE, f".t.{_SCALED}"
            case "struct":
                self._of_struct(message, made, node, path + name)
            case "map":
                self._of_map(message, made, node.inner, path, name)
            case "timestamp-micros":
                made.type, made.type_name = _F.TYPE_MESSAGE, ".google.protobuf.Timestamp"
            case "enum":
                made.type, made.type_name = _F.TYPE_ENUM, ".t.Color"
            case _ if node.kind in protobuf_known.TYPES:
                file, name = protobuf_known.TYPES[node.kind]
                self.drawn.add(f"protobuf {name.rpartition('.')[2]}")
                self.drawn |= {"protobuf decimal of no scale"} if node.kind == "decimal-text" else set()
                made.type, made.type_name = _F.TYPE_MESSAGE, name
                made.options.MergeFromString(protobuf_known.options(node))
                if file not in self.file.dependency:
                    self.file.dependency.append(file)
            case _ if is_wrapped(node):
                self.drawn.add("protobuf wrapper")
                made.type, made.type_name = _F.TYPE_MESSAGE, f".google.protobuf.{WRAPPERS[node.kind][0]}"
            case _:
                made.type = scalar_type(node)

    def _of_struct(self, message: Any, made: Any, node: Node, path: str) -> None:
        made.type = _F.TYPE_GROUP if is_group(node, self._proto2) else _F.TYPE_MESSAGE
        key = replace(node, name="", optional=False, scale=0, make=None)
        if made.type == _F.TYPE_GROUP:
            self.drawn.add("protobuf group")
        elif node.form and key in self._known:
            self.drawn.add("protobuf type named again")
            made.type_name = self._known[key]
            return
        made.type_name = path
        self._message(message.nested_type.add(name=path.rpartition(".")[2]), node, path)
        if made.type != _F.TYPE_GROUP:
            self._known[key] = path

    def _of_map(self, message: Any, made: Any, parts: Sequence[Node], path: str, name: str) -> None:
        self.drawn |= {"protobuf map of other keys"} if parts[0].kind != "string" else set()
        entry_name = "".join(part.capitalize() for part in made.name.split("_")) + "Entry"
        made.type, made.type_name = _F.TYPE_MESSAGE, path + entry_name
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        for number, (part, inner) in enumerate(zip(("key", "value"), parts, strict=True), 1):
            field = entry.field.add(name=part, number=number, label=_F.LABEL_OPTIONAL)
            self._type(message, field, in_map(inner), path, f"{name}V")


def in_map(node: Node) -> Node:
    """A map's key is no message, and its value no group."""
    keeps = ~Form.WRAPPED if node.name == "key" else ~Form.GROUP
    return replace(node, form=node.form & keeps)


def scalar_type(node: Node) -> int:
    types = TYPES[node.kind]
    return types[node.size.bit_length() % len(types)]
