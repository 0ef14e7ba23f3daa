"""Values of columns in one plain form, in which they can be compared: whole numbers for moments, dates and decimals,
bytes for texts. Bounds in manifests, values in files and partition values all become this form.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any

from calving.audit.storage import DamagedFileError

PlainValue = int | float | bytes
_NUMBERS = {"int": 4, "long": 8, "date": 4, "time": 8}
_MOMENTS = {"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"}
_TEXTS = {"string", "binary", "uuid"}
_NARROWED = {8: 4}
"""A bound may have been written before its column was widened."""
_EXACT = Context(prec=80)
"""More digits than any decimal of Iceberg has; Python's own context rounds to 28."""
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A primitive column. ``repeated``: it is inside a list or a map. ``was_float``: it is a double, and was a float in
    an earlier schema, so that rows of then have fewer digits than their records.
    """

    name: str
    kind: str
    repeated: bool
    was_float: bool = False


def primitive_columns(schemas: list[Mapping[str, Any]]) -> dict[int, TableColumn]:
    """The primitive columns that any schema of the table has, by field id; the last schema counts."""
    found: dict[int, TableColumn] = {}
    for schema in sorted(schemas, key=lambda each: each.get("schema-id", 0)):
        for number, column in _leaves(schema, "", 0, repeated=False):
            before = found.get(number, column)
            was_float = column.kind == "double" and (before.kind == "float" or before.was_float)
            found[number] = replace(column, was_float=was_float)
    return found


def _leaves(kind: Any, name: str, field_id: int, *, repeated: bool) -> Iterator[tuple[int, TableColumn]]:
    if isinstance(kind, str):
        yield field_id, TableColumn(name, kind, repeated)
        return
    dotted = f"{name}." if name else ""
    match kind["type"]:
        case "struct":
            for field in kind["fields"]:
                yield from _leaves(field["type"], f"{dotted}{field['name']}", field["id"], repeated=repeated)
        case "list":
            yield from _leaves(kind["element"], f"{dotted}element", kind["element-id"], repeated=True)
        case "map":
            yield from _leaves(kind["key"], f"{dotted}key", kind["key-id"], repeated=True)
            yield from _leaves(kind["value"], f"{dotted}value", kind["value-id"], repeated=True)


def field_ids(kind: Any) -> Iterator[int]:
    """The ids of all fields in a type, also of those inside lists and maps."""
    if isinstance(kind, str):
        return
    for field in kind.get("fields", ()):
        yield field["id"]
        yield from field_ids(field["type"])
    for part in ("element", "key", "value"):
        if part in kind:
            yield kind[f"{part}-id"]
            yield from field_ids(kind[part])


def column_paths(kind: Mapping[str, Any], above: tuple[int, ...] = ()) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each column outside of lists and maps, with the ids of the structs around it and its own."""
    for field in kind["fields"]:
        path = (*above, field["id"])
        yield field["id"], path
        if isinstance(field["type"], Mapping) and field["type"]["type"] == "struct":
            yield from column_paths(field["type"], path)


def has_order(kind: str) -> bool:
    """Whether the bounds of a column of this type can be compared. Engines do not agree on the order of UUIDs."""
    return (
        kind in _NUMBERS
        or kind in _MOMENTS
        or is_ordered_text(kind)
        or kind in ("boolean", "float", "double")
        or (_DECIMAL.fullmatch(kind) is not None)
    )


def is_ordered_text(kind: str) -> bool:
    """Whether values of this type are ordered by their bytes."""
    return kind in ("string", "binary") or kind.startswith("fixed[")


def from_bound(kind: str, value: bytes) -> PlainValue:
    """A value in the single-value serialization of Iceberg.

    :raises DamagedFileError: no value of this type has so many bytes.
    """
    if kind in _NUMBERS or kind in _MOMENTS:
        size = _NUMBERS.get(kind, 8)
        _check_size(kind, value, size, _NARROWED.get(size, size))
        return int.from_bytes(value, "little", signed=True)
    if kind == "boolean":
        _check_size(kind, value, 1, 1)
        return value[0]
    if kind in ("float", "double"):
        _check_size(kind, value, 8 if kind == "double" else 4, 4)
        number: float = struct.unpack("<d" if len(value) == 8 else "<f", value)[0]
        return number
    if _DECIMAL.fullmatch(kind):
        return int.from_bytes(value, "big", signed=True)
    return bytes(value)


def _check_size(kind: str, value: bytes, size: int, before: int) -> None:
    if len(value) not in (size, before):
        raise DamagedFileError(f"{len(value)} bytes are no value of type {kind}")


def from_avro(kind: str, value: Any) -> PlainValue | None:
    """A value of an Avro file that was read without logical types."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray):
        return int.from_bytes(value, "big", signed=True) if _DECIMAL.fullmatch(kind) else bytes(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    raise DamagedFileError(f"{type(value).__name__} is no value of type {kind}")


def unscaled(value: Decimal, scale: int) -> int:
    """A decimal without its point."""
    return int(value.scaleb(scale, _EXACT))


def is_nan(value: PlainValue | None) -> bool:
    """Whether a plain value is no number."""
    return isinstance(value, float) and math.isnan(value)


def is_same(one: PlainValue | None, other: PlainValue | None) -> bool:
    """Whether two plain values are equal; a NaN equals itself."""
    return one == other or (is_nan(one) and is_nan(other))
