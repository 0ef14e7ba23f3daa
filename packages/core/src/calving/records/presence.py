"""Tells fields that a record lacks from fields that it gives as null.

A field is missing from values if their type has no such field: values that lack different fields are in different
columns. So presence needs no place of its own. Slices and transforms keep it, and in Python objects it is there anyway.

Schemaless values that are read whole are like this by nature (``shapes``), and so are typed ones, of which the schema
has the field or not. Only where one column holds values that lack different fields does a decoder divide them, by what
is here:

* JSON that is read for the columns of a table: the decoder in Rust tells which of the ``Field.tracked`` ones each row
  lacks.
* JSON with a JSON Schema, whose properties may be missing: ``missing_from`` looks at the values.
* Protobuf, which has no null: ``nulls_apart`` finds the fields without a value in the column.

They do so only for fields in ``Projection.presence``: those whose absence is not the same as null, because a column has
a default value for it (``defaults``), or keeps its value. Without such a column, nothing is looked at and nothing is
divided. Within arrays and maps of values with a schema, a missing field is null. Before transforms these are the fields
of which those for the columns are made (``Chain.presence``).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import pyarrow as pa

from calving.records.arrays import Indices, children_of, chosen, struct
from calving.records.values import Values

FieldPath = tuple[str, ...]
"""The names that lead to a field through structs."""
Missing = frozenset[FieldPath]


@dataclass(frozen=True, slots=True)
class EveryNameBut:
    """All names but these (in lower case)."""

    names: frozenset[str]

    def __contains__(self, name: object) -> bool:
        return name not in self.names


def divided(column: pa.StructArray, rows: Mapping[Missing, Indices]) -> list[tuple[pa.StructArray, Indices]]:
    """The values by the fields that they lack, without these fields in their types. ``rows``: the ascending rows that
    lack these fields.
    """
    return [(_without(chosen(column, places), missing), places) for missing, places in rows.items()]


def _without(column: pa.StructArray, missing: Missing) -> pa.StructArray:
    if not missing:
        return column
    fields, children = [], []
    for field, child in zip(column.type, children_of(column), strict=True):
        inside = frozenset(path[1:] for path in missing if path[0] == field.name)
        if () not in inside:
            child = _without(child, inside)  # type: ignore[arg-type]
            fields.append(field.with_type(child.type))
            children.append(child)
    return struct(children, pa.struct(fields), column.is_null() if column.null_count else None, len(column))


def missing_from(value: Mapping[str, Any], kind: pa.StructType, names: Container[str]) -> Missing:
    """The fields of the type that a value lacks, among those with these names (in lower case)."""
    return frozenset(_missing_from(value, kind, names, ()))


def _missing_from(
    value: Mapping[str, Any], kind: pa.StructType, names: Container[str], path: FieldPath
) -> Iterator[FieldPath]:
    for field in kind:
        if field.name not in value:
            if field.name.lower() in names:
                yield (*path, field.name)
        elif isinstance(field.type, pa.StructType) and value[field.name] is not None:
            yield from _missing_from(value[field.name], field.type, names, (*path, field.name))


def nulls_apart(values: Values, names: Container[str]) -> list[Values]:
    """The values by the fields that are null in them, among those with these names (in lower case)."""
    data = values.data
    nulls = {} if isinstance(data, list) else dict(_nulls(data, names, ()))
    if not nulls or not isinstance(data, pa.StructArray):
        return [values]
    by_nulls: dict[Sequence[bool], list[int]] = {}
    for row, flags in enumerate(zip(*(flags.to_pylist() for flags in nulls.values()), strict=True)):
        by_nulls.setdefault(flags, []).append(row)
    parts = divided(data, {frozenset(compress(nulls, flags)): rows for flags, rows in by_nulls.items()})
    return [values.choose(rows).with_data(part) for part, rows in parts]


def _nulls(column: pa.Array, names: Container[str], path: FieldPath) -> Iterator[tuple[FieldPath, pa.Array]]:
    if isinstance(column, pa.StructArray):
        for field, child in zip(column.type, children_of(column), strict=True):
            if child.null_count and field.name.lower() in names:
                yield (*path, field.name), child.is_null()
            yield from _nulls(child, names, (*path, field.name))
