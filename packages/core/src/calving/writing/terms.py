"""The partition terms of the settings: ``day(ts)``, ``bucket(user, 16)``, ``truncate(name, 4)``, ``country``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

from calving.errors import ConfigError
from calving.records.declared import UNKNOWN
from calving.records.fields import primitive
from calving.records.foreign import is_compared
from calving.records.inferred import InferredType

_TERM = re.compile(r"(\w+)\((.+)\)")
_CALL = re.compile(r"(years?|months?|days?|hours?|bucket|truncate)[\[({]", re.IGNORECASE)
"""How a term with a wrong bracket begins."""
_MOST = 2**31 - 1
"""Java's Iceberg has numbers of buckets and widths as int."""
_TIMES: dict[str, Callable[[], Transform[Any, Any]]] = {
    name: transform
    for singular, transform in (
        ("year", YearTransform),
        ("month", MonthTransform),
        ("day", DayTransform),
        ("hour", HourTransform),
    )
    for name in (singular, f"{singular}s")
}


_MOMENTS = ("string", "int", "long", "double")
"""Types of schemaless values that may be timestamps: ISO text, or whole numbers."""


def check_names(terms: Sequence[str], columns: Collection[str], table: str) -> None:
    """:raises ConfigError: two partition fields of a new table, or one and another column, would have the same name."""
    names: set[str] = set()
    for term in terms:
        column, _, suffix = parse_term(term, table)
        name = field_name(column, suffix)
        if name in names:
            raise ConfigError(f"table {table}: two terms of its partition-by have the name '{name}': keep one of them")
        if name != column and name in columns:
            raise ConfigError(
                f"table {table}: partition-by '{term}' makes a partition field '{name}', so the table cannot have a"
                " column of this name: rename the column"
            )
        names.add(name)


def partition_names(terms: Sequence[str], table: str) -> tuple[str, ...]:
    """The names of partition fields that no column of a new table can have.

    :raises ConfigError: a term is not understood.
    """
    parsed = (parse_term(term, table) for term in terms)
    return tuple(name for column, _, suffix in parsed if (name := field_name(column, suffix)) != column)


def field_name(column: str, suffix: str) -> str:
    """The name of the partition field of a term on this column."""
    return column.replace(".", "_") + suffix


def takes(transform: Transform[Any, Any], kind: InferredType) -> bool:
    """Whether columns of this type can be partitioned by ``transform``."""
    if not isinstance(kind, str) or kind == UNKNOWN:  # no file has a column of the type unknown
        return False
    if kind.startswith("fixed") and isinstance(transform, IdentityTransform):
        return False  # Java cannot read a table that is partitioned by the identity of a fixed column
    return is_compared(primitive(kind)) and transform.can_transform(primitive(kind))


def becomes_moment(transform: Transform[Any, Any], kind: InferredType) -> bool:
    """Whether a new column with values of this type becomes ``timestamptz``, because it is partitioned by time."""
    return isinstance(transform, TimeTransform) and kind in _MOMENTS


def misfit(term: str, table: str, kind: str) -> str:
    """The reason why a new table whose column of the term has this type cannot be created."""
    column, transform, _ = parse_term(term, table)
    return (
        f"partition-by '{term}' cannot be applied to a {kind}: declare another type, such as"
        f" {_declared_as(column, transform, table)}, or change the term"
    )


def lacks_column(term: str, table: str) -> str:
    """The reason why a new table without the term's column cannot be created."""
    column, transform, _ = parse_term(term, table)
    return (
        f"partition-by '{term}': there is no column '{column}': no record of this batch has a value for it; declare"
        f" it, such as {_declared_as(column, transform, table)}, or correct the term"
    )


def _declared_as(column: str, transform: Transform[Any, Any], table: str) -> str:
    kind = "timestamptz" if isinstance(transform, TimeTransform) else "string"
    return f'iceberg.table.{table}.columns = "{column} {kind}"'


def parse_term(term: str, table: str) -> tuple[str, Transform[Any, Any], str]:
    """The column, the transform, and the suffix that the partition field's name gets after the column's name.

    :raises ConfigError: the term is not understood.
    """
    match = _TERM.fullmatch(term)
    if match is None and not _CALL.match(term):
        return term, IdentityTransform(), ""
    call = ("", "") if match is None else match.groups()
    name, arguments = call[0].lower(), [a.strip() for a in call[1].split(",")]
    if name in _TIMES and len(arguments) == 1:
        return arguments[0], _TIMES[name](), f"_{name.removesuffix('s')}"
    if name in ("bucket", "truncate") and len(arguments) == 2 and arguments[1].isdecimal():
        size = int(arguments[1])
        if not 0 < size <= _MOST:
            raise ConfigError(f"table {table}: partition-by '{term}': {arguments[1]} must be from 1 to {_MOST}")
        if name == "bucket":
            return arguments[0], BucketTransform(size), "_bucket"
        return arguments[0], TruncateTransform(size), "_trunc"
    if name in ("bucket", "truncate") and len(arguments) == 2 and arguments[0].isdigit():
        raise ConfigError(
            f"table {table}: partition-by '{term}' has the column last: write {name}({arguments[1]}, {arguments[0]})"
        )
    raise ConfigError(
        f"table {table}: partition-by '{term}' is not understood: use year, month, day or hour(column),"
        " bucket(column, N), truncate(column, W), or a column"
    )
