"""Which of DuckDB's types a column may have behind ``Sql``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.records.arrays import holds
from calving.records.leaves import leaves

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
