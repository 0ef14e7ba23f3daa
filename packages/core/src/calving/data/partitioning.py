"""Which partition each row belongs to: vectorised, one sort per block."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import (
    PartitionField,
    PartitionFieldValue,
    PartitionKey,
    PartitionSpec,
    _to_partition_representation,
)
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    UUIDType,
)

from calving.data.avro_types import UUID_FIXED, decimal_size, primitive
from calving.data.conversion.fields import table_schema
from calving.data.spec import TableSpec
from calving.errors import ConfigError
from calving.model import files
from calving.model.files import PartitionTuple


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition: its tuple for the event, and its path below the table's data location (empty: none)."""

    values: PartitionTuple
    path: str


def partitioner(table: TableSpec) -> Partitioner:
    """Splits a table's rows."""
    schema = table_schema(table.schema_json)
    return Partitioner(schema, PartitionSpec.model_validate_json(table.spec_json))


class Partitioner:
    """Splits blocks of a table by its spec."""

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        self._schema, self._spec = schema, spec
        self._fields = partition_fields(schema, spec)
        self._known: dict[tuple[Any, ...], Partition] = {}
        self._transforms: list[Callable[[pa.RecordBatch], pa.Array]] = []
        for field in spec.fields:
            self._transforms.append(column_transform(schema, field))

    @property
    def spec_id(self) -> int:
        return self._spec.spec_id

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """The rows by partition; their order within one is kept."""
        if not self._transforms:
            yield Partition(PartitionTuple(), ""), rows
            return
        keys = pa.table([transform(rows) for transform in self._transforms], names=self._names)
        codes = self._codes(keys)
        order = pc.sort_indices(codes)  # stable
        sorted_codes = codes.take(order)
        runs = pc.run_end_encode(sorted_codes)
        start = 0
        for end in runs.run_ends.to_pylist():
            index = order.slice(start, end - start)
            key = tuple(column[index[0].as_py()].as_py() for column in keys.columns)
            part = rows if end - start == rows.num_rows else rows.take(index)
            yield self._partition(key), part
            start = end

    @property
    def _names(self) -> list[str]:
        return [str(i) for i in range(len(self._transforms))]

    def _codes(self, keys: pa.Table) -> pa.Array:
        """One integer per row, equal where all keys are."""
        codes = pa.array([0] * keys.num_rows, pa.int64())
        for column in keys.columns:
            encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
            codes = _combine(codes, encoded.indices.cast(pa.int64()), len(encoded.dictionary))
        return codes

    def _partition(self, key: tuple[Any, ...]) -> Partition:
        found = self._known.get(key)
        if found is None:
            record, values = [], []
            for field, value in zip(self._spec.fields, key, strict=True):
                source = self._schema.find_field(field.source_id)
                internal = _internal(value, field.transform.result_type(source.field_type))
                record.append(PartitionFieldValue(field, value))
                values.append(internal)
            path = PartitionKey(record, self._spec, self._schema).to_path()
            found = self._known[key] = Partition(PartitionTuple(self._fields, tuple(values)), path)
        return found


def _combine(a: pa.Array, b: pa.Array, size: int) -> pa.Array:
    combined = pc.add(pc.multiply(a, max(size, 1)), b)
    return combined.dictionary_encode().indices.cast(pa.int64())


def column_transform(schema: Schema, field: PartitionField | SortField) -> Callable[[pa.RecordBatch], pa.Array]:
    """What a partition or sort field makes of rows."""
    path = (schema.find_column_name(field.source_id) or "").split(".")
    transform = field.transform.pyarrow_transform(schema.find_type(field.source_id))
    return lambda rows: transform(_column(rows, path))


def _column(rows: pa.RecordBatch, path: list[str]) -> pa.Array:
    column = rows.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def partition_fields(schema: Schema, spec: PartitionSpec) -> tuple[files.PartitionField, ...]:
    """The partition type of a spec, as the events carry it."""
    fields = []
    for field in spec.fields:
        kind = field.transform.result_type(schema.find_type(field.source_id))
        if isinstance(field.transform, DayTransform):
            kind = DateType()
        fields.append(files.PartitionField(field.name, field.field_id, json.dumps(_avro(kind), separators=(",", ":"))))
    return tuple(fields)


def _avro(kind: IcebergType) -> object:
    match kind:
        case UUIDType():
            return UUID_FIXED["name"]
        case FixedType():
            raise ConfigError("partitioning by the identity of a fixed column is not supported: Java cannot read it")
    return primitive(kind)


def _internal(value: Any, kind: IcebergType) -> object:
    """A value as Arrow gives it, in Iceberg's internal form: days, microseconds, unscaled bytes, 16 bytes."""
    match value:
        case datetime() | date() | time():
            return _to_partition_representation(kind, value)
        case Decimal() if isinstance(kind, DecimalType):
            unscaled = int(value.scaleb(kind.scale))
            return unscaled.to_bytes(decimal_size(kind), "big", signed=True)
        case UUID():
            return value.bytes
    return value


def to_record(partition: PartitionTuple, spec: PartitionSpec, schema: Schema) -> Record:
    """The partition as pyiceberg wants it in a manifest."""
    values: list[Any] = []
    for field, value in zip(spec.fields, partition.values, strict=True):
        kind = field.transform.result_type(schema.find_type(field.source_id))
        if isinstance(kind, DecimalType) and isinstance(value, bytes):
            value = Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-kind.scale)
        elif isinstance(kind, UUIDType) and isinstance(value, bytes):
            value = UUID(bytes=value)
        values.append(value)
    return Record(*values)
