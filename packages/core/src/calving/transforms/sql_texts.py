"""Texts on which DuckDB's functions would overflow the stack, and end the process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from calving.records.arrays import children_of, entries, items_of, offsets_of

MOST_LEVELS = 1_000
"""The most levels of JSON within a text. JSON of more levels is no JSON to calving's own reader either."""

_BRACKETS = re.compile(r"([\[{]|u00[57][bB])|[\]}]|u00[57][dD]")
"""Also brackets within the strings of JSON, and escaped ones: a query may take the string, and read JSON in it."""


def deep_rows(columns: Iterable[pa.Array], count: int) -> set[int]:
    """The rows that have a text, at any depth of objects and lists, with more levels of brackets than a function of
    JSON may read. ``count``: the number of rows.
    """
    rows = pa.array(range(count), pa.int32())
    return {row for column in columns for row in _deep(column, rows)}


def _deep(array: pa.Array, rows: pa.Array) -> Iterator[int]:
    if isinstance(array, pa.ExtensionArray):
        yield from _deep(array.storage, rows)
    elif isinstance(array, pa.StructArray):
        for child in children_of(array):
            yield from _deep(child, rows)
    elif isinstance(array, pa.ListArray | pa.MapArray):
        parts = entries(array) if isinstance(array, pa.MapArray) else (items_of(array),)
        parents = pc.list_parent_indices(pa.ListArray.from_arrays(offsets_of(array), pa.nulls(len(parts[0]))))
        for part in parts:
            yield from _deep(part, rows.take(parents))
    elif pa.types.is_string(array.type):
        opening = reduce(pc.add, (pc.count_substring(array, bracket) for bracket in ("[", "{", "u005", "u007")))
        for place in pc.indices_nonzero(pc.fill_null(pc.greater(opening, MOST_LEVELS), False)).to_pylist():
            if _levels(array[place].as_py()) > MOST_LEVELS:
                yield rows[place].as_py()


def _levels(text: str) -> int:
    level = most = 0
    for bracket in _BRACKETS.finditer(text):
        level += 1 if bracket[1] else -1
        most = max(most, level)
    return most
