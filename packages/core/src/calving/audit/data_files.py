"""The rows of data and delete files, whatever their format: how many there are, and their columns by field id."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from calving.audit.avro import AvroFile, AvroRecord, decoding, not_null
from calving.audit.storage import DamagedFileError
from calving.audit.values import PlainValue, TableColumn, from_avro, is_nan, unscaled

_BATCH = 65_536
_TEXTS = {"string": pa.string(), "binary": pa.binary()}
_IDS = (b"PARQUET:field_id", b"iceberg.id")


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """Some values of a column. ``distinct``: the different ones that are not null. ``absent``: those of the nulls that
    are so because a struct around the column is null.
    """

    rows: int
    nulls: int
    absent: int
    nans: int
    low: PlainValue | None
    high: PlainValue | None
    distinct: Callable[[], list[PlainValue]]


Columns = Mapping[int, ColumnPart]


def count_rows(file_format: str, stream: Any) -> int:
    """The number of rows, as far as possible without reading them.

    :raises DamagedFileError: the file cannot be decoded.
    """
    with decoding():
        match file_format:
            case "PARQUET":
                return int(pq.read_metadata(stream).num_rows)
            case "ORC":
                return int(orc.ORCFile(stream).nrows)
            case "AVRO":
                return AvroFile(stream).count()
    raise DamagedFileError(f"its format {file_format} is not known")


def column_parts(file_format: str, stream: Any, known: Mapping[int, TableColumn]) -> Iterator[tuple[int, Columns]]:
    """The rows of a file in parts: their number, and the values of the columns that are not inside lists or maps.

    :raises DamagedFileError: the file cannot be decoded.
    """
    if file_format == "AVRO":
        yield from _avro_parts(AvroFile(stream), known)
        return
    with decoding():
        batches = _parquet(stream) if file_format == "PARQUET" else _orc(stream)
        for batch in batches:
            yield batch.num_rows, dict(_arrow_parts(batch.columns, batch.schema, known))


def _parquet(stream: Any) -> Iterator[pa.RecordBatch]:
    # Spark once wrote moments as INT96, which reach farther than nanoseconds do.
    yield from pq.ParquetFile(stream, coerce_int96_timestamp_unit="us").iter_batches(_BATCH)


def _orc(stream: Any) -> Iterator[pa.RecordBatch]:
    file = orc.ORCFile(stream)
    columns = None
    for stripe in range(file.nstripes):
        try:
            batch = file.read_stripe(stripe, columns)
        except pa.ArrowInvalid as error:
            if "out of range" not in str(error):
                raise
            # Arrow reads moments of ORC as nanoseconds, and gives no row of a stripe with one that is too far away.
            columns = [field.name for field in file.schema if not _has_moments(field.type)]
            batch = file.read_stripe(stripe, columns)
        yield from (batch.slice(start, _BATCH) for start in range(0, batch.num_rows, _BATCH))


def _has_moments(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_moments(kind.field(at).type) for at in range(kind.num_fields))
    return pa.types.is_timestamp(kind)


def field_id(field: pa.Field) -> int | None:
    """The field id of a column in a Parquet or ORC file."""
    found = next((field.metadata[name] for name in _IDS if field.metadata and name in field.metadata), None)
    return None if found is None else int(found)


def _arrow_parts(
    arrays: Sequence[pa.Array], fields: Any, known: Mapping[int, TableColumn], absent: int = 0
) -> Iterator[tuple[int, ColumnPart]]:
    for array, field in zip(arrays, fields, strict=True):
        if isinstance(array, pa.StructArray):
            yield from _arrow_parts(array.flatten(), array.type, known, array.null_count)
            continue
        column = known.get(field_id(field) or 0)
        if column is not None and not column.repeated and not pa.types.is_nested(array.type):
            yield field_id(field) or 0, _arrow_part(column, _usual(column, array), absent)


def _usual(column: TableColumn, array: pa.Array) -> pa.Array:
    """The values in a form that Arrow can compare. Writers may note another one in ``ARROW:schema``."""
    if isinstance(array, pa.ExtensionArray):
        return array.storage
    form = _TEXTS.get(column.kind)
    if form is None or pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        return array
    return array.cast(form)


def _arrow_part(column: TableColumn, array: pa.Array, absent: int) -> ColumnPart:
    nulls, nans = array.null_count, 0
    values = array.drop_null() if nulls else array
    if pa.types.is_floating(values.type):
        number = pc.is_nan(values)
        nans = pc.sum(number).as_py() or 0
        values = values.filter(pc.invert(number)) if nans else values
    values = _plain(column, values)
    low = high = None
    if len(values):
        bounds = pc.min_max(values)
        low, high = _python(bounds["min"]), _python(bounds["max"])
    return ColumnPart(
        rows=len(array),
        nulls=nulls,
        absent=absent,
        nans=nans,
        low=low,
        high=high,
        distinct=lambda: list(map(_python, values.unique())),
    )


def _plain(column: TableColumn, values: pa.Array) -> pa.Array:
    """Moments, dates and times as whole numbers in the unit of the column."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        unit = "ns" if column.kind.endswith("_ns") else "us"
        return (values if kind.unit == unit else values.cast(pa.timestamp(unit, kind.tz))).cast(pa.int64())
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    if pa.types.is_time(kind):
        return values.cast(pa.time64("us")).cast(pa.int64())
    return values


def _python(scalar: Any) -> PlainValue:
    if pa.types.is_decimal(scalar.type):
        return unscaled(scalar.as_py(), scalar.type.scale)
    value = scalar.as_py()
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return int(value)
    if hasattr(value, "bytes"):
        return bytes(value.bytes)
    found: PlainValue = value
    return found


def _avro_parts(file: AvroFile, known: Mapping[int, TableColumn]) -> Iterator[tuple[int, Columns]]:
    leaves = list(_avro_leaves(file.schema, (), known))
    rows: list[AvroRecord] = []
    for record in file.records():
        rows.append(record)
        if len(rows) == _BATCH:
            yield len(rows), {i: _avro_part(known[i], path, rows) for i, path in leaves}
            rows = []
    if rows:
        yield len(rows), {i: _avro_part(known[i], path, rows) for i, path in leaves}


def _avro_leaves(
    schema: Any, path: tuple[str, ...], known: Mapping[int, TableColumn]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    for field in schema["fields"]:
        kind = not_null(field["type"])
        if isinstance(kind, dict) and kind.get("type") == "record":
            yield from _avro_leaves(kind, (*path, field["name"]), known)
        else:
            column = known.get(field.get("field-id", 0))
            if column is not None and not column.repeated:
                yield field["field-id"], (*path, field["name"])


def _avro_part(column: TableColumn, path: tuple[str, ...], rows: Sequence[AvroRecord]) -> ColumnPart:
    found = [from_avro(column.kind, _at(row, path)) for row in rows]
    values = [each for each in found if each is not None]
    numbers = [each for each in values if not is_nan(each)]
    ordered: Any = numbers
    return ColumnPart(
        rows=len(found),
        nulls=len(found) - len(values),
        absent=sum(_at(row, path[:-1]) is None for row in rows),
        nans=len(values) - len(numbers),
        low=min(ordered, default=None),
        high=max(ordered, default=None),
        distinct=lambda: list(set(numbers)),
    )


def _at(row: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if row is None:
            return None
        row = row.get(name)
    return row
