"""What Debezium's schema changes say of tables: the columns after the change, and those that it has renamed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import pyarrow as pa

from calving.transforms.ddl import renamed_columns

_TEXT = ("CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET")
_TEXT_OF_OTHERS = ("NCHAR", "NVARCHAR", "NTEXT", "UNIQUEIDENTIFIER", "VARCHAR2", "NVARCHAR2")
_SMALL = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER")
TYPES: Mapping[str, pa.DataType] = {
    **dict.fromkeys((*_TEXT, *_TEXT_OF_OTHERS), pa.string()),
    **dict.fromkeys((*_SMALL, "TINYINT UNSIGNED", "SMALLINT UNSIGNED", "MEDIUMINT UNSIGNED"), pa.int32()),
    **dict.fromkeys(("BIGINT", "INT UNSIGNED", "INTEGER UNSIGNED"), pa.int64()),
    **dict.fromkeys(("REAL", "BINARY_FLOAT"), pa.float32()),
    **dict.fromkeys(("DOUBLE", "DOUBLE PRECISION", "BINARY_DOUBLE"), pa.float64()),
}
"""The types of a source whose values have one type in the events, whatever the connector's settings: not decimals,
times and bytes, which ``decimal.handling.mode``, ``time.precision.mode`` and ``binary.handling.mode`` choose, nor types
that mean different things in different databases (``FLOAT``, ``NUMBER``).
"""
_BEHIND = re.compile(r"\s*\(.*?\)|\s+(?:IDENTITY|ZEROFILL)\b")
_PART = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')
_NO_TOPIC = re.compile(r"[^\w.-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class TableChange:
    """One table of a schema change. ``names``: the table's name with its database and schema, the table last.
    ``columns``: those after the change; the type null stands for one that only records can tell. ``renamed``: former
    and new names.
    """

    names: tuple[str, ...]
    columns: Mapping[str, pa.DataType]
    renamed: tuple[tuple[str, str], ...] = ()

    def topics(self, prefix: str) -> list[str]:
        """The topics that may have the records of this table, with the connector's ``topic.prefix``. Only some versions
        write the database before a schema.
        """
        some = [self.names, self.names[1:]] if len(self.names) > 2 else [self.names]
        return [_NO_TOPIC.sub("_", ".".join((prefix, *names))) for names in some]


def table_changes(event: Mapping[str, Any]) -> Iterator[TableChange]:
    """The tables that a schema change of Debezium creates or alters, as the event's fields have them. A table without
    columns, such as a dropped one, is left out.
    """
    changes = [change for change in _list(event.get("tableChanges")) if isinstance(change, Mapping)]
    statement = event.get("ddl")
    renames = renamed_columns(statement) if isinstance(statement, str) and len(changes) == 1 else []
    for change in changes:
        table, name = change.get("table"), change.get("id")
        if change.get("type") in ("CREATE", "ALTER") and isinstance(table, Mapping) and _is_name(name):
            columns = {
                column["name"]: _type(column)
                for column in _list(table.get("columns"))
                if isinstance(column, Mapping) and _is_name(column.get("name"))
            }
            names = tuple((quoted or plain).replace('""', '"') for quoted, plain in _PART.findall(name))
            if columns and len(names) > 1:
                yield TableChange(names, columns, tuple(_certain(renames, columns)))


def _is_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.encode(errors="ignore").decode() == value


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _type(column: Mapping[str, Any]) -> pa.DataType:
    """The type of a column's values in the events; null if it depends on the connector's settings."""
    name, length = str(column.get("typeName") or "").upper(), column.get("length")
    name = _BEHIND.sub("", name).strip()
    if name == "BIT" and length in (1, None):
        return pa.bool_()
    if name == "TINYINT" and length == 1:  # a connector may write it as true and false
        return pa.null()
    return TYPES.get(name, pa.null())


def _certain(renames: list[tuple[str, str]], columns: Mapping[str, pa.DataType]) -> Iterator[tuple[str, str]]:
    """The renames whose new name the table has after the change, and whose former name it has not: not those of two
    columns that change their names with each other.
    """
    spelt: Callable[[str], str | None] = {name.lower(): name for name in columns}.get
    for former, new in renames:
        if spelt(former.lower()) is None and (name := spelt(new.lower())) is not None:
            yield former, name
