"""Decodes Protobuf in Rust: derives a message's columns and the form of its bytes from its descriptor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from calving.converters.native import NO_NULL, Decoder, Field, NoWayError, absence, protobuf_decoder

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

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
