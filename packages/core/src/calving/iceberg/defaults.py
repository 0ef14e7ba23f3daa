"""The default values of columns that are made for records whose schema declares defaults for their fields."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from pyiceberg.conversions import to_json
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    UUIDType,
)

from calving.casting.exact import primitive
from calving.casting.numbers import short
from calving.errors import first_line
from calving.records.calendar import timestamp_text
from calving.records.failures import pass_on
from calving.records.inferred import InferredType
from calving.records.schema_defaults import default_value
from calving.records.semantics import PER_SECOND

log = logging.getLogger(__name__)

SINCE = 3
"""The first format version with defaults."""
_IGNORED = "table %s: column '%s' has no default value: the one that the records' schema declares is not used: %s"
_TOO_EARLY = (
    "table %s: the records' schema declares default values, for which format version %d has no place: its columns have"
    " none; %s"
)

Path = tuple[str, ...]


def with_defaults(table: str, columns: StructType, kind: InferredType, *, initial: bool) -> StructType:
    """The columns with the defaults that the inferred type of their rows has. ``initial``: whether rows that are older
    than the columns have them, too.
    """
    return _Defaults(table, initial).of(columns, kind, ())  # type: ignore[no-any-return]


def warn_of_version(table: str, kind: InferredType, version: int, advice: str) -> None:
    """Say so if a table of an earlier format version cannot have the defaults that the type has."""
    if any(texts for texts in _declared(kind)):
        log.warning(_TOO_EARLY, table, version, advice)


def _declared(kind: Any) -> Iterator[Any]:
    match kind:
        case {"struct": fields}:
            yield from kind.get("defaults", {}).values()
            parts = [*fields.values()]
        case {"list": element}:
            parts = [element]
        case {"map": [_, value]}:
            parts = [value]
        case _:
            return
    for part in parts:
        yield from _declared(part)


class _Defaults:
    def __init__(self, table: str, initial: bool) -> None:
        self._table, self._initial = table, initial

    def of(self, column: IcebergType, kind: Any, path: Path) -> Any:
        """The type of a column, with the defaults of the fields inside it. No key of a map has one."""
        match column, kind:
            case StructType(), {"struct": kinds}:
                declared = kind.get("defaults", {})
                return StructType(
                    *(self._field(f, kinds[f.name], declared.get(f.name, ()), (*path, f.name)) for f in column.fields)
                )
            case ListType(), {"list": element}:
                inside = self.of(column.element_type, element, (*path, "element"))
                return ListType(column.element_id, inside, element_required=column.element_required)
            case MapType(), {"map": [_, value]}:
                inside = self.of(column.value_type, value, (*path, "value"))
                ids = column.key_id, column.key_type, column.value_id
                return MapType(*ids, inside, value_required=column.value_required)
        return column

    def _field(self, field: NestedField, kind: Any, texts: Sequence[str], path: Path) -> NestedField:
        known = {"id": field.field_id, "name": field.name, "required": field.required}
        inside = {**known, "type": self.of(field.field_type, kind, path)}
        if not texts:
            return NestedField(**inside)
        try:
            default = column_default(field.field_type, texts)
            defaults = {"write-default": default, **({"initial-default": default} if self._initial else {})}
            return NestedField(**inside, **defaults)
        except Exception as error:  # of any value, also of pyiceberg's
            pass_on(error)
            log.warning(_IGNORED, self._table, ".".join(path), first_line(error))
            return NestedField(**inside)


def column_default(kind: IcebergType, texts: Sequence[str]) -> Any:
    """The default of a column of this type, as the table's schema has it in JSON, of the texts of all defaults that
    schemas declare for it.

    :raises ValueError, OverflowError, pa.ArrowInvalid: no column can have one of them, or they differ.
    """
    first, *others = [_of_text(kind, text) for text in texts]
    if different := [each for each in others if each != first]:
        raise ValueError(f"the records have schemas with different defaults, {first!r} and {different[0]!r}")
    return first


def _of_text(kind: IcebergType, text: str) -> Any:
    value = default_value(text)
    try:
        return _json(kind, primitive(value, kind))  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{short(value)} is not a {kind}: {first_line(error)}") from error


def _json(kind: PrimitiveType, value: Any) -> Any:
    """A value that ``primitive`` has made, in JSON."""
    if isinstance(kind, TimestampNanoType | TimestamptzNanoType):
        zone = "+00:00" if isinstance(kind, TimestamptzNanoType) else ""
        return timestamp_text(value, PER_SECOND["ns"]) + zone
    if isinstance(value, float) and value - value != 0:
        raise ValueError(f"JSON has no number {value}")
    if isinstance(kind, DecimalType):
        return f"{value:f}"
    return to_json(kind, UUID(bytes=value) if isinstance(kind, UUIDType) else value)
