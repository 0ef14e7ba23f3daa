"""Bloom filters of Parquet files, asked by DuckDB: a value that is in a row group must not be ruled out there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import duckdb
import pyarrow.parquet as pq
from pyiceberg.types import BinaryType, DoubleType, IntegerType, NestedField, StringType

from calving.model.files import DataFile
from tests.fuzz.blocks import BLOOM, Case

_ABSENT = 6
"""Values that are not there. That none of them is ruled out happens once in a million times where one in ten may be taken
for one that is there.
"""
_QUERY = "SELECT row_group_id, bloom_filter_excludes FROM parquet_bloom_probe(?, ?, ?)"


def faults(case: Case, field: NestedField, file: DataFile, random: Random) -> Iterator[str]:
    """What is wrong with the filters of one column of a file."""
    path = file.file_path.removeprefix("file://")
    groups = _groups(path, field.name)
    there = sorted({v for values in groups for v in values if _can_be_asked(v)})
    ruled_out: Counter[int] = Counter()
    with duckdb.connect() as connection:
        for value in random.sample(there, min(len(there), 4)):
            for group, excluded in connection.execute(_QUERY, [path, field.name, value]).fetchall():
                if excluded and value in groups[group]:
                    yield f"the Bloom filter rules out {field.name} = {str(value)[:60]!r}, which row group {group} holds"
        if not there or not _tells(case, field):
            return
        for n in range(_ABSENT):
            for group, excluded in connection.execute(_QUERY, [path, field.name, _absent(field, n)]).fetchall():
                ruled_out[group] += excluded
    for group, values in enumerate(groups):
        if values and not ruled_out[group]:
            yield f"the Bloom filter of {field.name} in row group {group} rules out nothing"


def _groups(path: str, name: str) -> list[set[Any]]:
    """The values of each row group."""
    file: Any = pq.ParquetFile(path)
    columns = (file.read_row_group(n, columns=[name]).column(0) for n in range(file.num_row_groups))
    return [{value for value in column.to_pylist() if value is not None} for column in columns]


def _can_be_asked(value: Any) -> bool:
    """DuckDB takes both zeros for one number, ends texts at a zero, and asks for bytes as it shows them."""
    match value:
        case bytes():
            return value.isascii() and value.decode().isprintable() and not set(value) & set(b"\\'\"")
        case str():
            return "\0" not in value
    return bool(value == value and value != 0.0)


def _tells(case: Case, field: NestedField) -> bool:
    """Whether the filter is large enough, and its share of false answers small enough, to rule out something."""
    share = float(case.properties.get(f"{BLOOM}fpp.column.{field.name}", "0.01"))
    return share <= 0.1 and f"{BLOOM}max-bytes" not in case.properties


def _absent(field: NestedField, number: int) -> Any:
    match field.field_type:
        case StringType():
            return f"not there {number}"
        case BinaryType():
            return b"not there %d" % number
        case DoubleType():
            return 1234.5 + number
        case IntegerType():
            return 1_000_000_007 + number
    return 10**15 + number
