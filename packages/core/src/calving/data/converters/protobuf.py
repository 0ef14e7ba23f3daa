"""Protobuf with a schema registry (Confluent's wire format)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from calving.data.conversion.kinds import JSON
from calving.data.converters.building import Reading, collect
from calving.data.converters.interface import Converter, Decoded, Wish, stage
from calving.data.converters.schemas import BODY, Registry, UnknownSchemaError, schema_id
from calving.data.records import Bad

_GOOGLE = "google.protobuf."
_WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")


class ProtobufConverter(Converter):
    """Fields become columns of their names. An enum is its value's name, a oneof is its fields, side by side.

    A scalar without presence (plain proto3) is never null; every column is optional nevertheless, so that a message
    without the field still fits. ``google.protobuf.Struct``, ``Value``, ``ListValue`` and ``Any`` are JSON text.
    """

    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None:
        self._stage = stage(is_key)
        self._registry = Registry(options, is_key=is_key)
        self._pools: dict[int, tuple[Any, str]] = {}
        self._messages: dict[tuple[int, tuple[int, ...]], _Message] = {}

    def decode(self, values: Sequence[bytes], wish: Wish | None) -> Decoded:
        decoded = Decoded()
        groups: dict[tuple[int, tuple[int, ...]], tuple[list[int], list[bytes]]] = {}
        for i, value in enumerate(values):
            try:
                number = schema_id(value)
                path, body = _message_path(value, BODY)
            except ValueError as error:
                decoded.bad.append(Bad(i, self._stage, "ValueError", str(error)))
                continue
            places, bodies = groups.setdefault((number, path), ([], []))
            places.append(i)
            bodies.append(value[body:])
        for key, (places, bodies) in groups.items():
            try:
                message = self._message(*key)
            except (UnknownSchemaError, ValueError, TypeError, KeyError, IndexError) as error:
                reason = f"Protobuf schema {key[0]}, message {list(key[1])}: {error}"
                decoded.bad += [Bad(i, self._stage, type(error).__name__, reason) for i in places]
                continue
            collect(decoded, message.reading, bodies, places, self._stage, message.load)
        return decoded

    def _message(self, number: int, path: tuple[int, ...]) -> _Message:
        found = self._messages.get((number, path))
        if found is None:
            pool, name = self._pool(number)
            file = pool.FindFileByName(name)
            descriptor = list(file.message_types_by_name.values())[path[0]]
            for inner in path[1:]:
                descriptor = descriptor.nested_types[inner]
            found = self._messages[number, path] = _Message(descriptor)
        return found

    def _pool(self, number: int) -> tuple[Any, str]:
        if number not in self._pools:
            from google.protobuf import descriptor_pb2, descriptor_pool

            pool = descriptor_pool.DescriptorPool()
            schema = self._registry.schema(number, "serialized")
            name = f"calving/{number}.proto"
            self._add(pool, schema, name, descriptor_pb2.FileDescriptorProto, set())
            self._pools[number] = pool, name
        return self._pools[number]

    def _add(self, pool: Any, schema: Any, name: str, make: Callable[[], Any], done: set[str]) -> None:
        """The file of a schema, after those that it imports."""
        if name in done:
            return
        done.add(name)
        file = make()
        file.MergeFromString(base64.b64decode(schema.schema_str))
        file.name = name
        for reference in schema.references or ():
            found = self._registry.referenced(reference.subject, reference.version, "serialized")
            self._add(pool, found, reference.name, make, done)
        for dependency in file.dependency:
            if dependency.startswith("google/protobuf/") and dependency not in done:
                done.add(dependency)
                pool.Add(_well_known(dependency, make))
        pool.Add(file)


def _well_known(name: str, make: Callable[[], Any]) -> Any:
    import importlib

    module = importlib.import_module(name.replace("/", ".").removesuffix(".proto") + "_pb2")
    file = make()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def _message_path(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Which message of the schema's file, by indices, and where the body starts."""
    count, at = _zigzag(value, at)
    if count == 0:
        return (0,), at
    path = []
    if not 0 < count < 100:
        raise ValueError(f"not in the schema registry's Protobuf format: {count} message indexes")
    for _ in range(count):
        index, at = _zigzag(value, at)
        path.append(index)
    return tuple(path), at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(value) or shift > 63:
            raise ValueError("not in the schema registry's Protobuf format: its message indexes end too soon")
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


class _Message:
    """Reads messages of one type."""

    def __init__(self, descriptor: Any) -> None:
        from google.protobuf import message_factory

        parse = message_factory.GetMessageClass(descriptor).FromString
        fields = [_Field(f, (descriptor.full_name,)) for f in descriptor.fields]
        self.reading = Reading(pa.struct([f.reading.field(f.name) for f in fields]))
        self.load: Callable[[bytes], Any] = lambda body: _values(parse(body), fields)


def _values(message: Any, fields: Sequence[_Field]) -> dict[str, Any]:
    return {f.name: f.get(message) for f in fields}


class _Field:
    """One field: its column, and how a message gives its value."""

    def __init__(self, descriptor: Any, above: tuple[str, ...]) -> None:
        self.name: str = descriptor.name
        name, presence = self.name, descriptor.has_presence
        kind, value = _single(descriptor, above)
        self.get: Callable[[Any], Any]
        if _is_map(descriptor):
            entry = descriptor.message_type.fields_by_name
            key_type, key = _single(entry["key"], above)
            item_type, item = _single(entry["value"], above)
            self.reading = Reading(pa.map_(key_type, item_type))
            self.get = lambda m: [(key(k), item(v)) for k, v in getattr(m, name).items()]
        elif descriptor.is_repeated:
            self.reading = Reading(pa.list_(kind))
            self.get = lambda m: [value(item) for item in getattr(m, name)]
        elif presence:
            self.reading = Reading(kind)
            self.get = lambda m: value(getattr(m, name)) if m.HasField(name) else None
        elif value is _same:
            self.reading = Reading(kind)
            self.get = lambda m: getattr(m, name)
        else:
            self.reading = Reading(kind)
            self.get = lambda m: value(getattr(m, name))


def _same(value: Any) -> Any:
    return value


def _is_map(descriptor: Any) -> bool:
    return bool(descriptor.message_type is not None and descriptor.message_type.GetOptions().map_entry)


def _single(descriptor: Any, above: tuple[str, ...]) -> tuple[pa.DataType, Callable[[Any], Any]]:
    """The type of one value of a field, and what makes it of what Protobuf gives."""
    if descriptor.enum_type is not None:
        names = {v.number: v.name for v in descriptor.enum_type.values}
        return pa.string(), lambda number: names.get(number, str(number))
    message = descriptor.message_type
    if message is None:
        return _scalar(descriptor), _same
    if _is_map(descriptor):
        return pa.null(), _same
    if message.full_name.startswith(_GOOGLE):
        found = _google(message)
        if found is not None:
            return found
    if message.full_name in above:
        raise ValueError(f"message {message.full_name} contains itself: a table cannot")
    fields = [_Field(f, (*above, message.full_name)) for f in message.fields]
    return pa.struct([f.reading.field(f.name) for f in fields]), lambda m: _values(m, fields)


def _google(message: Any) -> tuple[pa.DataType, Callable[[Any], Any]] | None:
    """Well-known types."""
    name = message.full_name.removeprefix(_GOOGLE)
    if name == "Timestamp":
        return pa.timestamp("us", "UTC"), lambda m: m.seconds * 1_000_000 + m.nanos // 1000
    if name == "Duration":
        return pa.int64(), lambda m: m.seconds * 1000 + m.nanos // 1_000_000
    if name.removesuffix("Value") in _WRAPPERS:
        return _scalar(message.fields_by_name["value"]), lambda m: m.value
    if name in ("Struct", "Value", "ListValue", "Any"):
        from google.protobuf import json_format

        return JSON, lambda m: json_format.MessageToJson(m, indent=None)
    return None


_BYTES = 12
"""FieldDescriptor.TYPE_BYTES; its C++ type is that of strings."""


def _scalar(descriptor: Any) -> pa.DataType:
    return pa.binary() if descriptor.type == _BYTES else _SCALARS[descriptor.cpp_type]


# By FieldDescriptor.CPPTYPE_*: int32, int64, uint32, uint64, double, float, bool, enum, string, message.
_SCALARS: Mapping[int, pa.DataType] = {
    1: pa.int32(),
    2: pa.int64(),
    3: pa.uint32(),
    4: pa.uint64(),
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
    9: pa.string(),
}
