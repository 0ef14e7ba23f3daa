"""The query of the transform ``Sql`` as a syntax tree of DuckDB."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from calving.errors import ConfigError

ALLOWED = "it is one SELECT ... FROM records, with or without WHERE, that makes one row of each record by itself"
_CHANCE = {"random", "uuid", "uuidv4", "uuidv7", "gen_random_uuid", "error"}
"""Volatile functions that tell nothing about other records, nor about the block."""

_OF_MACHINE = {"getenv", "glob", "vector_type"}
"""Functions that read what is not in the record. DuckDB would refuse them with each record only, or not at all."""

_COMPARE = {"levenshtein", "editdist3", "damerau_levenshtein"}
"""Functions whose time grows with the product of the lengths of two texts."""
_REDUCE = {"list_reduce", "array_reduce", "reduce"}
"""With an initial value, DuckDB computes the lambda's other columns from another record."""
_SHORT = 10_000
"""The most characters of texts that these functions may compare."""

Node = Mapping[str, Any]


class Query:
    """A SELECT from ``records``. ``execute`` gives DuckDB's answer to a query: it parses and writes SQL."""

    def __init__(self, execute: Callable[[str, Sequence[object]], Any], text: str) -> None:
        """:raises ConfigError: the query is not a SELECT that treats each record by itself."""
        self._execute = execute
        self._node = self._parsed(text)
        self._node = self._with_calls()
        if (wrong := self._function(self._node)) is not None:
            raise _refusal(wrong)
        self.items: Sequence[Node] = self._node["select_list"]
        self.where: Node | None = self._node["where_clause"]
        table = self._node["from_table"]
        self._mine = {folded(table["table_name"]), folded(table["alias"])}
        self._source = f"records AS {quoted(table['alias'])}" if table["alias"] else "records"
        self._aliases = {folded(item["alias"]): item for item in reversed(self.items) if item["alias"]}
        self.names = self._columns()
        """The columns that the query names, but for the aliases of its own."""
        self.reads_json = any(map(_reads_json, _parts([*self.items, self.where])))
        """Whether the query may read JSON within texts."""

    def null_types(self) -> frozenset[str] | None:
        """The columns that are not only copied, in lower case; None if they are not known by name."""
        computed = [_without_copies(item) for item in self.items]
        inner = [part for part in _parts([*computed, self.where]) if part.get("class") in ("COLUMN_REF", "STAR")]
        if any(part["class"] == "STAR" or self._is_row(part) for part in inner):
            return None
        names = {folded(name) for part in inner for name in part["column_names"][:2]}
        for item in reversed(self.items):  # an alias of a column, in another item
            if item["class"] == "COLUMN_REF" and folded(item["alias"]) in names:
                names |= {folded(name) for name in item["column_names"][:2]}
        return frozenset(name.lower() for name in names)

    def reads(self) -> frozenset[str] | None:
        """The columns that the query may name, folded; None if it may read any column."""
        parts = [*_parts([*self.items, self.where])]
        columns = [part["column_names"] for part in parts if part.get("class") == "COLUMN_REF"]
        reads_all = any(part.get("class") in ("STAR", "POSITIONAL_REFERENCE") for part in parts)
        if reads_all or any(folded(names[-1]) in self._mine for names in columns):
            return None
        return frozenset(folded(name) for names in columns for name in names)

    def rows(self, renamed: Mapping[str, str]) -> str:
        """The query without its condition. ``renamed``: other names for columns."""
        items = [self._renamed(item, renamed, named=True) for item in self.items] if renamed else self.items
        return self._text({**self._node, "select_list": items, "where_clause": None})

    def copies(self, names: Sequence[str], result: Sequence[str]) -> list[str | None]:
        """For each column of the result, in order, the field that it is an unchanged copy of; None if it is computed,
        or if that is not sure. ``names``: the fields, no two of which are one to DuckDB.
        """
        there = {folded(name): name for name in names}
        stars = [item for item in self.items if item["class"] == "STAR"]
        if len(stars) > 1:
            return [None] * len(result)
        fields: list[str | None] = []
        for item in self.items:
            if item["class"] == "STAR":
                width = len(result) - len(self.items) + 1
                fields += self._copied_by_star(item, there, result[len(fields) : len(fields) + width])
            else:
                is_field = item["class"] == "COLUMN_REF" and len(item["column_names"]) == 1
                fields.append(there.get(folded(item["column_names"][0])) if is_field else None)
        return fields

    def _copied_by_star(self, star: Node, there: Mapping[str, str], result: Sequence[str]) -> list[str | None]:
        replaced = {folded(each["key"]) for each in star["replace_list"]}
        if star["columns"] or star["expr"] or star.get("rename_list"):
            return [None] * len(result)
        return [None if folded(name) in replaced else there.get(folded(name)) for name in result]

    def condition(self, renamed: Mapping[str, str], columns: set[str]) -> str | None:
        """The condition as an expression, which is computed from left to right and no further than it must."""
        return None if self.where is None else self._ordered(self._plain(self.where, renamed, columns))

    def condition_text(self) -> str:
        """The condition as an error names it."""
        return "" if self.where is None else f"WHERE {self._expression(self.where)}"

    def tries_condition(self, columns: set[str]) -> bool:
        """Whether TRY takes the condition."""
        return self.where is not None and _can_try(self._plain(self.where, {}, columns))

    def tried(self, renamed: Mapping[str, str], columns: set[str]) -> dict[str, str]:
        """The items that are computed and that TRY takes, by what an error calls them."""
        computed = [item for item in self.items if item["class"] not in ("STAR", "COLUMN_REF", "CONSTANT")]
        plain = [self._plain(item, renamed, columns) for item in computed]
        texts = [self._expression(item) for item in plain if _can_try(item)]
        return dict(zip(texts, texts, strict=True))

    def select(self, *expressions: str) -> str:
        """A query for these expressions alone."""
        return " ".join(["SELECT", ", ".join(expressions), "FROM", self._source])

    def unclear(self, names: Sequence[str], collide: set[str]) -> str | None:
        """Whether the query names columns in a way that does not tell these apart, which differ by case only."""
        for part in _parts([*self.items, self.where]):
            if part.get("class") == "COLUMN_REF":
                name = self._name(part)
                if (folded(name) in collide and name not in names) or self._is_row(part):
                    return name
            elif part.get("class") == "STAR" and (
                part["columns"] or part["exclude_list"] or part["replace_list"] or part.get("rename_list")
            ):
                return "*"
        return None

    def _is_row(self, part: Node) -> bool:
        """Whether a name may mean the whole record."""
        return part["class"] == "COLUMN_REF" and len(part["column_names"]) == 1 and self._name(part) in self._mine

    def _name(self, part: Node) -> str:
        """The column that a reference means."""
        names = part["column_names"]
        return str(names[1] if len(names) > 1 and folded(names[0]) in self._mine else names[0])

    def _columns(self) -> list[str]:
        given: set[str] = set()
        names: dict[str, None] = {}
        for part in [*self.items, self.where]:
            for inner in _parts(part):
                if inner.get("class") == "COLUMN_REF" and folded(self._name(inner)) not in given:
                    names[self._name(inner)] = None
            if part and part["alias"]:
                given.add(folded(part["alias"]))
        return list(names)

    def _renamed(self, part: Node, renamed: Mapping[str, str], *, named: bool = False) -> Node:
        """The part with other names of columns. ``named``: as an item it keeps the name that it has."""
        copy = deepcopy(dict(part))
        if named and not part["alias"] and part["class"] not in ("STAR", "COLUMN_REF"):
            copy["alias"] = self._expression(part)
        for inner in _parts(copy):
            if inner.get("class") == "COLUMN_REF" and self._name(inner) in renamed:
                names = inner["column_names"]
                names[names.index(self._name(inner))] = renamed[self._name(inner)]
        return copy

    def _plain(self, part: Node, renamed: Mapping[str, str], columns: set[str]) -> Node:
        """The part with the expressions that its aliases stand for. ``columns``: names that are no aliases."""

        def replaced(tree: Any, depth: int) -> Any:
            if isinstance(tree, list):
                return [replaced(each, depth) for each in tree]
            if not isinstance(tree, Mapping):
                return tree
            if tree.get("class") == "COLUMN_REF" and len(tree["column_names"]) == 1 and depth < len(self.items):
                name = folded(tree["column_names"][0])
                if name in self._aliases and name not in columns:
                    return {**replaced(self._aliases[name], depth + 1), "alias": ""}
            return {key: replaced(each, depth) for key, each in tree.items()}

        return self._renamed({**replaced(part, 0), "alias": ""}, renamed)

    def _ordered(self, node: Node) -> str:
        """A condition as CASE: DuckDB may compute the parts of AND and OR in any order, and all of them."""
        if node["class"] != "CONJUNCTION":
            return f"CAST(({self._expression(node)}) AS BOOLEAN)"
        *firsts, last = (self._ordered(child) for child in node["children"])
        text = last
        for first in reversed(firsts):
            if node["type"] == "CONJUNCTION_AND":
                text = f"CASE WHEN {first} THEN {text} ELSE false END"
            else:
                text = f"CASE WHEN {first} THEN true ELSE {text} END"
        return text

    def _parsed(self, query: str) -> Node:
        tree = json.loads(self._execute("SELECT json_serialize_sql(?)", [query]).fetchone()[0])
        if tree["error"]:
            raise ConfigError(f"transform Sql: the query cannot be read: correct it ({tree['error_message']})")
        nodes = [statement["node"] for statement in tree["statements"]]
        wrong = _wrong(nodes[0]) if len(nodes) == 1 else "not one statement"
        if wrong is not None:
            raise _refusal(wrong)
        return dict(nodes[0])

    def _with_calls(self) -> Node:
        """The SELECT with ``f(column, x)`` instead of ``column.f(x)``. To the parser, that column is a schema."""
        node = deepcopy(dict(self._node))
        for item in node["select_list"]:
            if not item["alias"] and any(map(_is_method, _parts(item))):
                item["alias"] = self._expression(item)  # as DuckDB would call it
        for call in filter(_is_method, _parts(node)):
            names = [name for name in (call["catalog"], call["schema"]) if name]
            column = {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": names}
            call |= {"catalog": "", "schema": "", "children": [column, *call["children"]]}
        return node

    def _function(self, node: Node) -> str | None:
        """A function that is an aggregate, or whose result depends on other than the record."""
        names = [part["function_name"] for part in _parts(node) if part.get("class") == "FUNCTION"]
        if (foreign := next((name for name in names if name.lower() in _OF_MACHINE), None)) is not None:
            return f"the function {foreign}"
        for call in (part for part in _parts(node) if part.get("class") == "FUNCTION"):
            if (wrong := _wrong_call(call)) is not None:
                return wrong
        asked = (
            "SELECT function_name, bool_and(function_type = 'aggregate'), bool_or(stability = 'VOLATILE')"
            " FROM duckdb_functions() WHERE function_name IN (SELECT unnest(?)) GROUP BY 1 ORDER BY 1"
        )
        for name, aggregate, volatile in self._execute(asked, [names]).fetchall():
            if aggregate:
                return f"the aggregate {name}"
            if volatile and name not in _CHANCE:
                return f"the function {name}"
        return None

    def _text(self, node: Node) -> str:
        tree = json.dumps({"error": False, "statements": [{"node": node, "named_param_map": []}]})
        return str(self._execute("SELECT json_deserialize_sql(?::JSON)", [tree]).fetchone()[0])

    def _expression(self, part: Node) -> str:
        plain = {**self._node, "where_clause": None, "select_list": [{**part, "alias": ""}]}
        plain["from_table"] = {**self._node["from_table"], "alias": ""}
        return self._text(plain).removeprefix("SELECT ").removesuffix(" FROM records")


def _refusal(wrong: str) -> ConfigError:
    return ConfigError(f"transform Sql: the query has {wrong}; {ALLOWED}")


def folded(name: str) -> str:
    """The name as DuckDB compares names: only ASCII letters have cases."""
    return name.encode().lower().decode()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _wrong(node: Node) -> str | None:
    """The part of a query that would read other records or other sources; None if there is none."""
    table = node.get("from_table") or {}
    named = {
        "another kind of statement": node.get("type") != "SELECT_NODE",
        "another table than records": table.get("type") != "BASE_TABLE" or table.get("table_name") != "records",
        "names for the columns of records": table.get("column_name_alias"),
        "a sample": node.get("sample") or table.get("sample"),
        "DISTINCT, ORDER or LIMIT": node.get("modifiers"),
        "WITH": (node.get("cte_map") or {}).get("map"),
        "GROUP BY": node.get("group_expressions"),
        "HAVING": node.get("having"),
        "QUALIFY": node.get("qualify"),
        "a window function": any(part.get("class") == "WINDOW" for part in _parts(node)),
        "a subquery": any(part.get("class") == "SUBQUERY" for part in _parts(node)),
    }
    return next((name for name, is_wrong in named.items() if is_wrong), None)


def _wrong_call(call: Node) -> str | None:
    """A call with which a record takes too long, or depends on others."""
    name, given = call["function_name"], call["children"]
    if name.lower() in _REDUCE and len(given) > 2 and _captured(given[1]):
        other = f"{name}(list_prepend(initial, list), lambda)"
        return f"{name} with an initial value and a column in its lambda: write {other}"
    if name.lower() in _COMPARE and not all(map(_is_short, given)):
        return f"{name} of a text of any length: write {name}(left(a, {_SHORT}), left(b, {_SHORT})), or less"
    return None


def _is_short(node: Node) -> bool:
    """Whether a text is a constant, or has a constant as its greatest length."""
    if node["class"] == "FUNCTION" and node["function_name"].lower() == "left":
        most = node["children"][1]
        return most["class"] == "CONSTANT" and most["value"]["value"] in range(_SHORT + 1)
    return bool(node["class"] == "CONSTANT")


def _is_method(part: Node) -> bool:
    """Whether a part is a call of the form ``column.function()``."""
    return part.get("class") == "FUNCTION" and part["schema"] not in ("", "main")


def _captured(node: Node) -> set[str]:
    """The names in a lambda that are not its parameters."""
    if node["class"] != "LAMBDA":
        return {name for part in _parts(node) if part.get("class") == "COLUMN_REF" for name in part["column_names"][:1]}
    parameters = {folded(name) for part in _parts(node["lhs"]) for name in part.get("column_names", ())}
    return {name for name in _captured(node["expr"]) if folded(name) not in parameters}


def _can_try(node: Node) -> bool:
    """Whether TRY takes an expression: it takes no volatile function."""
    return all(str(part.get("function_name", "")).lower() not in _CHANCE for part in _parts(node))


def _reads_json(part: Node) -> bool:
    name = str(part.get("function_name", "")).lower()
    kind = json.dumps(part.get("cast_type")).lower() if part.get("class") == "CAST" else ""
    return name in ("->", "->>") or any(word in name or word in kind for word in ("json", "variant"))


def _without_copies(item: Node) -> Any:
    """The item, without what it only copies: columns, and all columns but those of REPLACE."""
    if item["class"] == "STAR":
        return [item["replace_list"], item["expr"]]
    return None if item["class"] == "COLUMN_REF" else item


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for item in tree:
            yield from _parts(item)
