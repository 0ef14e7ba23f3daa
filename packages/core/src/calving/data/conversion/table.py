"""Decoded values to the rows of one table: what fits, what does not, and what the table needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    MapType,
    NestedField,
    StructType,
)

from calving.data.conversion.columns import RefusedError, cast, missing_rows
from calving.data.conversion.exact import ExactConverter, UnfitError
from calving.data.conversion.fields import Lookup, arrow_schema
from calving.data.conversion.kinds import of_array, of_type, of_value
from calving.data.records import Bad, Values, arrow, objects
from calving.data.spec import Evolution, Need

STAGE = "conversion"
_NOT_AN_OBJECT = "the value is not an object: a table takes records with named fields"


@dataclass(slots=True)
class Converted:
    """Rows in the table's Arrow schema, with their places among the values; the values that do not fit; needs.

    With needs there are no rows: the values have to be converted again once the table has what they need.
    """

    rows: pa.RecordBatch | None
    places: Sequence[int] | None
    """None: every value became a row, in order."""
    bad: list[Bad] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)


class TableConverter:
    """Converts values for one table as of one schema."""

    def __init__(
        self,
        table: str,
        schema: Schema,
        evolution: Evolution,
        names: Mapping[int, tuple[str, ...]],
        *,
        exactly: bool = False,
    ) -> None:
        self._table, self._evolution, self._names, self._exactly = table, evolution, names, exactly
        self._struct = schema.as_struct()
        self._arrow = arrow_schema(schema)
        self._lookups: dict[int, Lookup] = {}

    def convert(self, values: Values) -> Converted:
        """All values, the bad ones told from the good ones."""
        if isinstance(values.data, list):
            return self._objects(values.data)
        if not pa.types.is_struct(values.data.type):
            return Converted(None, [], [self._bad(i, _NOT_AN_OBJECT) for i in range(len(values))])
        return self._columns(values.data, values.typed)

    def _lookup(self, struct: StructType) -> Lookup:
        found = self._lookups.get(id(struct))
        if found is None:
            found = self._lookups[id(struct)] = Lookup(struct, self._evolution.case_insensitive, self._names)
        return found

    def _columns(self, data: pa.StructArray, typed: bool) -> Converted:
        sources: dict[int, pa.Array] = {}
        needs: list[Need] = []
        for i, source in enumerate(data.type):
            target = self._lookup(self._struct).find(source.name)
            child = data.field(i)
            if target is None:
                needs += self._additions(child, (source.name,), typed)
            elif target.field_id in sources:
                return self._objects(objects(data))
            else:
                sources[target.field_id] = child
                needs += self._inner_needs(child, target.field_type, (target.name,), typed)
        bad: dict[int, str] = {}
        columns = []
        for target, wanted in zip(self._struct.fields, self._arrow, strict=True):
            found = sources.get(target.field_id)
            if found is None:
                found = pa.nulls(len(data))
            columns.append(self._column(found, target, wanted.type, bad, needs))
        if bad and needs:
            # A bad record is not written, so a table needs nothing for it.
            good = pa.array([i for i in range(len(data)) if i not in bad], pa.int32())
            needs = self._columns(data.take(good), typed).needs if len(good) else []
        return self._result(columns, len(data), bad, needs)

    def _column(
        self, source: pa.Array, target: NestedField, wanted: pa.DataType, bad: dict[int, str], needs: list[Need]
    ) -> pa.Array:
        if source.null_count == len(source):
            column = pa.nulls(len(source), wanted)
        else:
            try:
                if self._exactly:
                    raise RefusedError("on request")
                column = cast(source, target.field_type, self._lookup)
                column = column if column.type == wanted else column.cast(wanted)
            except (RefusedError, ValueError, pa.ArrowException):
                return self._column_exactly(source, target, wanted, bad, needs)
        if target.required and column.null_count:
            if self._evolution.evolve:
                needs.append(Need(self._table, "optional", (target.name,)))
            else:
                reason = str(UnfitError((target.name,), "the column is required, but the record has no value for it"))
                for i in missing_rows(column):
                    bad.setdefault(i, reason)
        return column

    def _column_exactly(
        self, source: pa.Array, target: NestedField, wanted: pa.DataType, bad: dict[int, str], needs: list[Need]
    ) -> pa.Array:
        try:
            values = objects(source)
        except (ValueError, OverflowError) as error:
            values = _one_by_one(source, bad, str(UnfitError((target.name,), str(error))))
        return self._values_exactly(values, target, wanted, bad, needs)

    def _values_exactly(
        self, values: list[Any], target: NestedField, wanted: pa.DataType, bad: dict[int, str], needs: list[Need]
    ) -> pa.Array:
        converter = ExactConverter(self._table, self._evolution, self._names)
        found: list[Any] = [None] * len(values)
        for i, value in enumerate(values):
            if i not in bad:
                try:
                    found[i] = converter.value(value, target, (target.name,))
                except UnfitError as error:
                    bad[i] = str(error)
        needs += converter.needs
        return arrow(found, wanted)

    def _objects(self, values: Sequence[object]) -> Converted:
        """Column by column as well: most of them hold values of one kind, and those Arrow can take."""
        bad: dict[int, str] = {}
        needs: list[Need] = []
        items: dict[int, list[object]] = {f.field_id: [None] * len(values) for f in self._struct.fields}
        new: list[tuple[int, str, object]] = []
        lookup = self._lookup(self._struct)
        for i, value in enumerate(values):
            if not isinstance(value, Mapping):
                bad[i] = _NOT_AN_OBJECT
                continue
            for name, item in value.items():
                target = lookup.find(name)
                if target is not None:
                    items[target.field_id][i] = item
                elif self._evolution.evolve and item is not None:
                    new.append((i, name, item))
        columns = []
        for target, wanted in zip(self._struct.fields, self._arrow, strict=True):
            column = items[target.field_id]
            source = None if self._exactly else _simple_column(column, target.field_type)
            if source is None:
                columns.append(self._values_exactly(column, target, wanted.type, bad, needs))
            else:
                columns.append(self._column(source, target, wanted.type, bad, needs))
        for i, name, item in new:
            kind = of_value(item) if i not in bad else None
            if kind is not None:
                needs.append(Need(self._table, "add", (name,), kind))
        if bad and needs:
            # A bad record is not written, so a table needs nothing for it.
            good = [value for i, value in enumerate(values) if i not in bad]
            needs = self._objects(good).needs if good else []
        return self._result(columns, len(values), bad, needs)

    def _result(self, columns: list[pa.Array], size: int, bad: dict[int, str], needs: list[Need]) -> Converted:
        if needs:
            return Converted(None, [], self._all_bad(bad), needs)
        if not bad:
            return Converted(pa.RecordBatch.from_arrays(columns, schema=self._arrow), None)
        places = [i for i in range(size) if i not in bad]
        chosen = pa.array(places, pa.int32())
        rows = pa.RecordBatch.from_arrays([c.take(chosen) for c in columns], schema=self._arrow)
        return Converted(rows, places, self._all_bad(bad))

    def _all_bad(self, bad: dict[int, str]) -> list[Bad]:
        return [self._bad(i, reason) for i, reason in sorted(bad.items())]

    def _bad(self, index: int, reason: str) -> Bad:
        return Bad(index, STAGE, "UnfitError", f"table {self._table}: {reason}")

    def _additions(self, column: pa.Array, path: tuple[str, ...], typed: bool) -> list[Need]:
        """A column is added only if some record has a value for it."""
        if not self._evolution.evolve or column.null_count == len(column):
            return []
        kind = of_array(column, typed)
        return [] if kind is None else [Need(self._table, "add", path, kind)]

    def _inner_needs(self, column: pa.Array, kind: IcebergType, path: tuple[str, ...], typed: bool) -> list[Need]:
        """Fields that are new inside a column, and types that a schema says are wider."""
        if not self._evolution.evolve or column.null_count == len(column):
            return []
        needs: list[Need] = []
        match kind:
            case StructType() if pa.types.is_struct(column.type):
                for source, child in zip(column.type, column.flatten(), strict=True):
                    target = self._lookup(kind).find(source.name)
                    if target is None:
                        needs += self._additions(child, (*path, source.name), typed)
                    else:
                        needs += self._inner_needs(child, target.field_type, (*path, target.name), typed)
            case ListType() if pa.types.is_list(column.type):
                needs += self._inner_needs(column.flatten(), kind.element_type, (*path, "element"), typed)
            case MapType() if pa.types.is_map(column.type):
                needs += self._inner_needs(column.items, kind.value_type, (*path, "value"), typed)
            case IntegerType() if typed and of_type(column.type) == "long":
                needs.append(Need(self._table, "widen", path, "long"))
            case FloatType() if typed and of_type(column.type) == "double":
                needs.append(Need(self._table, "widen", path, "double"))
        return needs


def _simple_column(values: list[Any], kind: IcebergType) -> pa.Array | None:
    """Values of one simple kind as a column that ``cast`` takes as it would take each of them; else None."""
    kinds = {type(v) for v in values}
    kinds.discard(type(None))
    if kinds <= {Decimal, int} and isinstance(kind, FloatType | DoubleType):
        try:
            return pa.array([None if v is None else float(v) for v in values], pa.float64())
        except OverflowError:
            return None
    arrow = _SIMPLE.get(next(iter(kinds))) if len(kinds) == 1 else None
    if arrow is None:
        return None
    try:
        return pa.array(values, arrow)
    except (OverflowError, ValueError):
        return None


_SIMPLE = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


def _one_by_one(column: pa.Array, bad: dict[int, str], reason: str) -> list[object]:
    """The values that Python can hold; the others are bad."""
    values: list[object] = []
    for i in range(len(column)):
        try:
            values += objects(column.slice(i, 1))
        except (ValueError, OverflowError):
            bad.setdefault(i, reason)
            values.append(None)
    return values
