"""The fields of records as columns of DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from calving.records.arrays import children_of, conform, holds, retyped, struct, take
from calving.records.semantics import SemanticType, moment_type
from calving.transforms.interface import UnfitTypeError
from calving.transforms.sql_query import folded

_NESTING = 63
"""The most levels of a column that Arrow hands to DuckDB. A map has two: it is a list of objects."""


def named(value: pa.StructArray, names: frozenset[str]) -> pa.StructArray:
    """The fields with these names, which are folded."""
    kind = value.type
    places = [place for place, field in enumerate(kind) if folded(field.name) in names]
    if len(places) == kind.num_fields:
        return value
    columns = children_of(value) if value.null_count else None
    chosen = [value.field(place) if columns is None else columns[place] for place in places]
    return struct(chosen, pa.struct([kind.field(place) for place in places]), None, len(value))


def given(value: pa.StructArray) -> list[pa.Array]:
    """The columns as DuckDB gets them: with dates, times and timestamps instead of numbers that mean them."""
    return [
        _whole(conform(column, retyped(column.type, moment_type)) if holds(column.type, _is_semantic) else column)
        for column in children_of(value)
    ]


def _is_semantic(kind: pa.DataType) -> bool:
    return isinstance(kind, SemanticType)


def meanings(kind: pa.StructType, names: Sequence[str]) -> dict[str, SemanticType]:
    """The meanings that DuckDB has no types for, by the names of its columns."""
    of = {name: field.type for name, field in zip(names, kind, strict=True) if isinstance(field.type, SemanticType)}
    return {name: meant for name, meant in of.items() if not pa.types.is_temporal(moment_type(meant))}


def _whole(column: pa.Array) -> pa.Array:
    """The column in a form that DuckDB reads correctly. From a slice of an array, DuckDB reads objects within objects
    from the array's beginning.
    """
    return take(column, pa.array(range(len(column)), pa.int32())) if _is_part(column) else column


def _is_part(column: pa.Array) -> bool:
    if not pa.types.is_nested(column.type):
        return False
    inside = [column.field(i) for i in range(column.type.num_fields)] if isinstance(column, pa.StructArray) else []
    return column.offset > 0 or any(child.offset > 0 or _is_part(child) for child in inside)


def check(kind: pa.StructType) -> None:
    """:raises UnfitTypeError: DuckDB has no such values, or they cannot be sent to it."""
    for field in kind:
        if _levels(field.type) > _NESTING:
            most = f"{_NESTING} levels of objects, lists and maps, and a map has two"
            raise UnfitTypeError(f"field '{field.name}': SQL takes at most {most}")
        if holds(field.type, _is_empty):
            raise UnfitTypeError(f"field '{field.name}': SQL knows no objects without fields")
        if holds(field.type, _collides):
            raise UnfitTypeError(f"field '{field.name}': SQL cannot tell fields apart that differ by case only")


def _is_empty(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and not kind.num_fields


def _collides(kind: pa.DataType) -> bool:
    """Whether an object has fields that are one to DuckDB."""
    return pa.types.is_struct(kind) and len({folded(field.name) for field in kind}) < kind.num_fields


def once(names: Sequence[str]) -> list[str]:
    """Of names that are one to DuckDB the last."""
    return list({folded(name): name for name in names}.values())


def distinct(fields: Sequence[str]) -> list[str]:
    """Names that DuckDB tells apart. A field that has no other of its name keeps it."""
    counts = Counter(map(folded, fields))
    names = []
    for place, field in enumerate(fields):
        name = field if counts[folded(field)] == 1 else f"{field}__{place}"
        while name != field and folded(name) in counts:
            name += "_"
        names.append(name)
    return names


def _levels(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _levels(kind.storage_type)
    if not pa.types.is_nested(kind):
        return 1
    return 1 + max((_levels(kind.field(i).type) for i in range(kind.num_fields)), default=0)
