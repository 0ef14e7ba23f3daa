"""The schema changes that a task requests for missing tables: to load a table, or to create it from records."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from calving.casting.evolution import UnfitError, check_new
from calving.casting.table import TableConverter
from calving.casting.type_counts import seen_of
from calving.errors import ConfigError
from calving.model.dead_letters import Stage
from calving.model.record_path import Evolution
from calving.model.tables import MissingTable, SchemaChange
from calving.records.arrays import JSON, children_of, compose
from calving.records.declared import declaration
from calving.records.fields import table_schema
from calving.records.inferred import InferredType, find, folded, merge, of_array, of_type, of_value
from calving.records.values import Values, objects
from calving.tasks.operations import operations
from calving.tasks.row_keys import can_create
from calving.tasks.selection import Accounts
from calving.tasks.spec import TaskSpec
from calving.tasks.versions import hidden_field
from calving.tasks.write import refusals
from calving.writing.changes import DELETE, TRUNCATE
from calving.writing.properties import FORMAT
from calving.writing.schemas import planned
from calving.writing.terms import becomes_moment, misfit, parse_term, partition_names, takes

_PLAIN = frozenset((str, int, bool, float, Decimal, type(None)))


class Creation:
    """The missing tables of one task. Every record counts for their schemas, whichever task reads it."""

    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec

    def ask_for(self, accounts: Accounts, tables: Sequence[str], values: Values) -> None:
        """Request that these tables be loaded, if they were not looked for yet, or be created. Values that the tables
        can hold count as written.
        """
        missing, refused = [], self._spec.refused
        for table in tables:
            if table in self._spec.missing:
                if not can_create(accounts, values.index, table, self._spec.missing[table], values.key_fields):
                    return
                missing.append(table)
            elif table in refused:
                accounts.reject(values.index, Stage.CONVERSION, "UnfitError", f"table {table}: {refused[table]}")
                return
            else:
                accounts.changes.add(SchemaChange(table, "load"))
        if not missing:
            accounts.written += len(values)
            return
        for group, reasons in self._groups(missing, values):
            uncreatable = next((table for table in missing if table in refused), None)
            if uncreatable is not None:
                reason = f"table {uncreatable}: {reasons.get(uncreatable) or refused[uncreatable]}"
                accounts.reject(compose(values.index, group.rows), Stage.CONVERSION, "UnfitError", reason)
                continue
            accounts.written += len(group.rows)
            if reasons:
                _request_without_schema(accounts, reasons)
            else:
                self._infer(accounts, missing, group, values)

    def _groups(self, tables: Sequence[str], values: Values) -> list[tuple[_SchemaGroup, Mapping[str, str]]]:
        """The values by the schema that they need, with the tables that these values cannot create, and why."""
        groups: list[tuple[_SchemaGroup, Mapping[str, str]]] = []
        able: list[_SchemaGroup] = []
        for group in _by_schema(values):
            reasons = {
                table: why
                for table in tables
                if (why := self._obstacle(self._new(table, values), table, group.type)) is not None
            }
            if reasons:
                groups.append((group, reasons))
            else:
                able.append(group)
        kind = reduce(merge, (group.type for group in able), None)
        some = sorted(row for group in able for row in group.rows)
        refused: dict[int, dict[str, str]] = {}
        for table in tables:
            for row, reason in self._refused(table, kind, values.choose(some)).items():
                refused.setdefault(some[row], {})[table] = reason
        return [*groups, *(part for group in able for part in _parted(group, refused))]

    def _refused(self, table: str, kind: InferredType | None, values: Values) -> dict[int, str]:
        """Those of the values that a writer would refuse if values of this type created the table, and why."""
        new, path = self._new(table, values), self._spec.path
        fold = path.evolution.case_insensitive
        if not len(values) or not (new.partition_by or FORMAT in new.properties):
            return {}  # unpartitioned Parquet files hold every row
        try:
            spec = planned(table, kind, new, fold=fold)
            columns = table_schema(spec.schema_json)
            converter = TableConverter(table, columns, Evolution(case_insensitive=fold), {}, path.limits, spec.moments)
            converted = converter.convert(values)
            found = refusals(replace(self._spec, tables={table: spec}), [(table, converted)])
        except (ConfigError, UnfitError):  # whoever creates the table finds that these values cannot
            return {}
        gone: frozenset[int] = frozenset()
        if (mutations := new.mutations) is not None and mutations.delete_mode == "hard":
            of_rows = operations(values, mutations, fold=fold)
            gone = frozenset(pc.indices_nonzero(pc.is_in(of_rows, pa.array([DELETE, TRUNCATE], pa.int8()))).to_pylist())
        prefix = f"table {table}: "
        return {row: error.reason.removeprefix(prefix) for row, error in found.items() if row not in gone}

    def _new(self, table: str, values: Values) -> MissingTable:
        """The missing table, with the id columns that the keys of the values' records name, if they are to."""
        new = self._spec.missing[table]
        return replace(new, id_columns=values.key_fields) if new.by_key else new

    def look_for(self, accounts: Accounts, tables: Iterable[str]) -> None:
        """Request these tables. Rows for them are converted once the tables are loaded, or are created because of other
        records.
        """
        for table in tables:
            if table in self._spec.tables or table in self._spec.refused:
                continue
            if table not in self._spec.missing:
                accounts.changes.add(SchemaChange(table, "load"))
            elif self._spec.path.evolution.create and (
                self._spec.missing[table].id_columns or self._spec.missing[table].by_key
            ):
                _request_without_schema(accounts, [table])

    def _infer(self, accounts: Accounts, tables: Iterable[str], group: _SchemaGroup, values: Values) -> None:
        """Request the tables, with schemas that can also hold these records."""
        fold = self._spec.path.evolution.case_insensitive
        for table in tables:
            keys = (values.key_fields,) if self._spec.missing[table].by_key else ()
            if values.typed:
                accounts.changes.add(SchemaChange(table, "create", type=group.type, keys=keys))
            else:
                seen = seen_of(folded(group.type) if fold else group.type, len(group.rows), group.value)
                accounts.changes.add(SchemaChange(table, "create", seen=seen, keys=keys))

    def _obstacle(self, new: MissingTable, table: str, kind: InferredType | None) -> str | None:
        """The reason why the table cannot be created from a record of this type; None if it can be created, perhaps
        with columns of other records.
        """
        fold = self._spec.path.evolution.case_insensitive
        kind = folded(kind) if fold else kind
        key = str.lower if fold else str
        if (reason := _without_identity(new, kind, key) or _unpartitioned(table, new, kind, key)) is not None:
            return reason
        if new.mutations is not None and new.mutations.has_versions and (reason := hidden_field(kind)) is not None:
            return reason
        if kind is None:
            return "it does not exist, and the record has no field with a value to create it from"
        try:
            check_new(kind, self._spec.path.limits, fold, partition_names(new.partition_by, table))
        except ValueError as error:
            return str(error)
        return None


def _without_identity(new: MissingTable, kind: InferredType | None, key: Callable[[str], str]) -> str | None:
    """The reason why a record of this type lacks an id column or the order field; None if it has them."""
    declared = {*map(key, new.declared)}
    for column in new.id_columns:
        _, inferred = find(kind, column, key) or ((), None)
        if inferred is None:
            return f"the record has no value for the id-column '{column}'"
        if key(column) not in declared and (not isinstance(inferred, str) or inferred in ("float", "double")):
            return f"the id-column '{column}' cannot hold what the record has there: a fraction, or several values"
    return _without_told(new, kind, key)


_TOLD = {
    "order_field": ("order-field", "which orders the changes", "only a single value is compared"),
    "truncate_field": ("truncate-field", "which says from which source the row is", "a fraction, or several values"),
}
"""The fields beside the id columns that changes need as columns: what they are, and what they cannot hold."""


def _without_told(new: MissingTable, kind: InferredType | None, key: Callable[[str], str]) -> str | None:
    """The reason why a record of this type lacks one of these fields; None if it has them."""
    columns, declared = {*map(key, new.columns)}, {*map(key, new.declared)}
    for field, (what, why, no) in _TOLD.items():
        name: str | None = getattr(new, field)
        if name is None or key(name) in columns:
            continue
        _, inferred = find(kind, name, key) or ((), None)
        if inferred is None:
            return f"the record has no value for the {what} '{name}', {why}"
        is_fraction = field == "truncate_field" and inferred in ("float", "double")
        if key(name) not in declared and (is_fraction or not isinstance(inferred, str)):
            return f"the {what} '{name}' cannot hold what the record has there: {no}"
    return None


def _unpartitioned(table: str, new: MissingTable, kind: InferredType | None, key: Callable[[str], str]) -> str | None:
    """The reason why the table cannot have its partitions with a record of this type; None if it can, perhaps with
    columns of other records.
    """
    columns, declared = {*map(key, new.columns)}, {*map(key, new.declared)}
    for term in new.partition_by:
        column, transform, _ = parse_term(term, table)
        place = find(kind, column, key)
        if key(column) in columns:
            continue
        if place is None and (above := _instead_of_struct(kind, column, key)) is not None:
            return f"partition-by '{term}': the record has no object around '{column}', but a {declaration(above)}"
        if place is None or key(column) in declared:
            continue
        if not (becomes_moment(transform, place[1]) or takes(transform, place[1])):
            return misfit(term, table, declaration(place[1]))
    return None


def _instead_of_struct(kind: InferredType | None, name: str, key: Callable[[str], str]) -> InferredType | None:
    """The type of the value that a record has where the column of this name needs a struct around it; None if it has
    no such value.
    """
    parts = name.split(".")
    above = (find(kind, ".".join(parts[:depth]), key) for depth in range(len(parts) - 1, 0, -1))
    there = next((place[1] for place in above if place is not None), None)
    return None if isinstance(there, Mapping) and "struct" in there else there


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


def _parted(
    group: _SchemaGroup, refused: Mapping[int, Mapping[str, str]]
) -> Iterator[tuple[_SchemaGroup, Mapping[str, str]]]:
    """The group without its ``refused`` values, and each of these by itself."""
    gone = [row for row in group.rows if row in refused] if refused else []
    kept = [row for row in group.rows if row not in refused] if gone else group.rows
    if kept:
        yield group._replace(rows=kept), {}
    for row in gone:
        yield group._replace(rows=[row]), refused[row]


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
