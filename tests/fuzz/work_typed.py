"""Records of Avro, Protobuf and JSON Schema that a loop of their decoders may dislike, for ``work``."""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache

from google.protobuf import descriptor_pb2

from calving.converters.interface import Converter, converter
from harness.registry import SchemaRegistry, framed, serialized, serving

Inputs = Iterator[tuple[str, list[bytes]]]
_F = descriptor_pb2.FieldDescriptorProto
_OPEN = ExitStack()
atexit.register(_OPEN.close)


@cache
def _registry() -> SchemaRegistry:
    return _OPEN.enter_context(serving())


@cache
def _decoder(name: str) -> tuple[Converter, int]:
    """A converter, and the id of the schema."""
    schema, kind = {
        "avro": (json.dumps(_AVRO), "AVRO"),
        "protobuf": (_protobuf(), "PROTOBUF"),
        "json-schema": (json.dumps(_JSON), "JSON"),
    }[name]
    number = _registry().register("s", schema, kind)
    return converter(name, {"schema.registry.url": _registry().url}, is_key=False), number


def decodes(name: str) -> Callable[[Sequence[bytes]], object]:
    """What a converter does with bodies of records: those of one schema, as the registry knows it."""

    def work(bodies: Sequence[bytes]) -> object:
        made, number = _decoder(name)
        return made.decode([framed(number, body) for body in bodies], None)

    return work


_AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": "string"},
        {"name": "l", "type": {"type": "array", "items": "long"}},
        {"name": "m", "type": {"type": "map", "values": "long"}},
        {"name": "u", "type": ["null", {"type": "record", "name": "N", "fields": [{"name": "x", "type": "long"}]}]},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}},
    ],
}


def zigzag(number: int) -> bytes:
    return _varint((number << 1) ^ (number >> 63))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def _avro(a: bytes = b"", l: bytes = b"\0", m: bytes = b"\0", u: bytes = b"\0", d: bytes = b"\0") -> bytes:  # noqa: E741
    return zigzag(len(a)) + a + l + m + u + zigzag(len(d)) + d


def _entry(name: str) -> bytes:
    return zigzag(len(name)) + name.encode() + b"\2"


def avro(size: int) -> Inputs:
    items, few = size, max(1, size // 12)
    yield "text", [_avro(b"x" * size)]
    yield "text that is not UTF-8", [_avro(b"\xff" * size)]
    yield "small records", [_avro()] * (size // 6)
    yield "array", [_avro(l=zigzag(items) + b"\2" * items + b"\0")]
    yield "blocks of one item", [_avro(l=b"\2\2" * (items // 2) + b"\0")]
    yield "blocks that say their size", [_avro(l=b"\1\2\2" * (items // 3) + b"\0")]
    yield "wrong sizes", [_avro(l=b"\1\4\2" * (items // 3) + b"\0")]
    yield "map", [_avro(m=zigzag(few) + b"".join(_entry(f"k{n}") for n in range(few)) + b"\0")]
    yield "one key", [_avro(m=zigzag(few) + _entry("key") * few + b"\0")]
    yield "blocks of one key", [_avro(m=(b"\2" + _entry("key")) * few + b"\0")]
    yield "too many items", [_avro(l=zigzag(1 << 40))] * (size // 12)
    yield "too long a text", [zigzag(1 << 40)] * (size // 12)
    yield "digits", [_avro(d=b"\x7f" * size)]
    yield "long numbers", [_avro(l=zigzag(items // 10) + (b"\xff" * 9 + b"\1") * (items // 10) + b"\0")]
    yield "numbers without end", [b"\xff" * size]
    yield "branches", [_avro(u=b"\2\2"), _avro()] * (size // 14)
    yield "no such branch", [_avro(u=b"\4")] * (size // 7)


def _protobuf() -> str:
    file = descriptor_pb2.FileDescriptorProto(name="w.proto", package="w", syntax="proto3")
    message = file.message_type.add(name="R")
    message.field.add(name="a", number=1, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    message.field.add(name="l", number=2, type=_F.TYPE_INT64, label=_F.LABEL_REPEATED)
    made = message.field.add(name="m", number=3, type=_F.TYPE_MESSAGE, label=_F.LABEL_REPEATED, type_name=".w.R.MEntry")
    entry = message.nested_type.add(name=made.name.upper() + "Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=_F.TYPE_INT64, label=_F.LABEL_OPTIONAL)
    message.field.add(name="o", number=4, type=_F.TYPE_MESSAGE, label=_F.LABEL_OPTIONAL, type_name=".w.N")
    inner = file.message_type.add(name="N")
    inner.field.add(name="l", number=1, type=_F.TYPE_INT64, label=_F.LABEL_REPEATED)
    inner.field.add(name="a", number=2, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    return serialized(file)


def _sized(tag: int, body: bytes) -> bytes:
    return bytes((tag << 3 | 2,)) + _varint(len(body)) + body


def protobuf(size: int) -> Inputs:
    few = max(1, size // 12)
    for name, body in {
        "text": _sized(1, b"x" * size),
        "text that is not UTF-8": _sized(1, b"\xff" * size),
        "packed": _sized(2, b"\1" * size),
        "one by one": b"\x10\1" * (size // 2),
        "packed one by one": b"\x12\1\1" * (size // 3),
        "map": b"".join(_sized(3, _sized(1, b"k%d" % n)) for n in range(few)),
        "one key": _sized(3, _sized(1, b"k") + b"\x10\1") * (size // 7),
        "entries without a key": _sized(3, b"") * (size // 2),
        "one text after another": _sized(1, b"x") * (size // 3),
        "a growing message": _sized(4, b"\x08\1") * (size // 4),
        "a message with one text after another": _sized(4, _sized(2, b"x") * (size // 3)),
        "unknown numbers": b"\x78\1" * (size // 2),
        "unknown texts": _sized(14, b"x") * (size // 3),
        "groups in groups": b"\x7b" * (size // 2) + b"\x7c" * (size // 2),
        "open groups": b"\x7b" * size,
        "groups": b"\x7b\x7c" * (size // 2),
        "numbers without end": b"\x10" + b"\xff" * size,
        "too long a text": b"\x0a" + _varint(1 << 40),
    }.items():
        yield name, [b"\0" + body]
    yield "small records", [b"\0"] * size
    yield "deep messages", [b"\0" + _sized(4, b"\x7b" * 90 + b"\x7c" * 90)] * (size // 200)
    yield "message numbers without end", [b"\xff" * size]
    yield "many message numbers", [_varint(size) + b"\0" * size]


_OBJECTS = [{"type": "object", "properties": {f"{name}{n}": {"type": "integer"} for name in "abcd"}} for n in range(12)]
_JSON = {
    "type": "object",
    "properties": {
        "a": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "l": {"type": "array", "items": {"type": "number"}},
        "m": {"type": "object", "connect.type": "map", "additionalProperties": {"type": "integer"}},
        "u": {"oneOf": [{"type": "null"}, *_OBJECTS]},
        "any": {},
    },
}


def json_schema(size: int) -> Inputs:
    few = max(1, size // 12)
    for name, body in {
        "text": '{"a":"' + "x" * size + '"}',
        "escapes": '{"a":"' + "\\u00e9" * (size // 6) + '"}',
        "array": '{"l":[' + ",".join(["1.5"] * (size // 4)) + "]}",
        "array of wrong items": '{"l":[' + ",".join(['"x"'] * (size // 4)) + "]}",
        "digits": '{"l":[' + "1" * size + "]}",
        "fraction": '{"l":[0.' + "1" * size + "]}",
        "exponent": '{"l":[1e' + "1" * size + "]}",
        "map": '{"m":{' + ",".join(f'"k{n}":1' for n in range(few)) + "}}",
        "one key": '{"m":{' + ",".join(['"k":1'] * (size // 6)) + "}}",
        "branches": '{"u":{' + ",".join(f'"a{n}":1' for n in range(few)) + "}}",
        "any": '{"any":' + "[" * 30 + ",".join(["{}"] * (size // 3)) + "]" * 30 + "}",
        "deep": '{"any":' + "[" * (size // 2) + "]" * (size // 2) + "}",
        "unknown": "{" + ",".join(f'"z{n}":1' for n in range(few)) + "}",
        "open": '{"any":' + "[" * size,
    }.items():
        yield name, [body.encode()]
    yield "small records", [b"{}"] * (size // 7)
    yield "objects", [b'{"u":{"a%d":1,"b%d":2}}' % (n % 14, n % 9) for n in range(size // 24)]


def harmless(name: str, body: bytes) -> bytes:
    """A record of the same size."""
    match name:
        case "avro":
            return _avro(b"x" * max(0, len(body) - 8))
        case "protobuf":
            return b"\0" + _sized(1, b"x" * max(0, len(body) - 6))
    return b'{"a":"' + b"x" * max(0, len(body) - 8) + b'"}'


INPUTS: dict[str, Callable[[int], Inputs]] = {"avro": avro, "protobuf": protobuf, "json-schema": json_schema}
