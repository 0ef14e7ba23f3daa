"""Schemas and values of ``nodes`` as Protobuf in Confluent's wire format."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from tests.fuzz.encoding import schema_id
from tests.fuzz.meanings import SCALED, bare
from tests.fuzz.nodes import ENUM, Node

_F = descriptor_pb2.FieldDescriptorProto
_TYPES = {
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
_COLORS = (("RED", 0), ("CRIMSON", 0), ("GREEN", 1), ("BLUE", 2), ("VERT", 1), ("ROUGE", 0))
"""Names of the numbers; the first of each is one of ``ENUM``."""
_TIMESTAMP = ".google.protobuf.Timestamp"


def schema(node: Node) -> str:
    """A file with the message ``t.R``, serialized, in base64."""
    imports = ["google/protobuf/timestamp.proto"]
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3", dependency=imports)
    colors = file.enum_type.add(name="Color")
    colors.options.allow_alias = True
    for name, number in _COLORS:
        colors.value.add(name=name, number=number)
    scaled = file.message_type.add(name=_SCALED) if _is_second(node) else None
    _message(file.message_type.add(name="R"), node, ".t.R")
    scaled = scaled or file.message_type.add(name=_SCALED)
    scaled.field.add(name="scale", number=1, type=_F.TYPE_INT32, label=_F.LABEL_OPTIONAL)
    scaled.field.add(name="value", number=2, type=_F.TYPE_BYTES, label=_F.LABEL_OPTIONAL)
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


_SCALED = SCALED.rpartition(".")[2]


def _is_second(node: Node) -> bool:
    """Whether the record's message is the second of its file."""
    return len(node.inner) % 2 == 0


def _message(message: Any, node: Node, path: str) -> None:
    for number, field in enumerate(node.inner, 1):
        inner, repeated = field, field.kind == "list"
        if repeated:
            inner = field.inner[0]
        made = message.field.add(name=field.name, number=number)
        made.label = _F.LABEL_REPEATED if repeated or field.kind == "map" else _F.LABEL_OPTIONAL
        _type(message, made, inner, f"{path}.", f"N{number}")
        if field.optional and field.kind not in ("struct", "timestamp-micros"):
            made.proto3_optional = True
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _type(message: Any, made: Any, node: Node, path: str, name: str) -> None:
    match node.kind:
        case "struct" if node.mean:
            made.type, made.type_name = _F.TYPE_MESSAGE, f".t.{_SCALED}"
        case "struct":
            made.type, made.type_name = _F.TYPE_MESSAGE, path + name
            _message(message.nested_type.add(name=name), node, path + name)
        case "map":
            entry_name = "".join(part.capitalize() for part in made.name.split("_")) + "Entry"
            made.type, made.type_name = _F.TYPE_MESSAGE, path + entry_name
            entry = message.nested_type.add(name=entry_name)
            entry.options.map_entry = True
            for number, (part, inner) in enumerate(zip(("key", "value"), node.inner, strict=True), 1):
                field = entry.field.add(name=part, number=number, label=_F.LABEL_OPTIONAL)
                _type(message, field, inner, path, f"{name}V")
        case "timestamp-micros":
            made.type, made.type_name = _F.TYPE_MESSAGE, _TIMESTAMP
        case "enum":
            made.type, made.type_name = _F.TYPE_ENUM, ".t.Color"
        case _:
            types = _TYPES[node.kind]
            made.type = types[node.size.bit_length() % len(types)]


def encoder(text: str, node: Node) -> Callable[[Any], bytes]:
    """Makes values of a schema, with their header."""
    pool = descriptor_pool.DescriptorPool()
    known = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    pool.Add(known)
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text)))
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("t.R"))
    header = struct.pack(">bI", 0, schema_id(text)) + (b"\2\2" if _is_second(node) else b"\0")

    def encode(value: Any) -> bytes:
        message = made()
        _fill(message, node, value)
        body: bytes = made.SerializeToString(message)
        return header + body

    return encode


def _fill(message: Any, node: Node, value: Any) -> None:
    type(message).SetInParent(message)
    value = bare(value)
    for field in node.inner:
        item = value[field.name]
        if item is None:
            continue
        there = getattr(message, field.name)
        match field.kind:
            case "list":
                for one in item:
                    if field.inner[0].kind in ("struct", "timestamp-micros"):
                        _set(there.add(), field.inner[0], one)
                    else:
                        there.append(_scalar(field.inner[0], one))
            case "map":
                for key, one in item:
                    if field.inner[1].kind in ("struct", "timestamp-micros"):
                        _set(there[key], field.inner[1], one)
                    else:
                        there[key] = _scalar(field.inner[1], one)
            case "struct" | "timestamp-micros":
                _set(there, field, item)
            case _:
                setattr(message, field.name, _scalar(field, item))


def _set(message: Any, node: Node, value: Any) -> None:
    if node.kind == "struct":
        _fill(message, node, value)
        return
    message.SetInParent()
    message.seconds, micros = divmod(value.micros, 1_000_000)
    message.nanos = micros * 1000


def _scalar(node: Node, value: Any) -> Any:
    return ENUM.index(value) if node.kind == "enum" else value
