"""The schema changes that a task requests for missing tables: to load a table, or to create it from records."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from calving.casting.evolution import check_new
from calving.casting.type_counts import seen_of
from calving.model.dead_letters import Stage
from calving.model.tables import SchemaChange
from calving.records.arrays import JSON, children_of, compose
from calving.records.inferred import InferredType, find, folded, of_array, of_type, of_value
from calving.records.values import Values, objects
from calving.tasks.selection import Accounts
from calving.tasks.spec import TaskSpec

_PLAIN = frozenset((str, int, bool, float, Decimal, type(None)))


class Creation:
    """The missing tables of one task. Every record counts for their schemas, whichever task reads it."""

    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec

    def ask_for(self, accounts: Accounts, tables: Sequence[str], values: Values) -> None:
        """Request that these tables be loaded, if they were not looked for yet, or be created. Values that the tables
        can hold count as written.
        """
        for table in tables:
            if table not in self._spec.missing:
                accounts.changes.add(SchemaChange(table, "load"))
        missing = [table for table in tables if table in self._spec.missing]
        if not missing:
            accounts.written += len(values)
            return
        for group in _by_schema(values):
            reasons = {table: why for table in missing if (why := self._obstacle(table, group.type)) is not None}
            lost = {*self._spec.uncreatable, *self._spec.within}
            uncreatable = next((table for table in reasons if table in lost), None)
            if uncreatable is not None:
                reason = f"table {uncreatable}: {reasons[uncreatable]}"
                accounts.reject(compose(values.index, group.rows), Stage.CONVERSION, "UnfitError", reason)
                continue
            accounts.written += len(group.rows)
            if reasons:
                _request_without_schema(accounts, reasons)
            else:
                self._infer(accounts, missing, group, typed=values.typed)

    def look_for(self, accounts: Accounts, tables: Iterable[str]) -> None:
        """Request these tables. Rows for them are converted once the tables are loaded, or are created because of other
        records.
        """
        for table in tables:
            if table in self._spec.tables or table in self._spec.uncreatable or table in self._spec.within:
                continue
            if table not in self._spec.missing:
                accounts.changes.add(SchemaChange(table, "load"))
            elif self._spec.path.evolution.create and self._spec.id_columns.get(table):
                _request_without_schema(accounts, [table])

    def _infer(self, accounts: Accounts, tables: Iterable[str], group: _SchemaGroup, *, typed: bool) -> None:
        """Request the tables, with schemas that can also hold these records."""
        fold = self._spec.path.evolution.case_insensitive
        for table in tables:
            if typed:
                accounts.changes.add(SchemaChange(table, "create", type=group.type))
            else:
                seen = seen_of(folded(group.type) if fold else group.type, len(group.rows), group.value)
                accounts.changes.add(SchemaChange(table, "create", seen=seen))

    def _obstacle(self, table: str, kind: InferredType | None) -> str | None:
        """The reason why the table cannot be created from a record of this type; None if it can be created."""
        if (outer := self._spec.within.get(table)) is not None:
            return f"its name leads through the table {outer}, and a table cannot be within another"
        fold = self._spec.path.evolution.case_insensitive
        kind = folded(kind) if fold else kind
        for column in self._spec.id_columns.get(table, ()):
            _, inferred = find(kind, column, str.lower if fold else str) or ((), None)
            if inferred is None:
                return f"the record has no value for the id-column '{column}'"
            if column in self._spec.declared.get(table, ()):
                continue
            if not isinstance(inferred, str) or inferred in ("float", "double"):
                return f"the id-column '{column}' cannot hold what the record has there: a fraction, or several values"
        if kind is None:
            return "it does not exist, and the record has no field with a value to create it from"
        try:
            check_new(kind, self._spec.path.limits, fold, self._spec.partition_names.get(table, ()))
        except ValueError as error:
            return str(error)
        return None


def _request_without_schema(accounts: Accounts, tables: Iterable[str]) -> None:
    """Request the tables without a schema: the record may fit the tables that other records create."""
    for table in tables:
        accounts.changes.add(SchemaChange(table, "create"))


class _SchemaGroup(NamedTuple):
    """Values that need the same schema of a table: their indices, and the first value if they come without a schema."""

    type: InferredType | None
    rows: Sequence[int]
    value: Any


def _by_schema(values: Values) -> Iterator[_SchemaGroup]:
    """The values by the schema that they need: most records of a topic are alike. Values with a schema need only it."""
    data = values.data
    if not len(data):  # a schema of records that are all bad creates nothing
        return
    if values.typed and not isinstance(data, list):
        yield _SchemaGroup(of_type(data.type), range(len(values)), None)
        return
    keys = [*map(_key, data)] if isinstance(data, list) else _keys(data)
    rows: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    for places in rows.values():
        if isinstance(data, list):
            yield _SchemaGroup(of_value(data[places[0]]), places, data[places[0]])
        else:
            first = data.slice(places[0], 1)
            yield _SchemaGroup(of_array(first, typed=False), places, objects(first)[0])


def _key(value: Any) -> Hashable:
    """A key that is equal for values that need the same schema."""
    if type(value) is not dict:
        return repr(of_value(value))
    types = tuple(map(type, value.values()))
    if _PLAIN.issuperset(types) and (int not in types or all(map(_is_long, value.values()))):
        return tuple(value), types
    return repr(of_value(value))


def _is_long(value: Any) -> bool:
    return type(value) is not int or -(2**63) <= value < 2**63


def _keys(data: pa.Array) -> Iterator[Hashable]:
    """The keys of a column without a schema. They depend on where a value has nulls and, if the column's type does not
    determine the schema, on the content of the value.
    """
    if isinstance(data, pa.StructArray) and data.type.num_fields:
        return zip(*map(_keys, children_of(data)), strict=True)
    if pa.types.is_nested(data.type) or data.type == JSON:
        return (repr(of_array(data.slice(row, 1), typed=False)) for row in range(len(data)))
    return iter(data.is_valid().to_pylist())
