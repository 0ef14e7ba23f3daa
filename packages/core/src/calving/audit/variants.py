"""Variants in one plain form, whatever their bytes, and whether a file has them whole or shredded."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa

from calving.audit.data_files import field_id
from calving.audit.storage import DamagedFileError

_EXACT = Context(prec=100)
_WHOLE = {3: 1, 4: 2, 5: 4, 6: 8}
_DECIMALS = {8: 4, 9: 8, 10: 16}
_PRIMITIVES = {7: ("double", 8), 11: ("date", 4), 14: ("float", 4), 17: ("time", 8), 20: ("uuid", 16)}
_MOMENTS = {12: ("instant", 1000), 13: ("timestamp", 1000), 18: ("instant", 1), 19: ("timestamp", 1)}
"""The kinds of moments, and the nanoseconds that they count."""
_NULL = ("null",)
_PER_SECOND = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

Plain = tuple[Any, ...]
"""The kind of a value, and what it is: numbers of every width that are equal are the same."""


def is_variant(kind: pa.DataType) -> bool:
    """Whether a column of a file is a variant: a group of these parts, which have no field ids."""
    names = {field.name for field in _fields(kind)} if pa.types.is_struct(kind) else set()
    return {"metadata"} < names <= {"metadata", *_PARTS} and not any(map(field_id, _fields(kind)))


_PARTS = ("value", "typed_value")


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(at) for at in range(kind.num_fields)]


def variants(column: pa.Array) -> list[Plain | None]:
    """The values of a column.

    :raises DamagedFileError: one breaks the specification.
    """
    typed = [field.type for field in _fields(column.type) if field.name == "typed_value"]
    try:
        return [
            None if row is None else _of(_names(row["metadata"]), row, typed[0] if typed else None)
            for row in _numbered(column).to_pylist()
        ]
    except (IndexError, KeyError, ValueError, TypeError, struct.error) as error:
        raise DamagedFileError(f"a variant breaks the specification: {type(error).__name__}: {error}") from error


def variant(metadata: bytes, value: bytes) -> Plain:
    """A whole variant, as ``variants``."""
    return _value(_names(metadata), value)[0]


def _numbered(column: pa.Array) -> pa.Array:
    """The column with its dates, times and moments as the numbers that are stored."""
    kind = column.type
    if isinstance(column, pa.StructArray):
        fields = [column.field(at) for at in range(kind.num_fields)]
        names = [field.name for field in _fields(kind)]
        return pa.StructArray.from_arrays([*map(_numbered, fields)], names, mask=column.is_null())
    if isinstance(column, pa.ListArray):
        return pa.ListArray.from_arrays(column.offsets, _numbered(column.values), mask=column.is_null())
    if isinstance(column, pa.ExtensionArray):
        return column.storage
    if not pa.types.is_temporal(kind):
        return column
    return column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())


def _of(names: Sequence[str], parts: Mapping[str, Any], kind: pa.DataType | None) -> Plain | None:
    """A value of which a part may be shredded; None if it is missing."""
    value, typed = parts.get("value"), parts.get("typed_value")
    rest = None if value is None else _value(names, value)[0]
    if typed is None or kind is None:
        return rest
    if pa.types.is_struct(kind):
        inside = (
            (f.name, _of(names, typed[f.name], _typed(f.type))) for f in _fields(kind) if typed[f.name] is not None
        )
        fields = dict(rest[1]) if rest is not None else {}
        return "object", tuple(sorted((fields | {name: item for name, item in inside if item is not None}).items()))
    if pa.types.is_list(kind):
        return "array", tuple(_of(names, each, _typed(kind.value_type)) or _NULL for each in typed)
    return _typed_value(typed, kind)


def _typed(kind: pa.DataType) -> pa.DataType | None:
    return next((field.type for field in _fields(kind) if field.name == "typed_value"), None)


def _typed_value(value: Any, kind: pa.DataType) -> Plain:
    t = pa.types
    if t.is_boolean(kind):
        return "boolean", value
    if t.is_integer(kind) or t.is_decimal(kind):
        return "number", _same(Decimal(value))
    if t.is_float64(kind):
        return "double", struct.pack("<d", value)
    if t.is_float32(kind):
        return "float", struct.pack("<f", value)
    if t.is_timestamp(kind):
        return ("timestamp" if kind.tz is None else "instant"), value * _PER_SECOND[kind.unit]
    if t.is_date32(kind):
        return "date", struct.pack("<i", value)
    if t.is_time(kind):
        return "time", struct.pack("<q", value * _PER_SECOND[kind.unit] // 1000)
    if t.is_string(kind) or t.is_large_string(kind):
        return "string", value
    return ("uuid" if isinstance(kind, pa.BaseExtensionType) else "binary"), value


def _names(metadata: bytes) -> list[str]:
    if metadata[0] & 15 != 1:
        raise DamagedFileError(f"a variant has the unknown version {metadata[0] & 15}")
    width = (metadata[0] >> 6) + 1
    count = _unsigned(metadata, 1, width)
    start = 1 + width * (count + 2)
    ends = [start + _unsigned(metadata, 1 + width * (1 + at), width) for at in range(count + 1)]
    return [metadata[a:b].decode() for a, b in pairwise(ends)]


def _unsigned(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise IndexError("it ends within a number")
    return int.from_bytes(data[at : at + width], "little")


def _value(names: Sequence[str], data: bytes, at: int = 0) -> tuple[Plain, int]:
    """A value, and the place of its end."""
    form, header, at = data[at] & 3, data[at] >> 2, at + 1
    if form == 0:
        return _primitive(header, data, at)
    if form == 1:
        return ("string", data[at : at + header].decode()), at + header
    has_ids = form == 2
    width, id_width = (header & 3) + 1, (header >> 2 & 3) + 1
    size = 4 if header >> (4 if has_ids else 2) & 1 else 1
    count, at = _unsigned(data, at, size), at + size
    ids = [_unsigned(data, at + id_width * place, id_width) for place in range(count)] if has_ids else []
    at += id_width * len(ids)
    offsets = [_unsigned(data, at + width * place, width) for place in range(count + 1)]
    start = at + width * (count + 1)
    items = [_value(names, data, start + offset)[0] for offset in offsets[:-1]]
    if not has_ids:
        return ("array", tuple(items)), start + offsets[-1]
    fields = sorted(zip((names[each] for each in ids), items, strict=True))
    return ("object", tuple(fields)), start + offsets[-1]


def _primitive(kind: int, data: bytes, at: int) -> tuple[Plain, int]:
    if kind <= 2:
        return (_NULL, ("boolean", True), ("boolean", False))[kind], at
    if kind in _WHOLE:
        end = at + _WHOLE[kind]
        return ("number", _same(Decimal(int.from_bytes(data[at:end], "little", signed=True)))), end
    if kind in _DECIMALS:
        end = at + 1 + _DECIMALS[kind]
        unscaled = int.from_bytes(data[at + 1 : end], "little", signed=True)
        return ("number", _same(Decimal(unscaled).scaleb(-data[at], _EXACT))), end
    if kind in (15, 16):
        end = at + 4 + _unsigned(data, at, 4)
        raw = data[at + 4 : end]
        return (("binary", raw) if kind == 15 else ("string", raw.decode())), end
    if kind in _MOMENTS:
        name, nanos = _MOMENTS[kind]
        return (name, int.from_bytes(data[at : at + 8], "little", signed=True) * nanos), at + 8
    name, size = _PRIMITIVES[kind]
    return (name, data[at : at + size]), at + size


def _same(number: Decimal) -> str:
    """The same text for equal numbers."""
    return format(number.normalize(_EXACT), "f") if number else "0"
