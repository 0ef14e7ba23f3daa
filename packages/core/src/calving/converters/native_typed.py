"""Decodes values with a schema in Rust: payloads of Connect's envelope, records of Avro, and messages of Protobuf,
whose columns and form come from their descriptor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from calving.converters.avro_types import is_map_entry, logical_type
from calving.converters.building import MOST_DIGITS
from calving.converters.native import (
    NO_NULL,
    NULL_VALUE,
    Decoder,
    Field,
    NoWayError,
    absence,
    avro_decoder,
    json_decoder,
    protobuf_decoder,
)
from calving.converters.typed_json import Declared, Form
from calving.records.semantics import plain_type

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor


_NESTING = 64
_CONNECT: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): "days",
    pa.time32("ms"): "millis_of_day",
    pa.timestamp("ms", "UTC"): "millis(utc)",
}
_AVRO: Mapping[tuple[str, str | None], str] = {
    ("int", "date"): "days",
    ("int", "time-millis"): "millis_of_day",
    ("long", "time-micros"): "micros_of_day",
    ("long", "timestamp-millis"): "millis(utc)",
    ("long", "timestamp-micros"): "micros(utc)",
    ("long", "timestamp-nanos"): "nanos(utc)",
    ("long", "local-timestamp-millis"): "millis()",
    ("long", "local-timestamp-micros"): "micros()",
    ("long", "local-timestamp-nanos"): "nanos()",
    ("string", "uuid"): "uuid",
}
_PLAIN_AVRO: Mapping[str, str] = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
}
_KEY = Field(("key",), "string", (), NO_NULL)


def payload_decoder(form: Form, cells: int) -> Decoder | None:
    """A decoder of JSON objects of a Connect schema; None if there is none."""
    if absence() is not None or not pa.types.is_struct(form.type):
        return None
    try:
        fields = _connect(("",), form).inner
    except NoWayError:
        return None
    return json_decoder(fields, closed=True, nesting=_NESTING, cells=cells)


def _connect(names: tuple[str, ...], form: Form) -> Field:
    kind = plain_type(form.type)
    if pa.types.is_struct(kind):
        field_names = [field.name for field in kind]
        if not field_names or len({*field_names}) < len(field_names):
            raise NoWayError
        inner = [_declared(name, part) for name, part in zip(field_names, form.parts, strict=True)]
        return Field(names, "struct", tuple(inner))
    if pa.types.is_list(kind):
        return Field(names, "list", (_declared("element", form.parts[0]),))
    if pa.types.is_map(kind) and form.parts:
        return Field(names, "map", (_KEY, _declared("value", form.parts[0])))
    if pa.types.is_decimal128(kind):
        return Field(names, _unscaled(kind.precision, kind.scale))
    if kind not in _CONNECT:
        raise NoWayError
    return Field(names, _CONNECT[kind])


def _declared(name: str, part: Declared) -> Field:
    """The field of a part. A null that a default replaces is refused."""
    null = NULL_VALUE if part.nullable and not part.replaced else NO_NULL
    return replace(_connect((name,), part.form), null=null)


def _unscaled(precision: int, scale: int, *size: int) -> str:
    if not 0 <= scale <= precision:
        raise NoWayError
    return f"unscaled({','.join(map(str, (precision, scale, *size)))})"


def record_decoder(schema: Any, named: Mapping[str, Any], cells: int) -> Decoder | None:
    """A decoder of records of a parsed Avro schema that a table can hold; None if there is none."""
    if absence() is not None or not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        return None
    try:
        fields = _Avro(named).kind(schema, ()).inner
    except NoWayError:
        return None
    return avro_decoder(fields, cells) if fields else None


_MOST_SYMBOLS = 20_000
"""Of all fields of a schema together. The decoders keep the symbols of an enum for each field of its type."""


@dataclass(slots=True)
class _Symbols:
    """The number of symbols that a decoder has to keep."""

    count: int = 0

    def add(self, symbols: Sized) -> None:
        """:raises NoWayError: they are too many. The exact path keeps them once for each type."""
        self.count += len(symbols)
        if self.count > _MOST_SYMBOLS:
            raise NoWayError


@dataclass(frozen=True, slots=True)
class _Avro:
    """Avro's types. ``named`` are the types to which schemas refer."""

    named: Mapping[str, Any]
    symbols: _Symbols = field(default_factory=_Symbols)

    def field(self, name: str, schema: Any) -> Field:
        if not isinstance(schema, list):
            return replace(self.kind(schema, (name,)), null=NO_NULL)
        nulls = [place for place, branch in enumerate(schema) if branch == "null"]
        if len(schema) != 2 or len(nulls) != 1:
            raise NoWayError
        return replace(self.kind(schema[1 - nulls[0]], (name,)), null=nulls[0])

    def kind(self, schema: Any, names: tuple[str, ...]) -> Field:
        options = schema if isinstance(schema, dict) else {}
        kind = options.get("type", schema)
        if isinstance(kind, dict):
            return self.kind(kind, names)
        if isinstance(kind, list):
            raise NoWayError
        if kind in self.named and "name" not in options:
            return self.kind(self.named[kind], names)
        if kind in ("record", "error"):
            if not options["fields"]:
                raise NoWayError
            return Field(names, "struct", tuple(self.field(f["name"], f["type"]) for f in options["fields"]))
        if kind == "array":
            return Field(names, "list", (self._element(options["items"]),))
        if kind == "map":
            return Field(names, "map", (_KEY, self.field("value", options["values"])))
        if kind == "enum":
            self.symbols.add(options["symbols"])
            return Field(names, "choice", tuple(Field((symbol,), "string") for symbol in options["symbols"]))
        return Field(names, _simple(kind, options))

    def _element(self, items: Any) -> Field:
        entry = self.named.get(items) if isinstance(items, str) else items
        if is_map_entry(entry):
            raise NoWayError
        return self.field("element", items)


def _simple(kind: str, options: Mapping[str, Any]) -> str:
    logical = logical_type(options)
    if kind in ("bytes", "fixed") and logical == "decimal":
        size = (options["size"],) if kind == "fixed" else ()
        return _unscaled(min(options.get("precision", MOST_DIGITS), MOST_DIGITS), options.get("scale", 0), *size)
    if kind == "fixed" and options["size"] > 0:
        return f"fixed({options['size']})"
    code = _AVRO.get((kind, logical)) or _PLAIN_AVRO.get(kind)
    if code is None:
        raise NoWayError
    return code


_SCALARS: Mapping[int, tuple[str, str]] = {
    1: ("double", "double"),
    2: ("float", "float"),
    3: ("int64", "varint"),
    4: ("uint64", "varint"),
    5: ("int32", "int32"),
    6: ("uint64", "fixed64"),
    7: ("uint32", "fixed32"),
    8: ("boolean", "bool"),
    9: ("string", "bytes"),
    12: ("bytes", "bytes"),
    13: ("uint32", "varint"),
    15: ("int32", "signed32"),
    16: ("int64", "fixed64"),
    17: ("int32", "zigzag"),
    18: ("int64", "zigzag"),
}
"""For each FieldDescriptor.TYPE_*: the kind of the column, and the form of the bytes."""
_MEANT = {
    "google.protobuf.Timestamp": ("micros(utc)", "timestamp"),
    "google.protobuf.Duration": ("int64", "duration"),
    "google.type.Date": ("days", "date"),
    "google.type.TimeOfDay": ("micros_of_day", "time_of_day"),
}
"""Messages that mean a single value."""
_WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
WRAPPED = tuple(f"google.protobuf.{name}Value" for name in _WRAPPERS)
"""Messages of one scalar, which may be missing."""
FREE = tuple(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue", "Any"))
"""Messages of any content. Only the exact path reads them."""
_DECIMAL = "confluent.type.Decimal"
_CHOICES = 64

_GROUP = 10
"""FieldDescriptor.TYPE_GROUP"""

Part = tuple[int, str, str, int | None, Sequence[Any], Sequence[tuple[int, str]]]
"""A field's number, how often it occurs, the form of its bytes, its oneof, the parts of its message, and the numbers of
its enum with their names.
"""


@dataclass(frozen=True, slots=True)
class _Value:
    """One value: its column, the form of its bytes, and the parts or names that the form needs."""

    column: Field
    form: str
    inner: Sequence[Part] = ()
    symbols: Sequence[tuple[int, str]] = ()


def message_decoder(descriptor: Descriptor, enums_as_int: bool, cells: int) -> Decoder | None:
    """A decoder of messages of this type, with the same columns as the exact path; None if there is none."""
    if absence() is not None:
        return None
    try:
        columns, parts = _Messages(enums_as_int).fields(descriptor, ())
    except NoWayError:
        return None
    return protobuf_decoder(columns, parts, cells)


@dataclass(frozen=True, slots=True)
class _Messages:
    enums_as_int: bool
    symbols: _Symbols = field(default_factory=_Symbols)

    def fields(self, message: Descriptor, above: tuple[str, ...]) -> tuple[list[Field], list[Part]]:
        """The columns of a message, and how their bytes are read.

        :raises NoWayError: the decoder cannot read one of the message's fields.
        """
        choices = [each for each in message.oneofs if len(each.fields) > 1]
        if not message.fields or message.full_name in above or len(choices) > _CHOICES:
            raise NoWayError
        members = [self._field(each, (*above, message.full_name)) for each in message.fields]
        of = {each.number: number for number, choice in enumerate(choices) for each in choice.fields}
        parts = [(number, how, v.form, of.get(number), v.inner, v.symbols) for number, how, v in members]
        return [value.column for _, _, value in members], parts

    def _field(self, field: FieldDescriptor, above: tuple[str, ...]) -> tuple[int, str, _Value]:
        if field.is_required:
            raise NoWayError
        message, names = field.message_type, (field.name,)
        if message is not None and message.GetOptions().map_entry:
            entry = [self._value(message.fields_by_name[name], above) for name in ("key", "value")]
            column = Field(names, "map", (replace(entry[0].column, null=NO_NULL), entry[1].column))
            # A missing part of an entry is no null.
            inner = [(n, "plain", v.form, None, v.inner, v.symbols) for n, v in enumerate(entry, 1)]
            return field.number, "map", _Value(column, "message", inner)
        value = self._value(field, above)
        if field.is_repeated:
            column = Field(names, "list", (replace(value.column, names=("element",)),))
            return field.number, "repeated", replace(value, column=column)
        return field.number, "optional" if field.has_presence else "plain", value

    def _value(self, field: FieldDescriptor, above: tuple[str, ...]) -> _Value:
        """One value of a field."""
        names, message = (field.name,), field.message_type
        if field.enum_type is not None:
            return self._enum(names, field.enum_type)
        if message is None:
            kind, form = _scalar(field)
            return _Value(Field(names, kind), form)
        if message.full_name in _MEANT:
            kind, form = _MEANT[message.full_name]
            return _Value(Field(names, kind), form)
        if message.full_name in WRAPPED:
            kind, form = _scalar(message.fields_by_name["value"])
            return _Value(Field(names, kind), f"wrapped {form}")
        if message.full_name in (*FREE, _DECIMAL) or field.type == _GROUP:
            raise NoWayError
        columns, parts = self.fields(message, above)
        return _Value(Field(names, "struct", tuple(columns)), "message", parts)

    def _enum(self, names: tuple[str, ...], enum: EnumDescriptor) -> _Value:
        """The value of an enum. A field of a closed enum cannot have other numbers."""
        if not self.enums_as_int:
            self.symbols.add(enum.values)
            symbols = names_of(enum)
            first = enum.values[0].number
            symbols = {first: symbols[first]} | symbols
            return _Value(Field(names, "string"), "enum", symbols=list(symbols.items()))
        if enum.is_closed:
            raise NoWayError
        return _Value(Field(names, "int32"), "int32")


def names_of(enum: EnumDescriptor) -> dict[int, str]:
    """The name of each number of an enum: the first, if it has aliases, as in Protobuf's own libraries."""
    return {value.number: value.name for value in reversed(enum.values)}


def _scalar(field: FieldDescriptor) -> tuple[str, str]:
    return _SCALARS[field.type]
