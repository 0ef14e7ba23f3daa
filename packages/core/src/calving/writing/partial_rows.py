"""Partial rows: changes that lack columns, because their source has left out what did not change (rule M15). Each is
completed by the row before it; rows that follow each other are joined first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from calving.records.arrays import children_of, chosen_rows, struct, take
from calving.writing.changes import find_path

ROOTLESS = "-"
"""In the text of the columns that a row lacks: the row before it is known to be gone."""


def kept_text(ids: Iterable[int], *, rootless: bool = False) -> str:
    """The text for the columns with these ids, which a row lacks."""
    return " ".join([*([ROOTLESS] if rootless else []), *map(str, sorted(ids))])


def kept_ids(text: str) -> frozenset[int]:
    """The ids in such a text."""
    return frozenset(int(word) for word in text.split() if word != ROOTLESS)


def is_rootless(kept: pa.Array) -> pa.Array:
    """For each row, whether the row before it is known to be gone. Null stays null."""
    rootless: pa.Array = pc.match_substring_regex(kept, f"^{ROOTLESS}")
    return rootless


@dataclass(frozen=True, slots=True)
class Joined:
    """One row for each key, as its changes leave it. ``numbers``: of the keys. ``kept``: the columns that a row still
    lacks, maybe none; null if the changes of its key begin with a whole row. ``last``: the place of each key's last
    change.
    """

    rows: pa.RecordBatch
    numbers: pa.Array
    kept: pa.Array
    last: pa.Array


class PartialRows:
    """Joins the changes of each key, in the columns of a schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._paths: dict[int, tuple[int, ...] | None] = {}

    def join(self, rows: pa.RecordBatch, numbers: pa.Array, kept: pa.Array) -> Joined:
        """``rows`` in their order, whose first columns are those of the schema, and the number of each row's key. A
        whole row, and one without a row before it, replaces what was before it.
        """
        places = pa.arange(0, rows.num_rows)
        replaces = pc.or_(kept.is_null(), pc.fill_null(is_rootless(kept), True))
        first = _last_of(numbers, pc.if_else(replaces, places, None), numbers)
        counts = pc.fill_null(pc.greater_equal(places, first), True)
        keys = numbers.filter(counts).unique()
        last = _last_of(numbers, places, keys)
        lacks = {text: kept_ids(text) for text in kept.unique().to_pylist() if text is not None}
        joined, left = chosen_rows(rows, last.to_pylist()), [set[int]() for _ in range(len(keys))]
        for each in sorted(frozenset().union(*lacks.values())):
            path = self._path(each)
            if path is None:  # the column is gone
                continue
            without = pa.array([text for text, ids in lacks.items() if each in ids], pa.string())
            has = pc.and_(counts, pc.invert(pc.is_in(kept, value_set=without)))
            source = _last_of(numbers, pc.if_else(has, places, None), keys)
            joined = _with(joined, path, _at(rows, path), source)
            for place in pc.indices_nonzero(source.is_null()).to_pylist():
                left[place].add(each)
        base = kept.take(_at_keys(first, numbers, keys))
        is_whole = pc.and_(_at_keys(first, numbers, keys).is_valid(), base.is_null()).to_pylist()
        rootless = pc.fill_null(is_rootless(base), False).to_pylist()
        texts = [
            None if whole else kept_text(ids, rootless=gone)
            for ids, whole, gone in zip(left, is_whole, rootless, strict=True)
        ]
        return Joined(joined, keys, pa.array(texts, pa.string()), last)

    def _path(self, field_id: int) -> tuple[int, ...] | None:
        if field_id not in self._paths:
            self._paths[field_id] = find_path(self._schema.fields, field_id)
        return self._paths[field_id]


def _last_of(numbers: pa.Array, places: pa.Array, keys: pa.Array) -> pa.Array:
    """The greatest of the places of each of the keys; null if it has none. ``numbers``: the key of each place."""
    found = pa.table({"key": numbers, "place": places}).group_by("key").aggregate([("place", "max")])
    index = pc.index_in(keys, value_set=found["key"].combine_chunks())
    return found["place_max"].combine_chunks().take(index)


def _at_keys(values: pa.Array, numbers: pa.Array, keys: pa.Array) -> pa.Array:
    """The value of each key. ``values``: one for each place, the same for all places of a key."""
    return values.take(pc.index_in(keys, value_set=numbers))


def _at(rows: pa.RecordBatch, path: Sequence[int]) -> pa.Array:
    """The values of a column, possibly within structs."""
    column: pa.Array = rows.column(path[0])
    for index in path[1:]:
        column = children_of(cast("pa.StructArray", column))[index]
    return column


def _with(rows: pa.RecordBatch, path: Sequence[int], values: pa.Array, source: pa.Array) -> pa.RecordBatch:
    """The rows with those of the values that ``source`` numbers; null without a number."""
    first, *inner = path
    column = _put(rows.column(first), inner, take(values, source))
    return rows.set_column(first, rows.schema.field(first), column)


def _put(column: pa.Array, path: Sequence[int], values: pa.Array) -> pa.Array:
    """The column with these values at a path through its structs. A struct that is null stays null."""
    if not path:
        return values
    column = cast("pa.StructArray", column)
    parts = children_of(column)
    parts[path[0]] = _put(parts[path[0]], path[1:], values)
    return struct(parts, column.type, column.is_null() if column.null_count else None, len(column))
