"""Filters of Spark as conditions on a table's files. Spark filters the rows itself, so a condition only leaves out
files, and a filter that does not become one does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any

from pyiceberg import expressions as of_table
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import datasource as of_spark

_COMPARISONS: dict[type[of_spark.Filter], Any] = {
    of_spark.EqualTo: of_table.EqualTo,
    of_spark.EqualNullSafe: of_table.EqualTo,
    of_spark.GreaterThan: of_table.GreaterThan,
    of_spark.GreaterThanOrEqual: of_table.GreaterThanOrEqual,
    of_spark.LessThan: of_table.LessThan,
    of_spark.LessThanOrEqual: of_table.LessThanOrEqual,
    of_spark.StringStartsWith: of_table.StartsWith,
}
_VALUES: dict[type[iceberg.IcebergType], type] = {
    iceberg.BooleanType: bool,
    iceberg.IntegerType: int,
    iceberg.LongType: int,
    iceberg.StringType: str,
    iceberg.DateType: date,
    iceberg.TimestampType: datetime,
    iceberg.TimestamptzType: datetime,
    iceberg.DecimalType: Decimal,
}
"""The types whose values Spark and Iceberg compare in one way. Of floats they order NaN differently."""


def condition(
    metadata: TableMetadata, columns: Schema, filters: Iterable[of_spark.Filter]
) -> of_table.BooleanExpression:
    """What the filters say about files. ``columns``: those that Spark knows, which may be of another time."""
    found = [each for each in (_one(metadata, columns, f) for f in filters) if each is not None]
    whole: of_table.BooleanExpression = of_table.AlwaysTrue()
    for each in found:
        whole = of_table.And(whole, each)
    return whole


def _one(metadata: TableMetadata, columns: Schema, given: Any) -> of_table.BooleanExpression | None:
    """The filter as a condition on a column of the table of now; None if it is of no use."""
    path = getattr(given, "attribute", ())
    field = next((each for each in columns.fields if path == (each.name,)), None)
    name = _name_of_always(metadata, field) if field is not None else None
    if field is None or name is None:
        return None
    match given:
        case of_spark.IsNull():
            return _condition(of_table.IsNull, name)
        case of_spark.IsNotNull():
            return _condition(of_table.NotNull, name)
        case of_spark.In():
            values = [_value(field.field_type, each) for each in given.value]
            return _condition(of_table.In, name, values) if values and None not in values else None
    value = _value(field.field_type, getattr(given, "value", None))
    kind = _COMPARISONS.get(type(given))
    return kind(name, value) if kind is not None and value is not None else None


def _condition(kind: Any, *about: Any) -> of_table.BooleanExpression:
    """pyiceberg's own models do not show their arguments to a type checker."""
    made: of_table.BooleanExpression = kind(*about)
    return made


def _name_of_always(metadata: TableMetadata, field: iceberg.NestedField) -> str | None:
    """The column's name now, if it always had one type: bounds of files may have an earlier one."""
    types = {str(s.find_type(field.field_id)) for s in metadata.schemas if field.field_id in s.field_ids}
    now = metadata.schema().find_column_name(field.field_id)
    return now if types == {str(field.field_type)} else None


def _value(kind: iceberg.IcebergType, value: Any) -> Any:
    """The value as a literal for the column; None if it is none."""
    wanted = _VALUES.get(type(kind))
    if wanted is None or not isinstance(value, wanted) or isinstance(value, bool) is not (wanted is bool):
        return None
    if isinstance(value, datetime):
        has_zone = value.tzinfo is not None
        return value if wanted is datetime and has_zone is isinstance(kind, iceberg.TimestamptzType) else None
    if isinstance(kind, iceberg.DecimalType) and isinstance(value, Decimal):
        # Python's own context has 28 digits. Without traps, what has more digits than the column becomes NaN.
        scaled = value.quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=kind.precision, traps=[]))
        return scaled if scaled == value else None
    return value
