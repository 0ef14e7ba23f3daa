"""One SELECT over the records, run in the task by DuckDB.

What DuckDB makes of a record must not depend on other records. So its plan may have no other step than one that
computes columns of single rows (``_PLAN``), whatever the functions of the query are called. The condition is computed
as such a column, too: DuckDB filters in an order of its own, and does not compute what an earlier filter has left out.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import ConfigError, first_line
from calving.model.record_path import Limits
from calving.records.arrays import JSON, children_of, conform, holds, retyped, struct, take
from calving.records.semantics import SemanticType, like, moment_type
from calving.records.values import Records
from calving.transforms.columns import check_options, required
from calving.transforms.database import Database
from calving.transforms.interface import RefusedError, Transform, UnfitTypeError
from calving.transforms.query_process import QueryEndedError
from calving.transforms.sql_query import ALLOWED, Query, folded
from calving.transforms.sql_texts import MOST_LEVELS, deep_rows
from calving.transforms.sql_types import infinite_rows, is_exact
from calving.transforms.text import kind_text

_PLAN = {"PROJECTION", "ARROW_SCAN"}
_NOTHING = "__calving_nothing"
"""The column of objects without fields: DuckDB knows no tables without columns."""
_TRIED = (pa.null(), pa.list_(pa.string()), pa.int64(), pa.string())
"""Types of columns that show what the query does before there are records."""
_PARTS = 32
"""Into how many parts rows are divided, to find one that takes too much."""
_BOUND = 1_024
"""How many types of records are cached."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """The query for records of one type. ``names``: those of the columns of DuckDB, in the order of the fields;
    ``missing``: further columns, which are null; ``fields``: the names of fields by those of columns.
    """

    names: Sequence[str]
    missing: Sequence[str]
    fields: Mapping[str, str]
    rows: str
    condition: str | None
    expressions: Sequence[str]
    meanings: Mapping[str, SemanticType]
    """The meanings that DuckDB's columns lack, by the names of these columns."""


class Sql(Transform):
    """``query``: a SELECT from ``records``, whose columns are the value's fields.

    Each row is made from one record alone. WHERE drops records. Joins, aggregates, windows, subqueries, DISTINCT,
    ORDER, LIMIT, and functions that make several rows are refused. A name means the field of exactly this name, or if
    there is none the only one that differs by case. Without a schema, a field that a record does not have is null, and
    a null has no type. The query cannot access files or the network. Tombstones skip the transform.
    """

    tombstones = False
    drops = "records that WHERE excludes"

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("query",), "Sql")
        self._database = Database()
        self._query = Query(self._database.execute, required(options, "query", "Sql").strip().rstrip(";"))
        self.null_types = self._query.null_types()
        self._bound: dict[tuple[pa.DataType, bool], _Bound] = {}
        self._check()

    def limit(self, limits: Limits) -> None:
        self._database.limits = limits

    def apply(self, records: Records) -> Records:
        value = records.value
        if not isinstance(value, pa.StructArray):
            raise UnfitTypeError(f"it must be an object, not {kind_text(value.type)}")
        if self._query.reads_json and (deep := deep_rows(self._computed(value))):
            raise RefusedError(dict.fromkeys(deep, f"JSON of more than {MOST_LEVELS} levels within a text"))
        bound = self._bind(value, records.typed)
        table = _table(value, bound)
        if bound.condition is not None:
            kept = self._kept(table, bound.condition)
            if not pc.all(kept).as_py():
                rows = self._rows(table.filter(kept), bound, pc.indices_nonzero(kept).to_pylist())
                return records.take(kept).with_value(rows)
        return records.with_value(self._rows(table, bound, range(table.num_rows)))

    def _computed(self, value: pa.StructArray) -> list[pa.Array]:
        """The fields that are not only copied."""
        named = self.null_types
        fields = zip(value.type, children_of(value), strict=True)
        return [column for field, column in fields if named is None or field.name.lower() in named]

    def _kept(self, table: pa.Table, condition: str) -> pa.Array:
        """Which rows meet the condition.

        :raises RefusedError: it cannot be computed for some rows.
        """
        with self._refusing(table, {self._query.condition_text(): condition}, range(table.num_rows)):
            answer, _ = self._database.run(table, self._query.select(condition))
            return pc.fill_null(answer.column(0).combine_chunks(), False)

    def _rows(self, table: pa.Table, bound: _Bound, places: Sequence[int]) -> pa.Array:
        """``places``: those of the rows in the block.

        :raises RefusedError: some rows cannot be computed.
        """
        with self._refusing(table, {text: text for text in bound.expressions}, places):
            answer, json_places = self._database.run(table, bound.rows)
        names = [bound.fields.get(name, name) for name in answer.column_names]
        # A copy keeps what its field means, such as the text of a UUID.
        copied = self._query.copies(bound.names, answer.column_names) if bound.meanings else [None] * len(names)
        columns: dict[str, pa.Array] = {}
        for place, (name, column, field) in enumerate(zip(names, answer.columns, copied, strict=True)):
            if name in columns:
                raise UnfitTypeError(f"the query makes two columns named '{name}'")
            if name != _NOTHING:
                plain, meaning = _plain(column, place in json_places), bound.meanings.get(field or "")
                columns[name] = like(meaning, plain) if meaning and meaning.storage_type == plain.type else plain
        if answer.num_rows != table.num_rows:
            raise ValueError(f"the query makes {answer.num_rows} rows of {table.num_rows}; {ALLOWED}")
        _check_moments(columns, places)
        kind = pa.struct([(name, column.type) for name, column in columns.items()])
        return struct(list(columns.values()), kind, None, table.num_rows)

    def _bind(self, value: pa.StructArray, typed: bool) -> _Bound:
        """The query for records of this type.

        :raises UnfitTypeError: there is none.
        """
        kind = value.type
        bound = self._bound.get((kind, typed))
        if bound is None:
            bound = self._made(kind, typed)
            table = _table(value.slice(0, 0), bound)
            try:
                foreign = self._foreign(bound, table)
                inexact = self._inexact(bound, table)
            except self._database.error as error:
                raise UnfitTypeError(first_line(error)) from error
            if foreign is not None:
                raise UnfitTypeError(f"the query has {foreign} for such a record; {ALLOWED}")
            for name, told in inexact.items():
                raise UnfitTypeError(_to_cast(name, told))
            if len(self._bound) >= _BOUND:
                self._bound.clear()
            self._bound[kind, typed] = bound
        return bound

    def _made(self, kind: pa.StructType, typed: bool) -> _Bound:
        _check(kind)
        fields = [field.name for field in kind]
        names = _distinct(fields)
        renamed = {field: name for field, name in zip(fields, names, strict=True) if field != name}
        unclear = self._query.unclear(fields, {folded(field) for field in renamed}) if renamed else None
        if unclear is not None:
            raise UnfitTypeError(f"'{unclear}' does not tell the fields apart that differ by case only")
        there = {folded(field) for field in fields}
        missing = [] if typed else [name for name in _once(self._query.names) if folded(name) not in there]
        if not names and not missing:
            missing = [_NOTHING]
        columns = there | {folded(name) for name in missing}
        return _Bound(
            names=names,
            missing=missing,
            fields={name: field for field, name in renamed.items()},
            rows=self._query.rows(renamed),
            condition=self._query.condition(renamed, columns),
            expressions=self._query.expressions(renamed, columns),
            meanings=_meanings(kind, names),
        )

    def _check(self) -> None:
        """:raises ConfigError: the query does not make one row of each record, if its columns are of some type."""
        names = _once(self._query.names)
        told = []
        for kind in _TRIED:
            record = pa.struct([(name, kind) for name in names])
            value = struct([pa.nulls(0, kind) for _ in names], record, None, 0)
            bound = self._made(record, typed=False)
            table = _table(value, bound)
            with contextlib.suppress(self._database.error):
                foreign = self._foreign(bound, table)
                if foreign is not None:
                    raise ConfigError(f"transform Sql: the query has {foreign}; {ALLOWED}")
                told.append(self._inexact(bound, table))
        for name, inexact in told[0].items() if told else ():
            if all(name in each for each in told):
                raise ConfigError(f"transform Sql: {_to_cast(name, inexact)}")

    def _inexact(self, bound: _Bound, table: pa.Table) -> Mapping[str, str]:
        """The columns of which a table would not have the values, with DuckDB's types."""
        return {name: str(kind) for name, kind in self._database.types(table, bound.rows) if not is_exact(kind)}

    def _foreign(self, bound: _Bound, table: pa.Table) -> str | None:
        """A step of DuckDB's plans that does more than to compute columns of single rows."""
        condition = [] if bound.condition is None else [self._query.select(bound.condition)]
        steps = [step for query in (bound.rows, *condition) for step in self._database.steps(table, query)]
        return next((name for name in steps if name not in _PLAN), None)

    def _ending(self, table: pa.Table, expressions: Sequence[str], first: int = 0) -> dict[int, str]:
        """The rows each of which takes too much, or ends DuckDB, with the reasons. It takes long to see one, so that
        they are found in few steps.
        """
        refused: dict[int, str] = {}
        size = max(table.num_rows // _PARTS, 1)
        for start in range(0, table.num_rows, size) if expressions else ():
            part = table.slice(start, size)
            try:
                self._database.run(part, self._query.select(*expressions))
            except QueryEndedError as error:
                alone = {first + start: str(error)} if size == 1 else None
                refused |= alone or self._ending(part, expressions, first + start)
            except self._database.error:
                pass  # found when only such rows are left
        return refused

    @contextlib.contextmanager
    def _refusing(self, table: pa.Table, expressions: Mapping[str, str], places: Sequence[int]) -> Iterator[None]:
        """If this fails, find the rows for which one of these expressions, by what they are called, cannot be computed.

        :raises RefusedError: there are such rows. :raises QueryEndedError: no row alone is the cause.
        """
        try:
            yield
        except QueryEndedError:
            reasons = self._ending(table, [*expressions.values()])
            if not reasons:
                raise
        except self._database.error:
            reasons = self._uncomputed(table, expressions)
            if not reasons:
                raise
        else:
            return
        raise RefusedError({places[row]: reason for row, reason in reasons.items()})

    def _uncomputed(self, table: pa.Table, expressions: Mapping[str, str]) -> dict[int, str]:
        """The rows for which one of these expressions cannot be computed, with the reasons."""
        reasons: dict[int, str] = {}
        if expressions:
            tried = self._query.select(*(f"TRY([{text}]) IS NULL" for text in expressions.values()))
            try:
                answer, _ = self._database.run(table, tried)
            except QueryEndedError:
                return self._ending(table, [*expressions.values()])
            for name, column in zip(expressions, answer.columns, strict=True):
                for row in pc.indices_nonzero(column.combine_chunks()).to_pylist():
                    reasons.setdefault(row, f"{name} cannot be computed")
        return reasons


def _table(value: pa.StructArray, bound: _Bound) -> pa.Table:
    columns = [*map(_given, children_of(value)), *(pa.nulls(len(value)) for _ in bound.missing)]
    return pa.Table.from_arrays(columns, names=[*bound.names, *bound.missing])


def _given(column: pa.Array) -> pa.Array:
    """The column as DuckDB gets it: with dates, times and timestamps instead of numbers that mean them."""
    return _whole(conform(column, retyped(column.type, moment_type)) if holds(column.type, _is_semantic) else column)


def _is_semantic(kind: pa.DataType) -> bool:
    return isinstance(kind, SemanticType)


def _meanings(kind: pa.StructType, names: Sequence[str]) -> dict[str, SemanticType]:
    """The meanings that DuckDB has no types for, by the names of its columns."""
    of = {name: field.type for name, field in zip(names, kind, strict=True) if isinstance(field.type, SemanticType)}
    return {name: meant for name, meant in of.items() if not pa.types.is_temporal(moment_type(meant))}


def _whole(column: pa.Array) -> pa.Array:
    """The column in a form that DuckDB reads correctly. From a slice of an array, DuckDB reads objects within objects
    from the array's beginning.
    """
    return take(column, pa.array(range(len(column)), pa.int32())) if _is_part(column) else column


def _is_part(column: pa.Array) -> bool:
    if not pa.types.is_nested(column.type):
        return False
    inside = [column.field(i) for i in range(column.type.num_fields)] if isinstance(column, pa.StructArray) else []
    return column.offset > 0 or any(child.offset > 0 or _is_part(child) for child in inside)


def _check(kind: pa.StructType) -> None:
    """:raises UnfitTypeError: DuckDB has no such values."""
    for field in kind:
        if holds(field.type, _is_empty):
            raise UnfitTypeError(f"field '{field.name}': SQL knows no objects without fields")
        if holds(field.type, _collides):
            raise UnfitTypeError(f"field '{field.name}': SQL cannot tell fields apart that differ by case only")


def _is_empty(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and not kind.num_fields


def _collides(kind: pa.DataType) -> bool:
    """Whether an object has fields that are one to DuckDB."""
    return pa.types.is_struct(kind) and len({folded(field.name) for field in kind}) < kind.num_fields


def _once(names: Sequence[str]) -> list[str]:
    """Of names that are one to DuckDB the last."""
    return list({folded(name): name for name in names}.values())


def _distinct(fields: Sequence[str]) -> list[str]:
    """Names that DuckDB tells apart. A field that has no other of its name keeps it."""
    counts = Counter(map(folded, fields))
    names = []
    for place, field in enumerate(fields):
        name = field if counts[folded(field)] == 1 else f"{field}__{place}"
        while name != field and folded(name) in counts:
            name += "_"
        names.append(name)
    return names


def _check_moments(columns: Mapping[str, pa.Array], places: Sequence[int]) -> None:
    """:raises RefusedError: some rows have infinite moments."""
    infinite = {row: name for name, column in columns.items() for row in infinite_rows(column)}
    if infinite:
        raise RefusedError({places[row]: f"column '{name}': infinity is no moment" for row, name in infinite.items()})


def _to_cast(name: str, kind: str) -> str:
    return f"column '{name}' is of type {kind}, whose values a table cannot have as they are: cast it in the query"


def _plain(column: pa.ChunkedArray, is_json: bool) -> pa.Array:
    """The column in a type that a table can have."""
    whole = column.combine_chunks()
    if is_json and pa.types.is_string(whole.type):
        return pa.ExtensionArray.from_storage(JSON, whole)
    if isinstance(whole, pa.DictionaryArray):  # ENUM
        return whole.dictionary_decode()
    return whole
