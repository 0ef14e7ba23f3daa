"""The schema changes that the columns of Arrow arrays need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import FloatType, IcebergType, IntegerType, ListType, MapType, StructType

from calving.casting.evolution import Path, SchemaEvolution, UnfitError
from calving.casting.findings import Findings
from calving.records.arrays import JSON, as_list, children_of, entries, items_of
from calving.records.fields import Target
from calving.records.inferred import of_array, of_type
from calving.records.schema_defaults import default_of
from calving.records.semantics import plain
from calving.records.values import objects


class ColumnChanges:
    """Enters the changes that values need, and the values whose change the table cannot have."""

    def __init__(self, schema_evolution: SchemaEvolution, target: Target) -> None:
        self._schema_evolution, self._target = schema_evolution, target

    def missing(
        self, column: pa.Array, field: pa.Field, struct: StructType, above: Path, typed: bool, found: Findings
    ) -> None:
        """Request the column of a field inside the column at ``above``, a ``struct``. Without a schema a column is
        added only for a value. With one, nulls alone bring it, too, unless the table cannot have it.
        """
        if not self._schema_evolution.adds or (column.null_count == len(column) and not found.with_nulls):
            return
        path = (*above, self._target.lookup(struct).asks_for(field.name))
        if not typed and (pa.types.is_nested(column.type) or column.type == JSON):
            self._each_addition(column, path, found)
            return
        kind = of_array(column, typed)
        if kind is None:
            return
        present = pc.indices_nonzero(column.is_valid())
        try:
            if typed:
                default = default_of(field)
                change = self._schema_evolution.add(path, kind)
                found.changes.append(change if default is None else replace(change, defaults=(default,)))
            else:
                example = objects(column.take(present[:1]))[0]
                found.changes.append(self._schema_evolution.add(path, kind, len(present), example))
        except UnfitError as error:
            for i in present.to_pylist():
                found.reasons.setdefault(i, str(error))

    def _each_addition(self, column: pa.Array, path: Path, found: Findings) -> None:
        """Inspect each value of a column, if the column's type does not decide which change a value needs, or whether
        it is bad.
        """
        for i, value in enumerate(objects(column)):
            kind = of_array(column.slice(i, 1), typed=False)
            try:
                if kind is not None:
                    found.changes.append(self._schema_evolution.add(path, kind, 1, value))
            except UnfitError as error:
                found.reasons.setdefault(i, str(error))

    def inner(self, column: pa.Array, kind: IcebergType, path: Path, typed: bool, found: Findings) -> None:
        """Request new fields inside a column, and wider types if a schema declares them."""
        if not self._schema_evolution.evolves or column.null_count == len(column):
            return
        column = plain(column)
        match kind:
            case StructType() if isinstance(column, pa.StructArray):
                for source, child in zip(column.type, children_of(column), strict=True):
                    target = self._target.lookup(kind).find(source.name)
                    if target is None:
                        self.missing(child, source, kind, path, typed, found)
                    else:
                        self.inner(child, target.field_type, (*path, target.name), typed, found)
            case ListType() if pa.types.is_list(column.type) and isinstance(column, pa.ListArray):
                inner = Findings(with_nulls=found.with_nulls)
                self.inner(items_of(column), kind.element_type, (*path, "element"), typed, inner)
                found.take(inner, lambda: pc.list_parent_indices(column))
            case MapType() if isinstance(column, pa.MapArray):
                inner = Findings(with_nulls=found.with_nulls)
                self._map_changes(column, kind, path, typed, inner)
                found.take(inner, lambda: pc.list_parent_indices(as_list(column)))
            case IntegerType() if typed and of_type(column.type) == "long":
                self._widen(path, "long", found)
            case FloatType() if typed and of_type(column.type) == "double":
                self._widen(path, "double", found)

    def _widen(self, path: Path, kind: str, found: Findings) -> None:
        # Where the catalog refuses the change, the column takes what fits it, as if the table did not evolve.
        with suppress(UnfitError):
            found.changes.append(self._schema_evolution.widen(path, kind))

    def _map_changes(self, column: pa.MapArray, kind: MapType, path: Path, typed: bool, inner: Findings) -> None:
        keys, items = entries(column)
        self.inner(items, kind.value_type, (*path, "value"), typed, inner)
        for i, where in _unknown_in_keys(keys, kind.key_type, self._target, (*path, "key")):
            reason = "its column cannot be added: Iceberg does not let the keys of a map change"
            inner.reasons.setdefault(i, str(UnfitError(where, reason)))


def _unknown_in_keys(keys: pa.Array, kind: IcebergType, target: Target, path: Path) -> Iterator[tuple[int, Path]]:
    """The values in the keys of maps for which there is no column: the place of the key, and the path of the value."""
    if isinstance(kind, StructType) and isinstance(keys, pa.StructArray):
        for field, child in zip(keys.type, children_of(keys), strict=True):
            wanted = target.lookup(kind).find(field.name)
            if wanted is not None:
                yield from _unknown_in_keys(child, wanted.field_type, target, (*path, wanted.name))
            else:
                yield from ((i, (*path, field.name)) for i in pc.indices_nonzero(child.is_valid()).to_pylist())
