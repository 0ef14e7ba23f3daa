"""The schema changes that a table needs so that it follows the columns of its source table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, NestedField

from calving.casting.evolution import (
    Path,
    SchemaEvolution,
    UnfitError,
    check_names,
    check_partition_names,
    check_reserved,
)
from calving.model.record_path import Evolution, Limits
from calving.model.tables import SchemaChange, TableSpec
from calving.records.fields import Lookup, Target, table_schema
from calving.records.inferred import of_type

_PROMOTED = {(IntegerType, "long"): LongType, (FloatType, "double"): DoubleType}
BOTH_STAND = (
    "the table has both columns, because records with the new name came before the schema change: both stay, with the"
    " values of before and after; one UPDATE joins them"
)


def one_each(columns: Sequence[tuple[str, NestedField | None]]) -> list[NestedField | None]:
    """The column of each field, by the field's name, with at most one field for each column: that of its own name,
    otherwise the last one. A field of a former name of the column is another one then, and gets a column of its own.
    """
    chosen: dict[int, str] = {}
    for name, column in columns:
        if column is not None and chosen.get(column.field_id) != column.name:
            chosen[column.field_id] = name
    return [c if c is None or chosen[c.field_id] == name else None for name, c in columns]


class SourceColumns:
    """One table, and the columns of its source. A change that the table has already is none."""

    def __init__(self, spec: TableSpec, evolution: Evolution, limits: Limits, target: Target) -> None:
        schema = table_schema(spec.schema_json)
        self._table = spec.name
        self._refused = {each.path: each.reason for each in spec.refused if each.kind == "rename"}
        self._partitions = {*map(target.lookup(target.columns).key, spec.partition_names)}
        self._schema_evolution = SchemaEvolution(
            spec.name, schema, evolution, limits, spec.partition_names, spec.refused
        )
        self._lookup: Lookup = target.lookup(target.columns)
        fixed = [*_named_by_settings(spec), *schema.identifier_field_names()]
        self._settled = {self._lookup.key(name.partition(".")[0]) for name in fixed}

    def renamed(self, former: str, new: str, pending: Collection[Path]) -> SchemaChange | None:
        """The change by which the column gets its new name; None if the table has no such column, or finds it by both
        names. No column gets a name back that it had before: so a change that comes again changes nothing.
        ``pending``: the paths of the changes that were asked for, which are part of a further one.

        :raises UnfitError: the column keeps its former name.
        """
        column, other = self._find(former, pending), self._find(new, pending)
        if column is None or (other is not None and other.field_id == column.field_id):
            return None
        key = self._lookup.key
        if key(column.name) in self._settled:
            raise UnfitError((), "the settings name this column, or it identifies rows")
        if other is not None:
            raise UnfitError((), BOTH_STAND)
        so_far = max((path for path in pending if path[0] == column.name), key=len, default=(column.name,))
        path = (*so_far, new)
        if (reason := self._refused.get(path)) is not None:
            raise UnfitError((), reason)
        check_names([new], (new,))
        check_reserved([key(new)])
        check_partition_names([key(new)], self._partitions, (new,))
        return SchemaChange(self._table, "rename", path)

    def _find(self, name: str, pending: Collection[Path]) -> NestedField | None:
        key = self._lookup.key
        former = next((path[0] for path in pending if key(name) in map(key, path[1:])), name)
        return self._lookup.find(former)

    def changes(self, columns: pa.StructType, pending: Collection[Path]) -> Iterator[SchemaChange | UnfitError]:
        """The columns that the table lacks, and those that need a wider type. ``pending``: as ``renamed`` takes it. A
        change that the table cannot have is an error.
        """
        for field in columns:
            column = self._find(field.name, pending)
            try:
                if column is not None:
                    yield from self._wider(column, field.type)
                elif not pa.types.is_null(field.type):
                    name = self._lookup.asks_for(field.name)
                    yield self._schema_evolution.add((name,), of_type(field.type))
            except UnfitError as error:
                yield error

    def _wider(self, column: NestedField, kind: pa.DataType) -> Iterator[SchemaChange]:
        wanted = None if pa.types.is_null(kind) else of_type(kind)
        if isinstance(wanted, str) and (type(column.field_type), wanted) in _PROMOTED:
            yield self._schema_evolution.widen((column.name,), wanted)


def _named_by_settings(spec: TableSpec) -> Iterator[str]:
    """The columns that would be lost to the settings under another name."""
    yield from (*spec.id_columns, *spec.declared, *spec.moments.units)
    if (mutations := spec.mutations) is not None:
        yield from (*mutations.own_columns, *mutations.metadata_columns)
        yield from filter(None, (mutations.order_field, mutations.truncate_field))
