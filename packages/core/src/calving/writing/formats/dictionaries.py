"""Which columns of a Parquet file are to have a dictionary.

A dictionary of values that hardly repeat costs twice: each value is looked up in a hash table until the dictionary is
full, and indices compress worse than values that resemble their neighbours. Where values repeat it saves both.
Dictionaries and plain values are the encodings that every reader of Iceberg tables takes, old vectorised ones too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from calving.records.arrays import children_of, entries, items_of

_SAMPLE = 4096
_SHORT_SHARE, _LONG_SHARE = 0.75, 0.9
"""Of the sampled values so many may differ: a repeated long value saves more. Measured with zstd, on values that are
drawn from pools and values that follow Zipf's law.
"""
_LONG_BYTES = 16


def repeating(rows: pa.RecordBatch) -> list[str]:
    """The paths of the primitive columns that a dictionary pays for, by the first of these rows, in Parquet's names."""
    sample = rows.slice(0, _SAMPLE)
    return [
        path
        for name, column in zip(sample.schema.names, sample.columns, strict=True)
        for path, leaf in _leaves(column, name)
        if _repeats(leaf)
    ]


def _repeats(column: pa.Array) -> bool:
    valid = len(column) - column.null_count
    if not valid:
        return True
    values = column.storage if isinstance(column.type, pa.BaseExtensionType) else column
    long = values.nbytes >= _LONG_BYTES * len(values)
    return bool(pc.count_distinct(values).as_py() <= valid * (_LONG_SHARE if long else _SHORT_SHARE))


def _leaves(column: pa.Array, path: str) -> Iterator[tuple[str, pa.Array]]:
    kind = column.type
    if pa.types.is_struct(kind):
        for field, child in zip(kind, children_of(column), strict=True):
            yield from _leaves(child, f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        for name, inner in zip(("key", "value"), entries(column), strict=True):
            yield from _leaves(inner, f"{path}.key_value.{name}")
    elif pa.types.is_list(kind):
        yield from _leaves(items_of(column), f"{path}.list.element")
    else:
        yield path, column
