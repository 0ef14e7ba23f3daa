"""Rows of data files as plain Python values: dates as days, times and timestamps as microseconds, or nanoseconds where
their type is named so, uuids as UUIDs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import fastavro
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from tests.fuzz.values import NANOS, micros_of


class Nanos(int):
    """A timestamp that a library gives in nanoseconds, whatever its type."""


class UnreadableError(Exception):
    """The library cannot read what the format can hold."""


def _orc(path: Path) -> pa.Table:
    try:
        return po.read_table(path)
    except pa.ArrowInvalid as error:
        if "nanosecond resolution" in str(error):
            raise UnreadableError(str(error)) from error
        raise


_NUMBERS = dict.fromkeys(
    (
        "int-date",
        "long-time-micros",
        *(f"long-{where}timestamp-{unit}" for where in ("", "local-") for unit in ("micros", "nanos")),
    ),
    lambda value, *_: value,
)
"""Temporal types whose numbers fastavro leaves alone: Python's types end with the year 9999."""


def file_rows(location: str, file_format: str, schema: Schema) -> list[dict[str, Any]]:
    """The rows of one data file, read by the format's own library, without Iceberg."""
    path = Path(location.removeprefix("file://"))
    match file_format:
        case "PARQUET":
            found = arrow_rows(pq.ParquetFile(path).read())
        case "ORC":
            found = arrow_rows(_orc(path))
        case _:
            with path.open("rb") as file, mock.patch.dict(fastavro.read.LOGICAL_READERS, _NUMBERS):
                records: Iterable[Any] = fastavro.reader(file)
                found = list(records)
    struct = schema.as_struct()
    return [fit(row, struct) for row in found]


def arrow_rows(table: pa.Table) -> list[dict[str, Any]]:
    columns = [values(column) for column in table.columns]
    names = table.column_names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] if columns else []


def values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """As ``to_pylist``, but times stay integers, which Python's types could not hold, and uuids bytes."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in values(chunk)]
    kind = column.type
    if isinstance(column, pa.StructArray):
        children = [values(child) for child in column.flatten()]
        names = column.type.names
        return [
            dict(zip(names, (child[i] for child in children), strict=True)) if there else None
            for i, there in enumerate(column.is_valid().to_pylist())
        ]
    if isinstance(column, pa.MapArray):
        return _repeated(column, list(zip(values(column.keys), values(column.items), strict=True)))
    if isinstance(column, pa.ListArray | pa.LargeListArray):
        return _repeated(column, values(column.values))
    if isinstance(column, pa.ExtensionArray):
        return _listed(column.storage)
    if pa.types.is_date32(kind):
        return _listed(column.cast(pa.int32()))
    if pa.types.is_timestamp(kind):
        return _numbers(column, kind.unit)
    if pa.types.is_time(kind):
        return _listed(column.cast(pa.int64()))
    return _listed(column)


def _listed(column: pa.Array) -> list[Any]:
    found: list[Any] = column.to_pylist()
    return found


def _numbers(column: pa.Array, unit: str) -> list[Any]:
    numbers = column.cast(pa.int64()).to_pylist()
    return numbers if unit == "us" else [None if n is None else Nanos(n) for n in numbers]


def _repeated(column: pa.ListArray | pa.LargeListArray, items: list[Any]) -> list[Any]:
    offsets = column.offsets.to_pylist()
    return [
        items[offsets[i] : offsets[i + 1]] if there else None for i, there in enumerate(column.is_valid().to_pylist())
    ]


_EPOCH = date(1970, 1, 1)


def fit(value: Any, kind: IcebergType) -> Any:
    """A value as another library gives it, in the plain form of its Iceberg type."""
    if value is None:
        return None
    match kind:
        case StructType():
            return {f.name: fit(value.get(f.name), f.field_type) for f in kind.fields}
        case ListType():
            return [fit(item, kind.element_type) for item in value]
        case MapType():
            pairs = value.items() if isinstance(value, dict) else [_pair(item) for item in value]
            return [(fit(k, kind.key_type), fit(v, kind.value_type)) for k, v in pairs]
    match value:
        case Nanos():
            return int(value) if str(kind) in NANOS else value // 1000
        case bytes() if str(kind) == "uuid":
            return uuid.UUID(bytes=value)
        case str() if str(kind) == "uuid":
            return uuid.UUID(value)
        case datetime():
            return micros_of(value)
        case date():
            return (value - _EPOCH).days
        case time():
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        case Decimal() if value == 0:
            return abs(value)
    return value


def _pair(item: Any) -> tuple[Any, Any]:
    return (item["key"], item["value"]) if isinstance(item, dict) else item
