"""The columns of a DataFrame as Arrow's types, of which the rules for tables decide what a table lacks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as spark

from calving.errors import ConfigError

_SIMPLE: dict[type[spark.DataType], pa.DataType] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.StringType: pa.string(),
    spark.CharType: pa.string(),
    spark.VarcharType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", tz="UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
    spark.TimeType: pa.time64("ns"),
}


def row_type(table: str, schema: spark.StructType, *, fold: bool) -> pa.StructType:
    """The type of a DataFrame's rows. ``fold``: names that differ only by case are one name.

    :raises ConfigError: a column has a type that no column of Iceberg has, or two have one name; or there is none.
    """
    if not schema.names:
        raise ConfigError(f"table {table}: the DataFrame has no columns")
    return _Types(table, fold).struct(schema, "")


@dataclass(frozen=True, slots=True)
class _Types:
    """Arrow's types of the columns of a DataFrame for this table."""

    table: str
    fold: bool

    def struct(self, kind: spark.StructType, path: str) -> pa.StructType:
        """The type of a row, or of a struct in it. Of two fields with one name a row would keep the last one."""
        names = Counter(name.lower() if self.fold else name for name in kind.names)
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            raise ConfigError(f"table {self.table}: the DataFrame has two columns {path}{twice}: rename one")
        fields = [
            pa.field(each.name, self.of(each.dataType, f"{path}{each.name}"), nullable=each.nullable)
            for each in kind.fields
        ]
        return pa.struct(fields)

    def of(self, kind: spark.DataType, path: str) -> pa.DataType:
        """The type of a column."""
        match kind:
            case spark.StructType():
                return self.struct(kind, f"{path}.")
            case spark.ArrayType():
                element = self.of(kind.elementType, f"{path}.element")
                return pa.list_(pa.field("element", element, nullable=kind.containsNull))
            case spark.MapType():
                value = pa.field("value", self.of(kind.valueType, f"{path}.value"), nullable=kind.valueContainsNull)
                return pa.map_(self.of(kind.keyType, f"{path}.key"), value)
            case spark.DecimalType():
                return pa.decimal128(kind.precision, kind.scale)
            case spark.UserDefinedType():
                return self.of(kind.sqlType(), path)
        if type(kind) not in _SIMPLE:
            raise ConfigError(
                f"table {self.table}: column {path} is {kind.simpleString()}, which calving does not write: cast it to"
                " a type that a table has, such as string"
            )
        return _SIMPLE[type(kind)]


def one_row(kind: pa.StructType) -> pa.StructArray:
    """A row in which every value is there, whatever it is: changes of a table are asked for by values."""
    return pa.StructArray.from_arrays([_one_value(each.type) for each in kind], fields=list(kind))


def _one_value(kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        return one_row(kind)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), _one_value(kind.value_type), type=kind)
    if pa.types.is_map(kind):
        offsets = pa.array([0, 1], pa.int32())
        return pa.MapArray.from_arrays(offsets, _one_value(kind.key_type), _one_value(kind.item_type), type=kind)
    zeros = pa.py_buffer(bytes(64))
    return pa.Array.from_buffers(kind, 1, [None, *[zeros] * (kind.num_buffers - 1)])
