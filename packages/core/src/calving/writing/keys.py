"""Partition and sort keys: the values of Iceberg's transforms, exact for every value of every type.

All keys are plain Arrow arrays. Dates and times are numbers in the column's own unit; UUIDs and fixed values are bytes.
Floats are integers with the same order as Iceberg's floats: -0.0 is less than 0.0, and there is one NaN.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import mmh3
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DateType, DecimalType, IcebergType, StructType, TimestampNanoType, TimestamptzNanoType

from calving.errors import BadRecordError, ConfigError
from calving.records.calendar import civil
from calving.records.foreign import is_compared

_HOUR_SECONDS, _DAY_SECONDS = 3_600, 86_400
_FLOATS = {pa.float32(): (pa.int32(), "<f", "<i"), pa.float64(): (pa.int64(), "<d", "<q")}


def key(schema: Schema, source_id: int, transform: Transform[Any, Any]) -> Callable[[pa.RecordBatch], pa.Array]:
    """The function from rows in the table's Arrow schema to the values of a partition or sort field.

    The function raises BadRecordError if the result's type cannot hold the result of a value.

    :raises ConfigError: the transform does not accept a column of this type, or is not known.
    """
    if isinstance(transform, VoidTransform):
        return lambda rows: pa.nulls(rows.num_rows, pa.int32())
    places, kind = _find(schema.as_struct(), source_id) or ((), None)
    name = schema.find_column_name(source_id)
    if kind is None or not is_compared(kind) or not transform.can_transform(kind):
        raise ConfigError(f"column '{name}' of type {kind} cannot be partitioned or sorted by {transform}")
    apply = _applied(transform, kind)

    def found(rows: pa.RecordBatch) -> pa.Array:
        column = rows.column(places[0])
        for place in places[1:]:
            column = pc.struct_field(column, place)
        try:
            return apply(_plain(column))
        except pa.ArrowInvalid as error:
            raise BadRecordError(f"column '{name}': Iceberg cannot hold the {transform} of a value") from error

    return found


def float_of(ordered: int, kind: pa.DataType) -> float:
    """The float that an ordered integer stands for."""
    _, as_float, as_integer = _FLOATS[kind]
    bits = ordered ^ (2 ** (kind.bit_width - 1) - 1) if ordered < 0 else ordered
    (value,) = struct.unpack(as_float, struct.pack(as_integer, bits))
    return float(value)


def unscaled(value: Decimal) -> int:
    """The digits of a decimal of any length; Python's arithmetic would round them to its context."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number


def scaled(number: int, scale: int) -> Decimal:
    """The opposite of ``unscaled``."""
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))


def _find(fields: StructType, source_id: int) -> tuple[tuple[int, ...], IcebergType] | None:
    """The indices that lead to a column through its structs, and its type. Indices are used because a name may contain
    a dot.
    """
    for place, field in enumerate(fields.fields):
        if field.field_id == source_id:
            return (place,), field.field_type
        if isinstance(field.field_type, StructType):
            inner = _find(field.field_type, source_id)
            if inner is not None:
                return (place, *inner[0]), inner[1]
    return None


def _plain(column: pa.Array) -> pa.Array:
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    if pa.types.is_floating(kind):
        return _ordered(column)
    if pa.types.is_date(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return column.cast(pa.int64())
    return column.cast(pa.binary()) if pa.types.is_fixed_size_binary(kind) else column


def _ordered(column: pa.Array) -> pa.Array:
    integers, _, _ = _FLOATS[column.type]
    one_nan = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    bits = one_nan.view(integers)
    turned = pc.bit_wise_xor(bits, pa.scalar(2 ** (integers.bit_width - 1) - 1, integers))
    return pc.if_else(pc.less(bits, 0), turned, bits)


def _applied(transform: Transform[Any, Any], kind: IcebergType) -> Callable[[pa.Array], pa.Array]:
    match transform:
        case IdentityTransform():
            return lambda column: column
        case BucketTransform():
            return partial(_bucket, kind=kind, count=transform.num_buckets)
        case TruncateTransform():
            return partial(_truncated, width=transform.width)
        case YearTransform():
            return lambda column: _each(_days(column, kind), lambda day: civil(day)[0] - 1970, pa.int32())
        case MonthTransform():
            return lambda column: _each(_days(column, kind), _month, pa.int32())
        case DayTransform():
            return lambda column: _days(column, kind).cast(pa.int32())
        case HourTransform():
            return lambda column: _floor(column, _HOUR_SECONDS * _per_second(kind)).cast(pa.int32())
    raise ConfigError(f"the transform {transform} is not known")


def _month(day: int) -> int:
    year, month, _ = civil(day)
    return (year - 1970) * 12 + month - 1


def _days(column: pa.Array, kind: IcebergType) -> pa.Array:
    return column if isinstance(kind, DateType) else _floor(column, _DAY_SECONDS * _per_second(kind))


def _per_second(kind: IcebergType) -> int:
    return 1_000_000_000 if isinstance(kind, TimestampNanoType | TimestamptzNanoType) else 1_000_000


def _floor(column: pa.Array, by: int) -> pa.Array:
    """Division that rounds down, also below zero."""
    quotient = pc.divide(column, pa.scalar(by, pa.int64()))
    below = pc.less(pc.subtract(column, pc.multiply(quotient, by)), 0)
    return pc.subtract(quotient, below.cast(pa.int64()))


def _each(column: pa.Array, function: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """The function's result for every value. The function is called once for each distinct value; null stays null."""
    encoded = column.dictionary_encode()
    return pa.array(map(function, encoded.dictionary.to_pylist()), kind).take(encoded.indices)


def _truncated(column: pa.Array, width: int) -> pa.Array:
    kind = column.type
    if pa.types.is_integer(kind):
        wide = column.cast(pa.int64())
        over = pc.subtract(wide, pc.multiply(_floor(wide, width), width))
        return pc.subtract_checked(wide, over).cast(kind)
    if pa.types.is_decimal(kind):
        return _each(column, lambda v: scaled(unscaled(v) // width * width, kind.scale), kind)
    return (pc.binary_slice if pa.types.is_binary(kind) else pc.utf8_slice_codeunits)(column, 0, width)


def _bucket(column: pa.Array, kind: IcebergType, count: int) -> pa.Array:
    hashes = _hashes(column, kind)
    positive = pc.bit_wise_and(hashes, pa.scalar(2**31 - 1, pa.uint32())).cast(pa.int64())
    return pc.subtract(positive, pc.multiply(pc.divide(positive, count), count)).cast(pa.int32())


def _hashes(column: pa.Array, kind: IcebergType) -> pa.Array:
    if isinstance(kind, DecimalType):
        return _each(column, lambda value: mmh3.hash(_minimal(unscaled(value))), pa.int32()).view(pa.uint32())
    if not pa.types.is_integer(column.type):
        return _each(column, mmh3.hash, pa.int32()).view(pa.uint32())
    # A number of nanoseconds falls into the bucket of its microseconds.
    wide = column.cast(pa.int64())
    return _hashed(_floor(wide, 1000) if _per_second(kind) > 1_000_000 else wide)


def _minimal(number: int) -> bytes:
    bits = (number if number >= 0 else number + 1).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def _hashed(column: pa.Array) -> pa.Array:
    """Murmur3 (x86, 32 bits, seed 0) of 64-bit integers. Arrow's plain arithmetic wraps, as the hash requires."""
    bits = column.view(pa.uint64())
    low = pc.bit_wise_and(bits, pa.scalar(0xFFFFFFFF, pa.uint64()))
    high = pc.shift_right(bits, pa.scalar(32, pa.uint64()))
    hashes = _mixed(_mixed(_word(0), low), high)
    hashes = pc.bit_wise_xor(hashes, _word(8))  # the length
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        hashes = pc.multiply(pc.bit_wise_xor(hashes, pc.shift_right(hashes, _word(shift))), _word(factor))
    return hashes


def _mixed(found: pa.Array | pa.Scalar, half: pa.Array) -> pa.Array:
    """The state of the hash after another 32-bit half of the numbers."""
    mixed = pc.multiply(half.cast(pa.uint32()), _word(0xCC9E2D51))
    mixed = pc.multiply(_rotated(mixed, 15), _word(0x1B873593))
    found = _rotated(pc.bit_wise_xor(found, mixed), 13)
    return pc.add(pc.multiply(found, _word(5)), _word(0xE6546B64))


def _rotated(words: pa.Array, by: int) -> pa.Array:
    return pc.bit_wise_or(pc.shift_left(words, _word(by)), pc.shift_right(words, _word(32 - by)))


def _word(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint32())
