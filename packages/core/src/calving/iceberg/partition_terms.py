"""Partition terms of the settings: ``day(ts)``, ``bucket(user, 16)``, ``truncate(name, 4)``, ``country``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
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
from calving.iceberg.schemas import primitive
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


def partition_spec(terms: Sequence[str], schema: Schema, table: str) -> PartitionSpec:
    """The spec of a new table with this schema.

    :raises ConfigError: a term is wrong; the Java sink would create an unpartitioned table instead.
    """
    check_names(terms, schema.column_names, table)
    fields = []
    for number, term in enumerate(terms, 1000):
        column, transform, suffix = parse_term(term, table)
        kind = "timestamptz" if isinstance(transform, TimeTransform) else "string"
        declaration = f'iceberg.table.{table}.columns = "{column} {kind}"'
        try:
            source = schema.find_field(column)
        except ValueError as error:
            raise ConfigError(
                f"table {table}: partition-by '{term}': there is no column '{column}': no record of the first batch has"
                f" a value for it; declare it, such as {declaration}, or correct the term"
            ) from error
        if not transform.can_transform(source.field_type):
            raise ConfigError(
                f"table {table}: partition-by '{term}' cannot be applied to a {source.field_type}: declare another"
                f" type, such as {declaration}, or change the term"
            )
        name = _name(column, suffix)
        fields.append(PartitionField(source_id=source.field_id, field_id=number, transform=transform, name=name))
    return PartitionSpec(*fields)


def check_names(terms: Sequence[str], columns: Collection[str], table: str) -> None:
    """:raises ConfigError: two partition fields of a new table, or one and another column, would have the same name."""
    names: set[str] = set()
    for term in terms:
        column, _, suffix = parse_term(term, table)
        name = _name(column, suffix)
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
    return tuple(name for column, _, suffix in parsed if (name := _name(column, suffix)) != column)


def _name(column: str, suffix: str) -> str:
    return column.replace(".", "_") + suffix


def takes(transform: Transform[Any, Any], kind: InferredType) -> bool:
    """Whether columns of this type can be partitioned by ``transform``."""
    return isinstance(kind, str) and transform.can_transform(primitive(kind))


def temporal(term: str, table: str) -> str | None:
    """The column of a term of time, such as ``day(ts)``; None for other terms."""
    column, transform, _ = parse_term(term, table)
    return column if isinstance(transform, TimeTransform) else None


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
    if name in ("bucket", "truncate") and len(arguments) == 2 and arguments[1].isdigit():
        size = int(arguments[1])
        if not 0 < size <= _MOST:
            raise ConfigError(f"table {table}: partition-by '{term}': {arguments[1]} must be from 1 to {_MOST}")
        if name == "bucket":
            return arguments[0], BucketTransform(size), "_bucket"
        return arguments[0], TruncateTransform(size), "_trunc"
    raise ConfigError(
        f"table {table}: partition-by '{term}' is not understood: use year, month, day or hour(column),"
        " bucket(column, N), truncate(column, W), or a column"
    )
