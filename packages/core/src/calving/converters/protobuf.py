"""Protobuf with a schema registry (Confluent's wire format)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from calving.converters.building import MisfitError
from calving.converters.interface import Converter, Decoded, flag, stage
from calving.converters.native import Frame, decode_framed
from calving.converters.native_typed import FREE, WRAPPED, message_decoder, names_of
from calving.converters.protobuf_bytes import Key, count, head_of, parts_of
from calving.converters.protobuf_files import check_fields, field_parameters, json_of, known_file, without_extensions
from calving.converters.protobuf_meanings import calendar_date, time_of_day, timestamp
from calving.converters.references import References
from calving.converters.schema_bounds import Extent, check_symbols
from calving.converters.schemas import BySchema, SchemaReader, SchemaRegistry, by_schema
from calving.converters.typed_json import decimal
from calving.errors import ConfigError, UnavailableError
from calving.model.record_path import Limits
from calving.records.cells import Together
from calving.records.fields import Projection
from calving.records.inferred import JSON
from calving.records.presence import nulls_apart
from calving.records.semantics import SCALED_NAME, scaled_decimal, semantic

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message


class ProtobufConverter(Converter):
    """Decodes Protobuf. Fields become columns with their names. An enum becomes the name of its value. The fields of a
    oneof become separate columns.

    A scalar without presence (plain proto3) is never null. But every column is optional, so that a message without the
    field still fits. ``google.protobuf.Struct``, ``Value``, ``ListValue`` and ``Any`` are JSON text.
    """

    def __init__(self, options: Mapping[str, str], *, is_key: bool, limits: Limits | None = None) -> None:
        self._stage = stage(is_key)
        self._limits = limits or Limits()
        self._enums_as_int = flag(options, "int.for.enums", is_key=is_key)
        self._registry = SchemaRegistry(options, is_key=is_key, form="serialized")
        self._pools = BySchema(self._pool)
        self._messages = BySchema(self._message)

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        frames: dict[bytes, Frame | None] = {}
        decoded = decode_framed(values, lambda value: self._frame(value, frames), self._decode, self._limits.cells)
        if projection is not None and projection.presence:
            decoded.values = [part for each in decoded.values for part in nulls_apart(each, projection.presence)]
        return decoded

    def _decode(self, values: Sequence[bytes], together: Together) -> Decoded:
        """Decode values one by one."""
        return by_schema(values, self._stage, head_of, self._reader, _named, together)

    def _frame(self, value: bytes, known: dict[bytes, Frame | None]) -> Frame | None:
        """The frame of a value, and of other values of its message; None if they are read one by one, or if the value
        is bad.
        """
        try:
            key, start = head_of(value)
            head = value[:start]
            if head not in known:
                known[head] = None
                message = self._messages.of(key)
                if message.decoder is not None:
                    known[head] = Frame(message.decoder, message.type, head)
        except (UnavailableError, ConfigError):
            raise
        except Exception:  # whatever the error of a value or its schema is, reading values one by one reports it
            return None
        return known[head]

    def _reader(self, key: Key) -> SchemaReader:
        message = self._messages.of(key)
        return SchemaReader(message.type, message.load, message.cells, message.size)

    def _message(self, key: Key) -> _Message:
        number, path = key
        pool = self._pools.of(number)
        columns = _Columns(self._enums_as_int, Extent(self._limits))
        return _Message(_descriptor(pool.files.FindFileByName(pool.name), path), columns, pool.text)

    def _pool(self, number: int) -> _Pool:
        from google.protobuf import descriptor_pool

        pool = descriptor_pool.DescriptorPool()
        followed, name = References(self._registry, self._limits), f"calving/{number}.proto"
        text = self._add(pool, followed.schema(number), name, set(), followed)
        return _Pool(pool, name, text, Extent(self._limits).size(text))

    def _add(self, pool: DescriptorPool, schema: Any, name: str, done: set[str], followed: References) -> int:
        """Add the file of a schema, after the files that it imports. Returns their bytes."""
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        if name in done:
            return 0
        done.add(name)
        if schema.schema_type != "PROTOBUF":
            raise ValueError(f"the schema registry has an {schema.schema_type} schema there, not a Protobuf one")
        raw = self._registry.serialized(schema.schema_str)
        file, size = FileDescriptorProto.FromString(raw), len(raw)
        file.name = name
        without_extensions(file)
        for reference in schema.references or ():
            with followed.into(reference) as source:
                size += self._add(pool, source, reference.name, done, followed)
        _add_known(pool, file, done)
        pool.Add(file)
        return size


@dataclass(frozen=True, slots=True)
class _Pool:
    """The files of one schema, of ``text`` bytes together, and the name of the schema's own file."""

    files: DescriptorPool
    name: str
    text: int
    size: int


def _add_known(pool: DescriptorPool, file: FileDescriptorProto, done: set[str]) -> None:
    """Add the files that a file imports without a reference, and the files that these import.

    :raises ValueError: there is no such file.
    """
    for dependency in file.dependency:
        if dependency in done:
            continue
        known = known_file(dependency)
        if known is None:
            raise ValueError(f"it imports '{dependency}', to which the schema has no reference")
        done.add(dependency)
        _add_known(pool, known, done)
        pool.Add(known)


def _named(key: Key) -> str:
    return f"Protobuf schema {key[0]}, message {list(key[1])}"


def _descriptor(file: Any, path: tuple[int, ...]) -> Descriptor:
    """The message at these indices of the file. :raises ValueError: there is none."""
    messages = list(file.message_types_by_name.values())
    for index in path:
        if index >= len(messages):
            raise ValueError(f"message index {index}: the schema has only {len(messages)} messages there")
        descriptor: Descriptor = messages[index]
        messages = list(descriptor.nested_types)
    if descriptor.GetOptions().map_entry:
        raise ValueError(f"{descriptor.full_name} is the entry of a map, and no message that a record can be")
    return descriptor


class _Message:
    """Reads messages of one type."""

    def __init__(self, descriptor: Descriptor, columns: _Columns, text: int) -> None:
        """:raises ValueError: the message has too many columns or levels, or contains itself."""
        from google.protobuf import message_factory

        self._class: Any = message_factory.GetMessageClass(descriptor)
        self._fields = columns.fields(descriptor, ())
        self.type = pa.struct([(f.name, f.type) for f in self._fields])
        self.cells = columns.extent.cells
        self.size = columns.extent.size(text)  # it keeps the whole pool
        self._parts = parts_of(descriptor, self.type)
        self.decoder = message_decoder(descriptor, columns.enums_as_int, self.cells.most)

    def load(self, body: bytes) -> dict[str, Any]:
        """:raises ValueError: the message lacks a required field, which Python's parser does not see."""
        count(body, self._parts, self.cells)  # before the parser, whose messages have room for every field
        message = self._class.FromString(body)
        if not self._class.IsInitialized(message):  # a field of this name would hide the object's own method
            raise ValueError(f"required fields are missing: {', '.join(self._class.FindInitializationErrors(message))}")
        return _values(message, self._fields)


def _values(message: Message, fields: Sequence[_Field]) -> dict[str, Any]:
    """:raises MisfitError: a value is not what its field means."""
    at = ""
    try:
        return {(at := f.name): f.get(message) for f in fields}
    except MisfitError as error:
        raise MisfitError((at, *error.path), error.reason) from error
    except ValueError as error:
        raise MisfitError((at,), str(error)) from error


@dataclass(frozen=True, slots=True)
class _Columns:
    """Makes the fields of messages."""

    enums_as_int: bool
    extent: Extent

    def fields(self, message: Descriptor, above: tuple[str, ...]) -> list[_Field]:
        """The fields of a message. ``above``: the names of the messages around it."""
        if message.full_name in above:
            raise ValueError(f"message {message.full_name} contains itself: a table cannot")
        self.extent.check(len(message.fields))
        with self.extent.level():
            return [_Field(field, (*above, message.full_name), self) for field in message.fields]

    def single(self, descriptor: FieldDescriptor, above: tuple[str, ...]) -> tuple[pa.DataType, Callable[[Any], Any]]:
        """The type of one value of a field, and the function that converts Protobuf's value."""
        self.extent.column()
        if descriptor.enum_type is not None:
            if self.enums_as_int:
                return pa.int32(), _same
            enum = descriptor.enum_type
            names = self.extent.once(("enum", enum.full_name), lambda: _names(enum))
            return pa.string(), lambda number: names.get(number, str(number))
        message = descriptor.message_type
        if message is None:
            return _scalar(descriptor), _same
        well_known = _known(message, descriptor)
        if well_known is not None:
            check_fields(message)
            return well_known
        return self.extent.once(("message", message.full_name), lambda: self._struct(message, above))

    def _struct(self, message: Descriptor, above: tuple[str, ...]) -> tuple[pa.DataType, Callable[[Any], Any]]:
        fields = self.fields(message, above)
        kind = pa.struct([(f.name, f.type) for f in fields])
        # Connect's converter names a message by the last part of its schema's name.
        name = SCALED_NAME if SCALED_NAME.endswith(f".{message.name}") else None
        return semantic(kind, name), lambda m: _values(m, fields)


def _names(enum: EnumDescriptor) -> Mapping[int, str]:
    """:raises ValueError: a name is too long."""
    names = names_of(enum)
    check_symbols(names.values())
    return names


class _Field:
    """One field: its column's type, and how a message gives its value."""

    def __init__(self, descriptor: FieldDescriptor, above: tuple[str, ...], columns: _Columns) -> None:
        self.name = name = str(descriptor.name)
        self.get: Callable[[Any], Any]
        if (entry := _entry(descriptor)) is not None:
            key_type, key = columns.single(entry.fields_by_name["key"], above)
            item_type, item = columns.single(entry.fields_by_name["value"], above)
            self.type: pa.DataType = pa.map_(key_type, item_type)
            self.get = lambda m: [(key(k), item(v)) for k, v in getattr(m, name).items()]
            return
        self.type, value = columns.single(descriptor, above)
        if descriptor.is_repeated:
            self.type = pa.list_(self.type)
            self.get = lambda m: [value(item) for item in getattr(m, name)]
        elif descriptor.has_presence:
            has = _has_field(descriptor.containing_type)
            self.get = lambda m: value(getattr(m, name)) if has(m, name) else None
        elif value is _same:
            self.get = attrgetter(name)
        else:
            self.get = lambda m: value(getattr(m, name))


def _has_field(message: Any) -> Callable[[Any, str], bool]:
    """The class's own method: a field of the same name would hide the method of an object."""
    from google.protobuf import message_factory

    has: Callable[[Any, str], bool] = message_factory.GetMessageClass(message).HasField
    return has


def _same(value: Any) -> Any:
    return value


def _entry(descriptor: FieldDescriptor) -> Descriptor | None:
    """The message of a map's entries; None if the field is no map."""
    message = descriptor.message_type
    return message if message is not None and message.GetOptions().map_entry else None


def _known(message: Descriptor, descriptor: FieldDescriptor) -> tuple[pa.DataType, Callable[[Any], Any]] | None:
    """Messages that mean a single value."""
    match message.full_name:
        case "google.protobuf.Timestamp":
            return pa.timestamp("us", "UTC"), timestamp
        case "google.protobuf.Duration":
            return pa.int64(), lambda m: m.seconds * 1000 + int(m.nanos / 1_000_000)
        case "google.type.Date":
            return pa.date32(), calendar_date
        case "google.type.TimeOfDay":
            return pa.time64("us"), time_of_day
        case "confluent.type.Decimal":
            return _decimal(field_parameters(descriptor))
        case name if name in WRAPPED:
            return _scalar(message.fields_by_name["value"]), lambda m: m.value
        case name if name in FREE:
            return JSON, json_of
    return None


def _decimal(parameters: Mapping[str, str]) -> tuple[pa.DataType, Callable[[Any], Any]]:
    """A decimal with the scale in the field's options. Without a scale, the digits become text, so that none is
    lost.
    """

    def value(message: Any) -> Decimal:
        return scaled_decimal(message.value, message.scale)

    if "scale" not in parameters:
        return pa.string(), lambda message: format(value(message), "f")
    form = decimal(min(38, int(parameters.get("precision", 38))), int(parameters["scale"]))
    return form.type, lambda message: form.read(value(message))


_BYTES = 12
"""FieldDescriptor.TYPE_BYTES; its C++ type is that of strings."""


def _scalar(descriptor: FieldDescriptor) -> pa.DataType:
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
