"""The fields of records as columns of DuckDB."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.records.arrays import children_of, conform, holds, retyped, struct, take
from calving.records.semantics import SemanticType, moment_type
from calving.transforms.columns import leaves
from calving.transforms.interface import UnfitTypeError
from calving.transforms.sql_query import folded

MOST_LEVELS = 1_000
"""The most levels of JSON within a text. JSON of more levels is no JSON to calving's own reader either."""

_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{\]}]', re.DOTALL)
_OPENING = ("[", "{", "u005", "u007")
"""What opens a level. Within a string that a query may take out of its JSON, it may be escaped."""


def deep_rows(columns: Iterable[pa.Array]) -> set[int]:
    """The rows with a text, at any depth of objects and lists, whose JSON has more levels than a function may read, or
    has such JSON in a string.
    """
    return {row for column in columns for array, rows in leaves(column) for row in _deep(array, rows)}


def _deep(array: pa.Array, rows: pa.Array) -> Iterator[int]:
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        counts = reduce(pc.add, (pc.count_substring(array, opening) for opening in _OPENING))
        for place in pc.indices_nonzero(pc.fill_null(pc.greater(counts, MOST_LEVELS), False)).to_pylist():
            value = array[place].as_py()
            if _is_deep(value if isinstance(value, str) else value.decode("latin-1")):
                yield rows[place].as_py()


def _is_deep(text: str) -> bool:
    """Whether one of the JSON values in a text, or in a string of one, has too many levels. What is not closed is no
    JSON: functions refuse it.
    """
    texts = [text]
    while texts:
        level = most = 0
        for token in _TOKENS.finditer(texts.pop()):
            word = token[0]
            if word[0] == '"':
                if sum(map(word.count, _OPENING)) > MOST_LEVELS:
                    texts.append(_unescaped(word))
            elif word in "[{":
                level += 1
                most = max(most, level)
            else:
                level = max(level - 1, 0)
                if level == 0 and most > MOST_LEVELS:
                    return True
                most = 0 if level == 0 else most
    return False


def _unescaped(string: str) -> str:
    try:
        return str(json.loads(string, strict=False))
    except ValueError:  # functions refuse it, too
        return ""


_EXACT = frozenset(
    {
        "boolean",
        "tinyint",
        "smallint",
        "integer",
        "bigint",
        "hugeint",
        "utinyint",
        "usmallint",
        "uinteger",
        "ubigint",
        "float",
        "double",
        "decimal",
        "varchar",
        "uuid",
        "blob",
        "geometry",
        "date",
        "time",
        "time_ns",
        "timestamp",
        "timestamp_s",
        "timestamp_ms",
        "timestamp_ns",
        "timestamp with time zone",
        "sqlnull",
    }
)
"""Types of single values that a table has, too, and whose values DuckDB gives to Arrow as they are. Not among them are
UHUGEINT, which becomes negative, TIME WITH TIME ZONE, which loses its offset, and BIT and BIGNUM, which become DuckDB's
own bytes.
"""


def is_exact(kind: Any) -> bool:
    """Whether a column of this type of DuckDB comes to a table with the values that it has in the query."""
    return kind.id == "enum" or _is_exact(kind)


def _is_exact(kind: Any) -> bool:
    if kind.id not in ("list", "map", "struct"):
        return kind.id in _EXACT
    names = [name for name, _ in kind.children]
    return all(names) and len({*names}) == len(names) and all(_is_exact(inner) for _, inner in kind.children)


def infinite_rows(array: pa.Array) -> set[int]:
    """The rows with a TIMESTAMP_NS that is infinite. As a number of Arrow, it is a moment of the year 1677 or 2262; all
    other infinite times are beyond any year.
    """
    found: set[int] = set()
    if holds(array.type, _is_ns):
        for leaf, rows in leaves(array):
            if _is_ns(leaf.type):
                found.update(rows.filter(pc.is_in(leaf.cast(pa.int64()), _INFINITE)).to_pylist())
    return found


_INFINITE = pa.array([2**63 - 1, 1 - 2**63], pa.int64())


def _is_ns(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.unit == "ns"


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
