"""Iceberg's spec of partition values, single-value bytes and statistics, in plain Python."""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal, localcontext
from typing import Any

from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, NestedField, StructType

from tests.fuzz.values import DAY, NANOS

_EPOCH = date(1970, 1, 1)


def unscaled(value: Decimal, kind: DecimalType) -> int:
    with localcontext(prec=100):
        return int(value.scaleb(kind.scale))


def shortest(number: int) -> bytes:
    """The fewest bytes, big-endian, in two's complement."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def murmur3(data: bytes) -> int:
    """The 32-bit hash of buckets, seed 0."""
    mask, value = 0xFFFFFFFF, 0
    whole = len(data) // 4 * 4

    def mixed(k: int) -> int:
        k = k * 0xCC9E2D51 & mask
        return ((k << 15 | k >> 17) & mask) * 0x1B873593 & mask

    for (k,) in struct.iter_unpack("<I", data[:whole]):
        value ^= mixed(k)
        value = (value << 13 | value >> 19) & mask
        value = (value * 5 + 0xE6546B64) & mask
    if data[whole:]:
        value ^= mixed(int.from_bytes(data[whole:], "little"))
    value ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = (value ^ value >> shift) * factor & mask
    return value ^ value >> 16


def partition_value(value: Any, kind: IcebergType, transform: str) -> Any:
    """The result of a partition transform for a plain value."""
    if value is None:
        return None
    if str(kind) in NANOS and transform != "identity":
        value //= 1000
    if match := re.fullmatch(r"bucket\[(\d+)\]", transform):
        return (murmur3(_hashed(value, kind)) & 0x7FFFFFFF) % int(match.group(1))
    if match := re.fullmatch(r"truncate\[(\d+)\]", transform):
        return _truncated(value, kind, int(match.group(1)))
    if transform == "identity":
        return value
    days = value if str(kind) == "date" else value // DAY
    match transform:
        case "hour":
            return value // (DAY // 24)
        case "day":
            return days
    year, month = _civil(days)
    return year - 1970 if transform == "year" else (year - 1970) * 12 + month - 1


def _civil(days: int) -> tuple[int, int]:
    """Year and month of any day, also beyond Python's dates: the calendar repeats every 400 years."""
    eras, rest = divmod(days, 146_097)
    there = _EPOCH + timedelta(days=rest)
    return there.year + 400 * eras, there.month


def _hashed(value: Any, kind: IcebergType) -> bytes:
    match value:
        case int():
            return struct.pack("<q", value)
        case str():
            return value.encode()
        case uuid.UUID():
            return value.bytes
        case Decimal():
            assert isinstance(kind, DecimalType)
            return shortest(unscaled(value, kind))
    assert isinstance(value, bytes)
    return value


def _truncated(value: Any, kind: IcebergType, width: int) -> Any:
    match value:
        case int():
            return value - value % width
        case Decimal():
            assert isinstance(kind, DecimalType)
            number = unscaled(value, kind)
            with localcontext(prec=100):
                return Decimal(number - number % width).scaleb(-kind.scale)
    return value[:width]


def internal(value: Any, kind: IcebergType) -> Any:
    """A plain value as partition tuples hold it."""
    match value:
        case Decimal():
            assert isinstance(kind, DecimalType)
            return unscaled(value, kind)
        case uuid.UUID():
            return value.bytes
    return value


def partition_of(row: Mapping[str, Any], schema: Schema, fields: Sequence[PartitionField]) -> tuple[Any, ...]:
    """The partition of a row, in internal form; decimals unscaled."""
    found: list[Any] = []
    for part in fields:
        if str(part.transform) == "void":  # its column may be gone
            found.append(None)
            continue
        value: Any = row
        for name in path_of(schema, part.source_id):
            value = None if value is None else value[name]
        kind = schema.find_type(part.source_id)
        found.append(internal(partition_value(value, kind, str(part.transform)), kind))
    return tuple(found)


def path_of(schema: Schema, wanted: int) -> tuple[str, ...]:
    """Names down to a column; a name may hold dots."""

    def within(struct: StructType) -> tuple[str, ...] | None:
        for column in struct.fields:
            if column.field_id == wanted:
                return (column.name,)
            if isinstance(column.field_type, StructType) and (rest := within(column.field_type)):
                return (column.name, *rest)
        return None

    return within(schema.as_struct()) or ()


def bound(value: Any, kind: IcebergType) -> bytes:
    """A plain value in the single-value serialization."""
    match str(kind).partition("(")[0].partition("[")[0]:
        case "boolean":
            return struct.pack("<?", value)
        case "int" | "date":
            return struct.pack("<i", value)
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
        case "string":
            assert isinstance(value, str)
            return value.encode()
        case "decimal":
            assert isinstance(kind, DecimalType)
            return shortest(unscaled(value, kind))
        case "binary" | "fixed":
            assert isinstance(value, bytes)
            return value
    return struct.pack("<q", value)


@dataclass
class Leaf:
    """The statistics of one primitive column."""

    kind: IcebergType
    repeated: bool
    values: int = 0
    nulls: int = 0
    nans: int = 0
    present: list[Any] = field(default_factory=list)


def statistics(rows: Sequence[Mapping[str, Any]], schema: Schema) -> dict[int, Leaf]:
    """Of every primitive column, by id."""
    found: dict[int, Leaf] = {}

    def see(values: Sequence[Any], column: NestedField, repeated: bool) -> None:
        kind = column.field_type
        match kind:
            case StructType():
                for inner in kind.fields:
                    see([None if v is None else v[inner.name] for v in values], inner, repeated)
            case ListType():
                see([item for v in values if v is not None for item in v], kind.element_field, True)
            case MapType():
                pairs = [pair for v in values if v is not None for pair in v]
                see([k for k, _ in pairs], kind.key_field, True)
                see([v for _, v in pairs], kind.value_field, True)
            case _:
                present = [v for v in values if v is not None]
                numbers = [v for v in present if v == v]
                found[column.field_id] = Leaf(
                    kind, repeated, len(values), len(values) - len(present), len(present) - len(numbers), numbers
                )

    for column in schema.fields:
        see([row[column.name] for row in rows], column, False)
    return found


def wrong_bounds(leaf: Leaf, mode: str, low: bytes | None, high: bytes | None) -> Iterator[str]:
    """The errors in the bounds of a column with these values."""
    if leaf.repeated or not leaf.present or mode in ("none", "counts") or str(leaf.kind) == "uuid":
        if (low, high) != (None, None):
            yield f"no bounds wanted, {low!r} {high!r}"
        return
    least, most = min(leaf.present), max(leaf.present)
    name = str(leaf.kind).partition("[")[0]
    if name in ("string", "binary", "fixed") and mode != "full":
        width = int(mode[9:-1])
        if low != bound(least[:width], leaf.kind):
            yield f"lower {low!r} of {least!r}"
        whole = bound(most, leaf.kind)
        if len(most) <= width and high != whole:
            yield f"upper {high!r} of {most!r}"
        elif len(most) > width and high is not None:
            length = len(high.decode()) if name == "string" else len(high)
            if high < whole or length > width:
                yield f"upper {high!r} of {most!r}"
        return
    for bytes_, value, zero in ((low, least, -0.0), (high, most, 0.0)):
        wanted = bound(zero if value == 0 and isinstance(value, float) else value, leaf.kind)
        if bytes_ != wanted:
            yield f"bound {bytes_!r} of {value!r}, wanted {wanted!r}"
