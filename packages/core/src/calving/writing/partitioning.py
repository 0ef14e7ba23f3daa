"""Finds the partition of each row, one block at a time, and the folder of a partition's files: ``name=value`` for each
field, as Iceberg's own writers name it. Readers use the partition tuple; the path is for people.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    Transform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.errors import BadRecordError, ConfigError
from calving.model import files
from calving.model.files import PartitionTuple
from calving.model.tables import TableSpec
from calving.records.calendar import civil, time_text, timestamp_text
from calving.records.fields import table_schema
from calving.writing.avro_types import UUID_FIXED, decimal_size, primitive
from calving.writing.keys import float_of, key, scaled, unscaled

_LONGEST = 160
"""The most characters of a field in a path. File systems allow 255. A longer value is cut, and gets a suffix that
distinguishes it.
"""
LONGEST_VALUE = 8192
"""The most bytes of a partition value of a record. Each file's event has the file's partition values, and the control
log takes no event of any size.
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
            return _day(value)
        case HourTransform():
            return f"{_day(value // 24)}-{value % 24:02d}"
        case BucketTransform():
            return str(value)
    return _own_text(kind, value)


def _day(days: int) -> str:
    """A day in a folder's name, as Iceberg's Java library has it: for timestamps it has a year of ISO 8601 instead."""
    year, month, day = civil(days)
    return f"{year:04d}-{month:02d}-{day:02d}"


def _own_text(kind: IcebergType, value: Any) -> str:
    match kind:
        case DateType():
            return _day(value)
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


_FLOATS: dict[type[IcebergType], pa.DataType] = {FloatType: pa.float32(), DoubleType: pa.float64()}


def is_divided(spec: PartitionSpec) -> bool:
    """Whether rows are in different partitions under this spec. A field that version 1 has removed is void."""
    return any(not isinstance(field.transform, VoidTransform) for field in spec.fields)


Numbers = int | pa.Array
"""The number of each row's partition; one number if all rows are in the same partition."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition: its tuple for the event, and its path below the table's data location (empty: none)."""

    values: PartitionTuple
    path: str


def partitioner(table: TableSpec) -> Partitioner:
    """The partitioner of a table's rows.

    :raises ConfigError: the table's partition spec does not fit its columns.
    """
    schema = table_schema(table.schema_json)
    return Partitioner(schema, PartitionSpec.model_validate_json(table.spec_json))


class Partitioner:
    """Numbers the partitions of a table in the order in which they first occur."""

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        self._spec = spec
        self._kinds = [_result(schema, field) for field in spec.fields]
        self._fields = partition_fields(schema, spec)
        self._keys = [key(schema, field.source_id, field.transform) for field in spec.fields]
        self._names = [schema.find_column_name(field.source_id) for field in spec.fields]
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._partitions: list[Partition] = []
        self.spec_id: int = spec.spec_id
        self.sources: Sequence[int] = [field.source_id for field in spec.fields]
        """The ids of the columns from which partitions are made."""
        self.only: int | None = None if is_divided(spec) else self._number((None,) * len(spec.fields))
        """The number of the only partition of an unpartitioned table."""

    def numbers(self, rows: pa.RecordBatch, longest: int | None = None) -> Numbers:
        """The number of each row's partition. ``longest``: the most bytes of a partition value; None: any number.

        :raises BadRecordError: a row has a value that has no partition, or a longer one.
        """
        keys = [make(rows) for make in self._keys]
        self._check_lengths(keys, longest)
        if all(map(_is_constant, keys)):
            return self._number(tuple(column[0].as_py() for column in keys))
        tuples: list[tuple[Any, ...]] = [()]
        codes = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
        for column in keys:
            encoded = column.dictionary_encode(null_encoding="encode")
            values = encoded.dictionary.to_pylist()
            both = pc.add(pc.multiply(codes, len(values)), encoded.indices.cast(pa.int64())).dictionary_encode()
            tuples = [
                (*tuples[code // len(values)], values[code % len(values)]) for code in both.dictionary.to_pylist()
            ]
            codes = both.indices.cast(pa.int64())
        return pa.array(map(self._number, tuples), pa.int32()).take(codes)

    def check(self, rows: pa.RecordBatch, longest: int | None = None) -> None:
        """:raises BadRecordError: as ``numbers``."""
        # Every value has a bucket, and hashes take longer than all other keys.
        keys = zip(self._spec.fields, self._keys, strict=True)
        self._check_lengths(
            [None if isinstance(field.transform, BucketTransform) else make(rows) for field, make in keys], longest
        )

    def _check_lengths(self, keys: Iterable[pa.Array | None], longest: int | None) -> None:
        for name, column in zip(self._names, keys, strict=True):
            if longest is not None and column is not None:
                _check_length(name, column, longest)

    def partition(self, number: int) -> Partition:
        """The partition of this number."""
        return self._partitions[number]

    def _number(self, key: tuple[Any, ...]) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._partitions)
            named = zip(self._spec.fields, self._kinds, key, strict=True)
            values = tuple(map(_internal, key, self._kinds))
            self._partitions.append(
                Partition(
                    PartitionTuple(self._fields, values),
                    path((f.name, f.transform, kind, _value(plain, kind)) for f, kind, plain in named),
                )
            )
        return number


def _check_length(name: str | None, column: pa.Array, longest: int) -> None:
    if not pa.types.is_string(column.type) and not pa.types.is_binary(column.type):
        return
    most = pc.max(pc.binary_length(column)).as_py() or 0
    if most > longest:
        raise BadRecordError(f"column '{name}': its partition value has {most} bytes, more than {longest}")


def divide(rows: pa.RecordBatch, numbers: Numbers) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each number, as slices of one batch. The order of rows with the same number is kept."""
    if isinstance(numbers, int):
        yield numbers, rows
        return
    runs = pc.run_end_encode(numbers)
    if len(runs.values) > len(runs.values.unique()):
        order = pc.sort_indices(numbers)  # stable
        runs = pc.run_end_encode(numbers.take(order))
        rows = rows.take(order)
    start = 0
    for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield number, rows.slice(start, end - start)
        start = end


def _is_constant(column: pa.Array) -> bool:
    """Whether all rows have the same value. The ends are compared first, because they mostly differ if any rows do."""
    if not len(column) or column.null_count or column[0] != column[-1]:
        return False
    ends = pc.min_max(column)
    return bool(ends["min"] == ends["max"])


def partition_fields(schema: Schema, spec: PartitionSpec) -> tuple[files.PartitionField, ...]:
    """The partition type of a spec, as the events carry it."""
    fields = []
    for field in spec.fields:
        kind = DateType() if isinstance(field.transform, DayTransform) else _result(schema, field)
        fields.append(files.PartitionField(field.name, field.field_id, json.dumps(_avro(kind), separators=(",", ":"))))
    return tuple(fields)


def to_record(partition: PartitionTuple, spec: PartitionSpec, schema: Schema) -> Record:
    """The partition as pyiceberg needs it for a manifest."""
    values: list[Any] = []
    for field, value in zip(spec.fields, partition.values, strict=True):
        kind = _result(schema, field)
        if isinstance(kind, DecimalType) and isinstance(value, bytes):
            value = scaled(int.from_bytes(value, "big", signed=True), kind.scale)
        elif isinstance(kind, UUIDType) and isinstance(value, bytes):
            value = UUID(bytes=value)
        values.append(value)
    return Record(*values)


def partition_path(values: Record, spec: PartitionSpec, schema: Schema) -> str:
    """The path of a partition in a manifest."""
    kinds = [_result(schema, field) for field in spec.fields]
    return path(
        (f.name, f.transform, kind, values[i]) for i, (f, kind) in enumerate(zip(spec.fields, kinds, strict=True))
    )


def _result(schema: Schema, field: PartitionField) -> IcebergType:
    if isinstance(field.transform, VoidTransform) and field.source_id not in schema.field_ids:
        return IntegerType()  # for null, any type will do; the source column of such a field may be dropped
    return field.transform.result_type(schema.find_type(field.source_id))


def _avro(kind: IcebergType) -> object:
    match kind:
        case UUIDType():
            return UUID_FIXED["name"]
        case FixedType():
            raise ConfigError(
                "Java cannot read a table that is partitioned by the identity of a fixed column: partition by bucket of"
                " that column, or by another column"
            )
    return primitive(kind)


def _value(plain: Any, kind: IcebergType) -> Any:
    """A key as a person would write it: floats are floats again."""
    arrow = _FLOATS.get(type(kind))
    return plain if plain is None or arrow is None else float_of(plain, arrow)


def _internal(plain: Any, kind: IcebergType) -> object:
    """A key in Iceberg's internal form: days, microseconds, unscaled bytes, 16 bytes."""
    if isinstance(plain, Decimal) and isinstance(kind, DecimalType):
        return unscaled(plain).to_bytes(decimal_size(kind), "big", signed=True)
    return _value(plain, kind)
