"""The columns of a DataFrame as Arrow's types, of which the rules for tables decide what a table lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

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


def check_names(table: str, schema: spark.StructType, *, fold: bool) -> None:
    """``fold``: names that differ only by case are one name.

    :raises ConfigError: two columns of a DataFrame, or two fields of a struct, have one name; or there are none.
    """
    for path, given in _structs(schema, ()):
        where, what = (f"column {'.'.join(path)}", "fields") if path else ("the DataFrame", "columns")
        if not given:
            raise ConfigError(f"table {table}: {where} has no {what}")
        names = Counter(name.lower() if fold else name for name in given)
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            raise ConfigError(f"table {table}: {where} has two {what} {twice}: rename one")


def _structs(kind: spark.DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """The path of each struct in it, and the names of its fields."""
    match kind:
        case spark.StructType():
            yield path, kind.names
            for each in kind.fields:
                yield from _structs(each.dataType, (*path, each.name))
        case spark.ArrayType():
            yield from _structs(kind.elementType, (*path, "element"))
        case spark.MapType():
            yield from _structs(kind.keyType, (*path, "key"))
            yield from _structs(kind.valueType, (*path, "value"))
        case spark.UserDefinedType():
            yield from _structs(kind.sqlType(), path)


def row_type(table: str, schema: spark.StructType) -> pa.StructType:
    """The type of a DataFrame's rows.

    :raises ConfigError: a column has a type that no column of Iceberg has.
    """
    return _struct(table, schema, "")


def _struct(table: str, kind: spark.StructType, path: str) -> pa.StructType:
    return pa.struct(
        [
            pa.field(each.name, _of(table, each.dataType, f"{path}{each.name}"), nullable=each.nullable)
            for each in kind.fields
        ]
    )


def _of(table: str, kind: spark.DataType, path: str) -> pa.DataType:
    match kind:
        case spark.StructType():
            return _struct(table, kind, f"{path}.")
        case spark.ArrayType():
            element = _of(table, kind.elementType, f"{path}.element")
            return pa.list_(pa.field("element", element, nullable=kind.containsNull))
        case spark.MapType():
            value = _of(table, kind.valueType, f"{path}.value")
            return pa.map_(
                _of(table, kind.keyType, f"{path}.key"), pa.field("value", value, nullable=kind.valueContainsNull)
            )
        case spark.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case spark.UserDefinedType():
            return _of(table, kind.sqlType(), path)
    if type(kind) not in _SIMPLE:
        raise ConfigError(
            f"table {table}: column {path} is {kind.simpleString()}, which calving does not write: cast it to a type"
            " that a table has, such as string"
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
