"""One SELECT over the records, run in the task by DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import ConfigError
from calving.records.arrays import JSON, children_of, conform, holds, retyped, struct, take
from calving.records.inferred import of_type
from calving.records.semantics import SemanticType, moment_type
from calving.records.values import Records
from calving.transforms.columns import check_options, required
from calving.transforms.interface import RefusedError, Transform, UnfitTypeError

_PLACE = "__calving_place"
_ALLOWED = "it is one SELECT ... FROM records, with or without WHERE, that makes one row of each record by itself"


class Sql(Transform):
    """``query``: a SELECT from ``records``, whose columns are the value's fields.

    Each row is made from one record alone. WHERE drops records. Joins, aggregates, windows, subqueries, DISTINCT, ORDER
    and LIMIT are refused. Without a schema, a field that a record does not have is null. The query cannot access files
    or the network. Tombstones skip the transform.
    """

    tombstones = False
    drops = "records that WHERE excludes"

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("query",), "Sql")
        self._connection = _connection()
        self._node = self._parsed(required(options, "query", "Sql").strip().rstrip(";"))
        self._names = _columns(self._node)
        place = self._parsed("SELECT __calving_place FROM records")["select_list"]
        self._query = self._text({**self._node, "select_list": [*place, *self._node["select_list"]]})
        self._probe = self._probe_query()

    def apply(self, records: Records) -> Records:
        value = records.value
        if not isinstance(value, pa.StructArray):
            raise UnfitTypeError(f"it must be an object, not {value.type}")
        for field in value.type:
            if holds(field.type, _is_empty):
                raise UnfitTypeError(f"field '{field.name}': SQL knows no objects without fields")
        self._connection.register("records", self._table(value, records.typed))
        try:
            found, json_names = self._run(self._query)
        except Exception:
            self._refuse()
            raise
        finally:
            self._connection.unregister("records")
        origin = found.column(0).combine_chunks()
        columns = {
            name: _plain(name, found.column(name), name in json_names)
            for name in found.column_names
            if not name.startswith(_PLACE)
        }
        kind = pa.struct([(name, column.type) for name, column in columns.items()])
        rows = struct(list(columns.values()), kind, None, len(origin))
        return records.take(origin.cast(pa.int32())).with_value(rows)

    def _table(self, value: pa.StructArray, typed: bool) -> pa.Table:
        names = value.type.names
        columns = dict(zip(names, map(_given, children_of(value)), strict=True))
        if not typed:
            there = {name.lower() for name in names}
            columns |= {name: pa.nulls(len(value)) for name in self._names if name.lower() not in there}
        return pa.table({**columns, _PLACE: pa.array(range(len(value)), pa.int32())})

    def _run(self, query: str) -> tuple[pa.Table, set[str]]:
        """The rows, and the names of the columns that are JSON. Arrow has them as text."""
        done = self._connection.execute(query)
        return done.to_arrow_table(), {name for name, kind, *_ in done.description if str(kind) == "JSON"}

    def _refuse(self) -> None:
        """Find the records that make the query fail.

        :raises RefusedError: an expression of the query cannot be computed for these records.
        """
        if self._probe is None:
            return
        found, _ = self._run(self._probe)
        reasons: dict[int, str] = {}
        for name in found.column_names[1:]:
            for place in pc.filter(found.column(0), found.column(name)).to_pylist():
                reasons.setdefault(place, f"{name} cannot be computed")
        if reasons:
            raise RefusedError(reasons)

    def _probe_query(self) -> str | None:
        """A query that finds the records for which an expression fails; None if no expression can fail."""
        where = self._node.get("where_clause")
        kept, columns = "", []
        if where:
            text = self._expression(where)
            columns.append(f"TRY([{text}]) IS NULL AS {_quoted(text)}")
            kept = f"coalesce(TRY([{text}])[1], false) AND "
        for part in self._node["select_list"]:
            if part["class"] not in ("STAR", "COLUMN_REF", "CONSTANT"):
                text = self._expression(part)
                columns.append(f"{kept}TRY([{text}]) IS NULL AS {_quoted(text)}")
        alias = self._node["from_table"]["alias"]
        source = f"records AS {_quoted(alias)}" if alias else "records"
        return " ".join(["SELECT", ", ".join([_PLACE, *columns]), "FROM", source]) if columns else None

    def _parsed(self, query: str) -> dict[str, Any]:
        """The syntax tree of a query.

        :raises ConfigError: the query is not a SELECT that treats each record by itself.
        """
        found = json.loads(self._connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()[0])
        if found["error"]:
            raise ConfigError(f"transform Sql: {found['error_message']}")
        nodes = [statement["node"] for statement in found["statements"]]
        wrong = (_wrong(nodes[0]) or self._aggregate(nodes[0])) if len(nodes) == 1 else "not one statement"
        if wrong is not None:
            raise ConfigError(f"transform Sql: the query has {wrong}; {_ALLOWED}")
        return dict(nodes[0])

    def _aggregate(self, node: Mapping[str, Any]) -> str | None:
        names = [part["function_name"] for part in _parts(node) if part.get("class") == "FUNCTION"]
        asked = (
            "SELECT function_name FROM duckdb_functions() WHERE function_name IN (SELECT unnest(?)) "
            "GROUP BY 1 HAVING bool_and(function_type = 'aggregate')"
        )
        found = self._connection.execute(asked, [names]).fetchone()
        return f"the aggregate {found[0]}" if found else None

    def _text(self, node: Mapping[str, Any]) -> str:
        tree = json.dumps({"error": False, "statements": [{"node": node, "named_param_map": []}]})
        return str(self._connection.execute("SELECT json_deserialize_sql(?::JSON)", [tree]).fetchone()[0])

    def _expression(self, part: Mapping[str, Any]) -> str:
        node = {**self._parsed("SELECT 1 FROM records"), "select_list": [{**part, "alias": ""}]}
        return self._text(node).removeprefix("SELECT ").removesuffix(" FROM records")


def _given(column: pa.Array) -> pa.Array:
    """The column as DuckDB gets it: with dates, times and timestamps instead of numbers that mean them."""
    return _whole(conform(column, retyped(column.type, moment_type)) if holds(column.type, _is_semantic) else column)


def _is_semantic(kind: pa.DataType) -> bool:
    return isinstance(kind, SemanticType)


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


def _is_empty(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and not kind.num_fields


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _wrong(node: Mapping[str, Any]) -> str | None:
    """The part of a query that would read other records or other sources; None if there is none."""
    table = node.get("from_table") or {}
    named = {
        "another kind of statement": node.get("type") != "SELECT_NODE",
        "another table than records": table.get("type") != "BASE_TABLE" or table.get("table_name") != "records",
        "a sample": node.get("sample") or table.get("sample"),
        "DISTINCT, ORDER or LIMIT": node.get("modifiers"),
        "WITH": (node.get("cte_map") or {}).get("map"),
        "GROUP BY": node.get("group_expressions"),
        "HAVING": node.get("having"),
        "QUALIFY": node.get("qualify"),
        "a window function": any(part.get("class") == "WINDOW" for part in _parts(node)),
        "a subquery": any(part.get("class") == "SUBQUERY" for part in _parts(node)),
        "unnest": any(part.get("function_name") == "unnest" for part in _parts(node)),
    }
    return next((name for name, found in named.items() if found), None)


def _columns(node: Mapping[str, Any]) -> list[str]:
    """The columns that a query names. A name that an earlier item of the SELECT list has defined means that item."""
    table = node["from_table"]
    mine = {table["table_name"], table["alias"]}
    given: set[str] = set()
    found: dict[str, None] = {}
    for part in [*node["select_list"], node.get("where_clause")]:
        for inner in _parts(part):
            if inner.get("class") == "COLUMN_REF":
                names = inner["column_names"]
                name = names[1] if len(names) > 1 and names[0] in mine else names[0]
                if name.lower() not in given:
                    found[name] = None
        if part and part.get("alias"):
            given.add(part["alias"].lower())
    return list(found)


def _parts(tree: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(tree, Mapping):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for item in tree:
            yield from _parts(item)


def _plain(name: str, column: pa.ChunkedArray, is_json: bool) -> pa.Array:
    """The column in a type that a table can have.

    :raises UnfitTypeError: there is no such type.
    """
    whole = column.combine_chunks()
    if is_json and pa.types.is_string(whole.type):
        return pa.ExtensionArray.from_storage(JSON, whole)
    if isinstance(whole, pa.DictionaryArray):  # ENUM
        return whole.dictionary_decode()
    if of_type(whole.type) is None and not pa.types.is_null(whole.type):
        raise UnfitTypeError(f"column '{name}' is of type {whole.type}, which no table has: cast it in the query")
    return whole


def _connection() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise ConfigError('transform Sql: install "calving[sql]"') from error
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection
