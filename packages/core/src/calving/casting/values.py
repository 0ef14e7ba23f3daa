"""Single values in the form that ``pyarrow.array`` takes for a column of a primitive Iceberg type."""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.casting.numbers import boolean, decimal, floating, integer, text_of
from calving.casting.temporal import day, instant, nanos, time_of_day, timestamp_text, timestamptz_text
from calving.casting.texts import string
from calving.records.arrays import Scaled
from calving.records.fields import MILLIS, Counting


def primitive(value: Any, kind: IcebergType, counting: Counting = MILLIS) -> Any:
    """A value in the form that ``pyarrow.array`` takes for ``kind``. Temporal values become integers.

    Numbers for temporal columns mean days (date), or what ``counting`` says: milliseconds by default, as in the Java
    sink.

    :raises ValueError: the value is not of this kind.
    :raises OverflowError: the value is of this kind, but too large for it.
    """
    if isinstance(value, Scaled):
        value = value.number
    if type(kind) in _MOMENTS:
        return _MOMENTS[type(kind)](value, counting)
    convert = _CONVERT.get(type(kind))
    if convert is None:
        raise ValueError(f"columns of type {kind} cannot be written")
    return convert(value, kind)


_UUID = re.compile(r"[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{12}")


def _uuid_bytes(value: Any) -> bytes:
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, bytes) and len(value) == 16:
        return value
    text = text_of(value)
    if not _UUID.fullmatch(text):
        raise ValueError("not 32 hexadecimal digits, with hyphens between the groups or without hyphens")
    return bytes.fromhex(text.replace("-", ""))


def _binary(value: Any) -> bytes:
    """The bytes of a value. Text is base64."""
    if isinstance(value, bytes):
        return value
    text = text_of(value)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


def _fixed(value: Any, length: int) -> bytes:
    raw = _binary(value)
    if len(raw) != length:
        raise ValueError(f"{len(raw)} bytes instead of {length}")
    return raw


_CONVERT: Mapping[type[IcebergType], Callable[[Any, Any], Any]] = {
    BooleanType: lambda value, _: boolean(value),
    IntegerType: lambda value, _: integer(value, 32),
    LongType: lambda value, _: integer(value, 64),
    FloatType: lambda value, _: floating(value, single=True),
    DoubleType: lambda value, _: floating(value, single=False),
    DecimalType: decimal,
    StringType: lambda value, _: string(value),
    UUIDType: lambda value, _: _uuid_bytes(value),
    BinaryType: lambda value, _: _binary(value),
    FixedType: lambda value, kind: _fixed(value, len(kind)),
}
_MOMENTS: Mapping[type[IcebergType], Callable[[Any, Counting], int]] = {
    DateType: day,
    TimeType: time_of_day,
    TimestamptzType: lambda value, counting: instant(value, timestamptz_text, counting),
    TimestampType: lambda value, counting: instant(value, timestamp_text, counting),
    TimestamptzNanoType: lambda value, counting: nanos(value, timestamptz_text, counting),
    TimestampNanoType: lambda value, counting: nanos(value, timestamp_text, counting),
}
