"""Converts values to Iceberg columns: whole columns if Arrow converts them exactly, otherwise value by value.

    >>> import pyarrow as pa
    >>> from pyiceberg.schema import Schema
    >>> from pyiceberg.types import DecimalType, NestedField
    >>> from calving.casting.table import TableConverter
    >>> from calving.model.record_path import Evolution
    >>> from calving.records.values import Values
    >>> schema = Schema(NestedField(1, "price", DecimalType(9, 2)))
    >>> converter = TableConverter("db.orders", schema, Evolution(), {})
    >>> converted = converter.convert(Values(pa.array([{"price": "12.5"}, {"price": "cheap"}]), False))
    >>> converted.rows.to_pylist(), [bad.index for bad in converted.bad]
    ([{'price': Decimal('12.50')}], [1])

A value that does not fit makes its own record bad. A field without a column asks for a schema change, if the settings
allow it; then there are no rows, and the values are converted again after the change.
"""
