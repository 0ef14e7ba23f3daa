"""The keys of records: those that name id columns (``id-columns = @key``), and those of rows to delete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from calving.model.dead_letters import Stage
from calving.model.tables import KeyFields, MissingTable, RowMutations, TableSpec
from calving.records.arrays import Indices, children_of
from calving.records.values import Objects, Values
from calving.tasks.selection import Accounts, Routed, Tables
from calving.tasks.spec import TaskSpec
from calving.writing.changes import identity_of

_SHOWN = 200
"""How much of the names of a key's fields is shown, in characters."""


def is_by_key(spec: TaskSpec, tables: Tables) -> bool:
    """Whether the keys of records name the id columns of one of these tables."""
    known = ((spec.tables.get(table) or spec.missing.get(table)) for table in tables)
    return any(each.mutations is not None and each.mutations.by_key for each in known if each is not None)


def any_by_key(spec: TaskSpec) -> bool:
    """Whether the keys of records name the id columns of one of the task's tables."""
    return is_by_key(spec, (*spec.tables, *spec.missing))


def by_key_fields(keys: pa.Array | Objects) -> Iterator[tuple[KeyFields, Indices]]:
    """The rows of the keys that have values in the same fields, by these fields."""
    if not isinstance(keys, list) and not pa.types.is_struct(keys.type):
        yield (), range(len(keys))
        return
    rows: dict[KeyFields, list[int]] = {}
    for row, fields in enumerate(map(_fields, keys) if isinstance(keys, list) else _fields_of(keys)):
        rows.setdefault(fields, []).append(row)
    yield from rows.items()


def _fields(key: object) -> KeyFields:
    """A field without a value identifies nothing."""
    return tuple(sorted(name for name, at in key.items() if at is not None)) if isinstance(key, Mapping) else ()


def _fields_of(keys: pa.Array) -> Iterator[KeyFields]:
    assert isinstance(keys, pa.StructArray)  # noqa: S101 - the caller has looked
    names = [field.name for field in keys.type]
    has = [column.is_valid().to_pylist() for column in children_of(keys)]
    known: dict[tuple[bool, ...], KeyFields] = {}
    for each in zip(*has, strict=True) if has else ((),) * len(keys):
        if each not in known:
            known[each] = tuple(sorted(name for name, there in zip(names, each, strict=True) if there))
        yield known[each]


def identified(routed: Routed, tables: Mapping[str, TableSpec]) -> Routed:
    """The values whose records' keys name the id columns of their tables, where keys are to name them. The others are
    bad: the row of another key would be replaced (M13).
    """
    values = routed.values
    if values.content not in ("row", "partial row"):
        return routed
    for name in routed.tables:
        table = tables.get(name)
        if table is None or table.mutations is None or not table.mutations.by_key or not len(values):
            continue
        ids = tuple(sorted(column.name for column in identity_of(table).columns))
        if not values.key_fields:
            what = f"the rows of the table are identified by {_shown(ids)}"
            _reject(routed.selected.accounts, values.index, name, table.mutations, what)
            return routed.choose([])
        if _same(ids) != _same(values.key_fields):
            reason = (
                f"table {name}: the record's key has the fields {_shown(values.key_fields)}, and the table's rows are"
                f" identified by {_shown(ids)}: after a change of the source's primary key, change the table's"
                " identifier fields"
            )
            routed.selected.accounts.reject(values.index, Stage.CONVERSION, "KeyFieldsError", reason)
            return routed.choose([])
    return routed


def can_create(accounts: Accounts, places: Indices, name: str, new: MissingTable, fields: KeyFields) -> bool:
    """Whether a record whose key has these fields can create the table. If not, the records at these places are bad."""
    mutations = new.mutations
    if mutations is None or not mutations.by_key or fields or mutations.on_missing_key == "append":
        return True
    _reject(accounts, places, name, mutations, "the table would be created without id columns")
    return False


def _reject(accounts: Accounts, places: Indices, name: str, mutations: RowMutations, what: str) -> None:
    fatal = mutations.on_missing_key == "fail"
    advice = (
        f": let the source write keys, or set iceberg.table.{name}.id-columns, or on-missing-key = dead-letter, or"
        " append for a table whose records have none"
    )
    reason = f"table {name}: the record's key names no columns, and {what}{advice if fatal else ''}"
    accounts.reject(places, Stage.CONVERSION, "KeyFieldsError", reason, fatal=fatal)


def _same(names: KeyFields) -> list[str]:
    """Names whose case may differ: whether it counts was decided when the columns were made."""
    return sorted(map(str.lower, names))


def _shown(names: KeyFields) -> str:
    return ", ".join(names)[:_SHOWN]


def as_objects(keys: Values, tables: Sequence[TableSpec]) -> Values:
    """Keys of deleted rows as objects. A key that is a single value becomes the value of the only id column of each
    table.
    """
    data: pa.Array | Objects = keys.data
    paths = [[column.name.split(".") for column in identity_of(table).columns] for table in tables]
    if any(len(columns) != 1 for columns in paths) or (not isinstance(data, list) and pa.types.is_struct(data.type)):
        return Values(data, keys.typed, keys.index, content="deleted key")
    names = list(dict.fromkeys(tuple(path) for (path,) in paths))
    if isinstance(data, list):
        made: pa.Array | Objects = [key if isinstance(key, dict) else _object(names, key) for key in data]
    else:
        made = _struct(names, data)
    return Values(made, keys.typed, keys.index, content="deleted key")


def _object(paths: Sequence[tuple[str, ...]], value: Any) -> dict[str, Any]:
    """An object in which each of these fields has the value. A field may be inside inner objects."""
    inner = {path[0]: [p[1:] for p in paths if p[0] == path[0]] for path in paths}
    return {name: _object(rest, value) if all(rest) else value for name, rest in inner.items()}


def _struct(paths: Sequence[tuple[str, ...]], column: pa.Array) -> pa.Array:
    """Like ``_object``, for a column of values."""
    inner = {path[0]: [p[1:] for p in paths if p[0] == path[0]] for path in paths}
    parts = [_struct(rest, column) if all(rest) else column for rest in inner.values()]
    return pa.StructArray.from_arrays(parts, names=list(inner))
