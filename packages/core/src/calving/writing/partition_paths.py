"""The folders of a partition's files: ``name=value`` for each field, as Iceberg's own writers name them. Readers use
the partition tuple; the path is for people.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus
from uuid import UUID

from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.records.calendar import date_text, time_text, timestamp_text

_LONGEST = 160
"""The most characters of a field in a path. File systems allow 255. A longer value is cut, and gets a suffix that
distinguishes it.
"""
_MICROS, _NANOS = 1_000_000, 1_000_000_000

Field = tuple[str, Transform[Any, Any], IcebergType, Any]
"""Name, transform, the type of its results, and a result: a number for dates and times."""


def path(fields: Iterable[Field]) -> str:
    """The folders of a partition; empty without fields."""
    return "/".join(_folder(name, _text(transform, kind, value)) for name, transform, kind, value in fields)


def _folder(name: str, value: str) -> str:
    folder = f"{quote_plus(name, safe='')}={quote_plus(value, safe='')}"
    if len(folder) <= _LONGEST:
        return folder
    return f"{folder[:_LONGEST]}-{sha256(folder.encode()).hexdigest()[:16]}"


def _text(transform: Transform[Any, Any], kind: IcebergType, value: Any) -> str:
    if value is None:
        return "null"
    match transform:
        case YearTransform():
            return f"{1970 + value:04d}"
        case MonthTransform():
            return f"{1970 + value // 12:04d}-{1 + value % 12:02d}"
        case DayTransform():
            return date_text(value)
        case HourTransform():
            return f"{date_text(value // 24)}-{value % 24:02d}"
        case BucketTransform():
            return str(value)
    return _own_text(kind, value)


def _own_text(kind: IcebergType, value: Any) -> str:
    match kind:
        case DateType():
            return date_text(value)
        case TimeType():
            return time_text(value, _MICROS)
        case TimestampType():
            return timestamp_text(value, _MICROS)
        case TimestamptzType():
            return f"{timestamp_text(value, _MICROS)}+00:00"
        case TimestampNanoType():
            return timestamp_text(value, _NANOS)
        case TimestamptzNanoType():
            return f"{timestamp_text(value, _NANOS)}+00:00"
        case UUIDType():
            return str(UUID(bytes=value) if isinstance(value, bytes) else value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)
