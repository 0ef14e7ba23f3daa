"""The default values of columns: what a row gets if its record lacks the field (``presence``), by the column's
``write-default`` of Iceberg's format version 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from calving.records.arrays import arrow, take


class Default(NamedTuple):
    """A default value, as an object of which ``arrays.arrow`` makes columns, and as a column of one row."""

    value: Any
    column: pa.Array

    def repeated(self, count: int) -> pa.Array:
        """The value in so many rows."""
        return take(self.column, pa.repeat(pa.scalar(0, pa.int64()), count))


def defaults_of(columns: StructType, arrow_type: Callable[[IcebergType], pa.DataType]) -> dict[int, Default]:
    """The defaults of these columns and of those inside them, by id. ``arrow_type`` returns the type of a column."""
    defaults = dict[int, Default]()
    for field in with_default(columns):
        kind = arrow_type(field.field_type)
        value = _value(field, kind)
        defaults[field.field_id] = Default(value, arrow([value], kind))
    return defaults


def with_default(kind: IcebergType) -> Iterator[NestedField]:
    """The columns with a default value in a type."""
    match kind:
        case StructType():
            for field in kind.fields:
                if field.write_default is not None:
                    yield field
                yield from with_default(field.field_type)
        case ListType():
            yield from with_default(kind.element_type)
        case MapType():
            yield from with_default(kind.value_type)


def _value(field: NestedField, kind: pa.DataType) -> Any:
    default: Any = field.write_default
    if isinstance(kind, pa.StructType):  # its default has no fields: each has its own
        fields = zip(field.field_type.fields, kind, strict=True)  # type: ignore[attr-defined]
        return {
            inner.name: None if inner.write_default is None else _value(inner, arrow.type) for inner, arrow in fields
        }
    if isinstance(default, UUID):
        return default.bytes
    if not pa.types.is_temporal(kind):
        return default
    # pyiceberg leaves a moment in nanoseconds as text.
    moment = pa.array([default]).cast(kind) if isinstance(default, str) else pa.array([default], kind)
    return moment.cast(pa.int32() if kind.bit_width == 32 else pa.int64())[0].as_py()
