"""One SELECT over the records, run in the task by DuckDB.

What DuckDB makes of a record must not depend on other records. So its plan may have no other step than one that
computes columns of single rows (``_PLAN``), whatever the functions of the query are called. The condition is computed
as such a column, too: DuckDB filters in an order of its own, and does not compute what an earlier filter has left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import ConfigError, first_line
from calving.model.record_path import Limits
from calving.records.arrays import JSON, children_of, struct
from calving.records.semantics import SemanticType, like
from calving.records.values import Records
from calving.transforms.columns import check_options, required
from calving.transforms.database import Database
from calving.transforms.interface import RefusedError, Transform, UnfitTypeError, by_name
from calving.transforms.query_errors import QueryEndedError
from calving.transforms.sql_columns import (
    MOST_LEVELS,
    check,
    deep_rows,
    distinct,
    given,
    infinite_rows,
    is_exact,
    meanings,
    named,
    once,
)
from calving.transforms.sql_query import ALLOWED, Query, folded
from calving.transforms.text import kind_text

_PLAN = {"PROJECTION", "ARROW_SCAN"}
_NOTHING = "__calving_nothing"
"""The column of objects without fields: DuckDB knows no tables without columns."""
_TRIED = (pa.null(), pa.list_(pa.string()), pa.int64(), pa.string())
"""Types of columns that show what the query does before there are records."""
_PARTS = 32
"""Into how many parts rows are divided, to find one that takes too much."""
_BOUND_BYTES = 8 * 2**20
"""How much text of types and queries is cached. In memory it takes several times more."""


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
    tried: Mapping[str, str]
    """What TRY takes of the rows, by what an error calls it."""
    tried_condition: Mapping[str, str]
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
    former = by_name

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("query",), "Sql")
        self._database = Database()
        self._query = Query(self._database.execute, required(options, "query", "Sql").strip().rstrip(";"))
        self.null_types = self._query.null_types()
        self.required = frozenset(self._query.names)
        self._reads = self._query.reads()
        self._bound: dict[tuple[pa.DataType, bool], _Bound] = {}
        self._bound_bytes = 0
        self._check()

    def limit(self, limits: Limits) -> None:
        self._database.limits = limits

    def apply(self, records: Records) -> Records:
        value = records.value
        if not isinstance(value, pa.StructArray):
            raise UnfitTypeError(f"it must be an object, not {kind_text(value.type)}")
        if self._query.reads_json and (deep := deep_rows(self._computed(value))):
            raise RefusedError(dict.fromkeys(deep, f"JSON of more than {MOST_LEVELS} levels within a text"))
        value = value if self._reads is None else named(value, self._reads)
        bound = self._bind(value, records.typed)
        table = _table(value, bound)
        if bound.condition is not None:
            kept = self._kept(table, bound.condition, bound.tried_condition)
            if not pc.all(kept).as_py():
                rows = self._rows(table.filter(kept), bound, pc.indices_nonzero(kept).to_pylist())
                return records.take(kept).with_value(rows)
        return records.with_value(self._rows(table, bound, range(table.num_rows)))

    def _computed(self, value: pa.StructArray) -> list[pa.Array]:
        """The fields that are not only copied."""
        names = self.null_types
        fields = zip(value.type, children_of(value), strict=True)
        return [column for field, column in fields if names is None or field.name.lower() in names]

    def _kept(self, table: pa.Table, condition: str, tried: Mapping[str, str]) -> pa.Array:
        """Which rows meet the condition.

        :raises RefusedError: it cannot be computed for some rows.
        """
        answer, _ = self._answer(table, self._query.select(condition), tried, range(table.num_rows))
        return pc.fill_null(answer.column(0).combine_chunks(), False)

    def _rows(self, table: pa.Table, bound: _Bound, places: Sequence[int]) -> pa.Array:
        """``places``: those of the rows in the block.

        :raises RefusedError: some rows cannot be computed.
        """
        answer, json_places = self._answer(table, bound.rows, bound.tried, places)
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
        _check_moments(columns, places)
        if answer.num_rows != table.num_rows:
            raise ValueError(f"the query makes {answer.num_rows} rows of {table.num_rows}; {ALLOWED}")
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
            self._plan(_table(value.slice(0, 0), bound), bound)
            size = len(str(kind)) + len(bound.rows)
            if self._bound_bytes + size > _BOUND_BYTES:
                self._bound.clear()
                self._bound_bytes = 0
            self._bound[kind, typed] = bound
            self._bound_bytes += size
        return bound

    def _plan(self, table: pa.Table, bound: _Bound) -> None:
        """:raises UnfitTypeError: DuckDB does not compute the query for records of this type, or not by single ones."""
        try:
            foreign = self._foreign(bound, table)
            inexact = self._inexact(bound, table)
            self._database.run_empty(table, bound.rows)
        except self._database.error as error:
            raise UnfitTypeError(first_line(error)) from error
        except pa.ArrowException as error:
            raise UnfitTypeError(f"Arrow has no type for what the query makes of such a record: {error}") from error
        if foreign is not None:
            raise UnfitTypeError(f"the query has {foreign} for such a record; {ALLOWED}")
        for name, told in inexact.items():
            raise UnfitTypeError(_to_cast(name, told))

    def _made(self, kind: pa.StructType, typed: bool) -> _Bound:
        check(kind)
        fields = [field.name for field in kind]
        names = distinct(fields)
        renamed = {field: name for field, name in zip(fields, names, strict=True) if field != name}
        unclear = self._query.unclear(fields, {folded(field) for field in renamed}) if renamed else None
        if unclear is not None:
            raise UnfitTypeError(f"'{unclear}' does not tell the fields apart that differ by case only")
        there = {folded(field) for field in fields}
        missing = [] if typed else [name for name in once(self._query.names) if folded(name) not in there]
        missing = missing if names or missing else [_NOTHING]
        columns = there | {folded(name) for name in missing}
        condition = self._query.condition(renamed, columns)
        return _Bound(
            names=names,
            missing=missing,
            fields={name: field for field, name in renamed.items()},
            rows=self._query.rows(renamed),
            condition=condition,
            tried=self._query.tried(renamed, columns),
            tried_condition=self._tried(condition, columns),
            meanings=meanings(kind, names),
        )

    def _tried(self, condition: str | None, columns: set[str]) -> dict[str, str]:
        if condition is None or not self._query.tries_condition(columns):
            return {}
        return {self._query.condition_text(): condition}

    def _check(self) -> None:
        """:raises ConfigError: the query does not make one row of each record, if its columns are of some type."""
        names = once(self._query.names)
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

    def _answer(
        self, table: pa.Table, query: str, tried: Mapping[str, str], places: Sequence[int]
    ) -> tuple[pa.Table, set[int]]:
        """As ``Database.run``. ``tried``: expressions of the query, by what an error calls them; ``places``: those of
        the rows in the block.

        :raises RefusedError: the query cannot be computed for some rows. :raises QueryEndedError: it takes too much for
            all rows together. :raises duckdb.Error: it is not known for which rows the query cannot be computed.
        """
        try:
            return self._run(table, query)
        except QueryEndedError as error:
            refused = {0: str(error)} if table.num_rows == 1 else self._ending(table, query)
            if not refused:
                raise
        except self._database.error:
            refused = self._failing(table, tried)
            if not refused:
                raise
        raise RefusedError({places[row]: reason for row, reason in refused.items()})

    def _run(self, table: pa.Table, query: str) -> tuple[pa.Table, set[int]]:
        """As ``Database.run``, but for a single row it fails twice: no machine that stands still makes a record bad."""
        try:
            return self._database.run(table, query)
        except QueryEndedError:
            if table.num_rows > 1:
                raise
            return self._database.run(table, query)

    def _ending(self, table: pa.Table, query: str, first: int = 0) -> dict[int, str]:
        """The rows each of which takes too much, or ends DuckDB's process, with the reasons. Each of them takes long,
        so they are found in few steps.
        """
        refused: dict[int, str] = {}
        size = max(table.num_rows // _PARTS, 1)
        for start in range(0, table.num_rows, size):
            part = table.slice(start, size)
            try:
                self._run(part, query)
            except QueryEndedError as error:
                alone = {first + start: str(error)} if part.num_rows == 1 else None
                refused |= alone or self._ending(part, query, first + start)
            except self._database.error:
                pass  # found when only such rows are left
        return refused

    def _failing(self, table: pa.Table, tried: Mapping[str, str]) -> dict[int, str]:
        """The rows for which one of the expressions cannot be computed, with the reasons; none if that is not known."""
        if not tried:
            return {}
        tests = [f"TRY([{text}]) IS NULL" for text in tried.values()]
        try:
            answer, _ = self._run(table, self._query.select(*tests))
        except QueryEndedError:
            return self._ending(table, self._query.select(*tests))
        except self._database.error:
            return {}
        reasons: dict[int, str] = {}
        for name, column in zip(tried, answer.columns, strict=True):
            for row in pc.indices_nonzero(column.combine_chunks()).to_pylist():
                reasons.setdefault(row, f"{name} cannot be computed")
        return reasons


def _table(value: pa.StructArray, bound: _Bound) -> pa.Table:
    columns = [*given(value), *(pa.nulls(len(value)) for _ in bound.missing)]
    return pa.Table.from_arrays(columns, names=[*bound.names, *bound.missing])


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
