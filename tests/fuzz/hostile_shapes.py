"""Hostile shapes: schemas with records that are made for them, so that few bytes cost what a reader spends most on.

Each shape has a size at random, up to what Kafka takes by default.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from google.protobuf import descriptor_pb2

from harness.registry import serialized
from tests.fuzz.work_typed import zigzag

LONGEST = 950_000
"""Bytes of a record. Kafka's brokers take 1 MiB, unless somebody tells them to."""
F = descriptor_pb2.FieldDescriptorProto
NULLS = 8
"""The most parts without bytes that an element of an array of Avro may have for each part with bytes."""


class Shape(NamedTuple):
    """A schema's text, and a record's body. For Connect's envelope, ``body`` is the whole record."""

    form: str
    text: str
    body: bytes


def oneof(chance: Random, many: int) -> Shape:
    """Two wide messages of one oneof, set in turns."""
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="o", syntax="proto3")
    root = file.message_type.add(name="R")
    root.oneof_decl.add(name="x")
    for number, name in enumerate("AB", 1):
        field = root.field.add(name=name.lower(), number=number, type=F.TYPE_MESSAGE, label=F.LABEL_OPTIONAL)
        field.type_name, field.oneof_index = f".o.{name}", 0
        _wide(file, name, 2_000)
    return Shape("protobuf", serialized(file), b"\0" + b"\x0a\0\x12\0" * (many // 4))


def extension(chance: Random, many: int) -> Shape:
    """Wide messages in a list that another message declares."""
    file = descriptor_pb2.FileDescriptorProto(name="e.proto", package="e", syntax="proto2")
    root = file.message_type.add(name="R")
    root.field.add(name="a", number=1, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
    root.extension_range.add(start=100, end=200)
    _wide(file, "A", 4_000)
    place = chance.choice((file, file.message_type[1]))
    added = place.extension.add(name="e", number=100, type=F.TYPE_MESSAGE, label=F.LABEL_REPEATED, extendee=".e.R")
    added.type_name = ".e.A"
    return Shape("protobuf", serialized(file), b"\0" + b"\xa2\x06\0" * (many // 3))


def enum(chance: Random, many: int) -> Shape:
    """One name of many, many times."""
    file = descriptor_pb2.FileDescriptorProto(name="n.proto", package="n", syntax="proto3")
    names = file.enum_type.add(name="E")
    for number in range(40_000):
        names.value.add(name=f"A{number}", number=number)
    field = file.message_type.add(name="M").field.add(name="a", number=1, type=F.TYPE_ENUM, label=F.LABEL_REPEATED)
    field.type_name = ".n.E"
    return Shape("protobuf", serialized(file), b"\0\x0a" + _varint(many) + bytes([chance.choice((1, 127))]) * many)


def nulls(chance: Random, many: int) -> Shape:
    """Elements of a byte each, with records of nulls in them."""
    inner = [{"type": "record", "name": f"X{i}", "fields": [{"name": "n", "type": "null"}]} for i in range(NULLS)]
    fields = [{"name": f"e{i}", "type": one} for i, one in enumerate(["boolean", *inner])]
    element = {"type": "record", "name": "E", "fields": fields}
    array = {"type": chance.choice(("array", "array", "map")), "items": element, "values": element}
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": array}]})
    return Shape("avro", text, zigzag(many) + bytes(many) + b"\0")


def names(chance: Random, many: int) -> Shape:
    """Fields that are no columns, where there are many columns."""
    fields = [{"field": f"f{i:04}", "type": "int32", "optional": True} for i in range(4_900)]
    head = b'{"schema":' + json.dumps({"type": "struct", "fields": fields}).encode() + b',"payload":{'
    other = chance.choice((b'"x1234":0,', b'"f":0,'))
    return Shape("connect", "", head + other * (max(0, many - len(head)) // len(other)) + b'"f0001":1}}')


SHAPES: tuple[Callable[[Random, int], Shape], ...] = (oneof, extension, enum, nulls, names)


def shape(chance: Random) -> Shape:
    return chance.choice(SHAPES)(chance, LONGEST if chance.random() < 0.8 else chance.randint(1, LONGEST))


def _wide(file: descriptor_pb2.FileDescriptorProto, name: str, columns: int) -> None:
    message = file.message_type.add(name=name)
    for number in range(1, columns + 1):
        message.field.add(name=f"f{number}", number=number, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)


def _varint(number: int) -> bytes:
    low = bytes([number & 0x7F])
    return low if number < 0x80 else bytes([low[0] | 0x80]) + _varint(number >> 7)
