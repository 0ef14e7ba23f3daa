"""The columns of a table as Spark has them, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pyarrow as pa
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from calving.errors import ConfigError
from calving.records.arrays import entries, items_of, lists, maps, offsets_of, struct

_SIMPLE: dict[type[iceberg.IcebergType], spark.DataType] = {
    iceberg.BooleanType: spark.BooleanType(),
    iceberg.IntegerType: spark.IntegerType(),
    iceberg.LongType: spark.LongType(),
    iceberg.FloatType: spark.FloatType(),
    iceberg.DoubleType: spark.DoubleType(),
    iceberg.StringType: spark.StringType(),
    iceberg.UUIDType: spark.StringType(),
    iceberg.BinaryType: spark.BinaryType(),
    iceberg.FixedType: spark.BinaryType(),
    iceberg.DateType: spark.DateType(),
    iceberg.TimeType: spark.TimeType(6),
    iceberg.TimestampType: spark.TimestampNTZType(),
    iceberg.TimestamptzType: spark.TimestampType(),
}


def chosen(table: str, schema: Schema, names: Sequence[str]) -> Schema:
    """The columns of these names, in this order.

    :raises ConfigError: the table has no such column.
    """
    fields = {field.name: field for field in schema.fields}
    for name in names:
        if name not in fields:
            raise ConfigError(f"table {table} has no column {name}; it has {', '.join(fields)[:1000]}")
    return Schema(*(fields[name] for name in names), schema_id=schema.schema_id)


def frame_schema(table: str, schema: Schema) -> spark.StructType:
    """The columns of the DataFrame.

    :raises ConfigError: Spark has no type for the values of a column.
    """
    return _struct(table, schema.as_struct(), "")


def _struct(table: str, kind: iceberg.StructType, path: str) -> spark.StructType:
    fields = [
        spark.StructField(each.name, _of(table, each.field_type, f"{path}{each.name}"), nullable=not each.required)
        for each in kind.fields
    ]
    return spark.StructType(fields)


def _of(table: str, kind: iceberg.IcebergType, path: str) -> spark.DataType:
    match kind:
        case iceberg.StructType():
            return _struct(table, kind, f"{path}.")
        case iceberg.ListType():
            return spark.ArrayType(_of(table, kind.element_type, f"{path}.element"), not kind.element_required)
        case iceberg.MapType():
            key, value = (_of(table, each, f"{path}.{end}") for each, end in _ends(kind))
            return spark.MapType(key, value, not kind.value_required)
        case iceberg.DecimalType():
            return spark.DecimalType(kind.precision, kind.scale)
    if type(kind) not in _SIMPLE:
        raise ConfigError(
            f"table {table}: column {path} is {kind}, whose values calving does not hand to Spark: name the other"
            " columns in the option columns"
        )
    return _SIMPLE[type(kind)]


def _ends(kind: iceberg.MapType) -> Sequence[tuple[iceberg.IcebergType, str]]:
    return (kind.key_type, "key"), (kind.value_type, "value")


def as_spark(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values of a column in the Arrow type that Spark expects: the same values."""
    nulls = array.is_null() if array.null_count else None
    if isinstance(array, pa.StructArray) and isinstance(kind, pa.StructType):
        children = [as_spark(array.field(i), each.type) for i, each in enumerate(kind)]
        return struct(children, kind, nulls, len(array))
    if isinstance(array, pa.MapArray) and isinstance(kind, pa.MapType):
        keys, values = entries(array)
        return maps(offsets_of(array), as_spark(keys, kind.key_type), as_spark(values, kind.item_type), kind, nulls)
    if isinstance(array, pa.ListArray) and isinstance(kind, pa.ListType):
        return lists(offsets_of(array), as_spark(items_of(array), kind.value_type), kind, nulls)
    if isinstance(array, pa.ExtensionArray):  # UUIDs are the only ones
        texts = [None if each is None else str(UUID(bytes=each)) for each in array.storage.to_pylist()]
        return pa.array(texts, kind)
    return array.cast(kind)
