"""Splits schemaless values into the columns of a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain, repeat
from typing import Any

import pyarrow as pa
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    StructType,
)

from calving.records.fields import Lookup


@dataclass(slots=True)
class ObjectColumns:
    """``items``: the values of each column, by its id. ``missing``: the rows that lack the field of a column with a
    default, by its id. ``new``: row, name and value of fields without a column.

    ``no_objects``: rows whose value is not an object.
    """

    items: Mapping[int, Sequence[Any]]
    missing: Mapping[int, Set[int]]
    new: list[tuple[int, str, object]] = field(default_factory=list)
    no_objects: list[int] = field(default_factory=list)


def columns_of(
    values: Sequence[object],
    struct: StructType,
    lookup: Lookup,
    *,
    whole: bool,
    learned_names: int,
    defaults: Collection[int],
) -> ObjectColumns:
    """The values by column. ``whole``: fields without a column are returned, too. ``learned_names``: the columns of at
    most this many names are cached. ``defaults``: the ids of columns with a default.
    """
    if {*map(type, values)} == {dict}:
        known = _by_name(values, struct, lookup, whole=whole, defaults=defaults)  # type: ignore[arg-type]
        if known is not None:
            return known
    return _one_by_one(values, struct, lookup, learned_names, defaults)


def _by_name(
    records: Sequence[dict[str, Any]], struct: StructType, lookup: Lookup, *, whole: bool, defaults: Collection[int]
) -> ObjectColumns | None:
    """The fast path, name by name; None if several names lead to one column, or if a needed name leads to none."""
    names = {*chain.from_iterable(records)}
    targets = {name: target for name in names if (target := lookup.find(name)) is not None}
    known = {target.field_id: name for name, target in targets.items()}
    if len(known) < len(targets) or (whole and len(targets) < len(names)):
        return None
    nothing = [None] * len(records)
    by_column = {i: [*map(dict.get, records, repeat(name))] for i, name in known.items()}
    items = {f.field_id: by_column.get(f.field_id, nothing) for f in struct.fields}
    missing = {
        i: {row for row, record in enumerate(records) if i not in known or known[i] not in record}
        for i in items.keys() & defaults
    }
    return ObjectColumns(items, missing)


def _one_by_one(
    values: Sequence[object], struct: StructType, lookup: Lookup, learned_names: int, defaults: Collection[int]
) -> ObjectColumns:
    items: dict[int, list[object]] = {f.field_id: [None] * len(values) for f in struct.fields}
    missing = {i: {*range(len(values))} for i in items.keys() & defaults}
    taken = ObjectColumns(items, missing)
    columns: dict[str, int | None] = {}
    for i, value in enumerate(values):
        if not isinstance(value, dict):
            taken.no_objects.append(i)
            continue
        for name, item in value.items():
            try:
                column = columns[name]
            except KeyError:
                target = lookup.find(name)
                column = None if target is None else target.field_id
                if len(columns) < learned_names:
                    columns[name] = column
            if column is not None:
                items[column][i] = item
                if column in missing:
                    missing[column].discard(i)
            elif item is not None:
                taken.new.append((i, name, item))
    return taken


def simple_column(values: Sequence[Any], kind: IcebergType, *, keeps: bool) -> pa.Array | None:
    """Values of one simple kind as a column for which ``cast`` gives the same results as ``exact``; None if there is no
    such column. ``keeps``: no value may lose digits.
    """
    kinds = {*map(type, values)}
    kinds.discard(type(None))
    if kinds <= {Decimal, int} and isinstance(kind, FloatType | DoubleType) and not keeps:
        try:
            return pa.array([None if v is None else float(v) for v in values], pa.float64())
        except OverflowError:
            return None
    simple = _SIMPLE.get(next(iter(kinds))) if len(kinds) == 1 else None
    if simple is None:
        return None
    try:
        return pa.array(values, simple)
    except (OverflowError, ValueError):
        return None


_SIMPLE = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}
