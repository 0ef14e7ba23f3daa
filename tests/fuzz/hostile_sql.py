"""Queries of the transform Sql, made of any of DuckDB's functions, over values that functions fail at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from calving.errors import ConfigError
from calving.model.record_path import Limits, TransformSpec
from calving.records.values import objects
from calving.transforms.chain import Chain
from calving.transforms.columns import rows_without_utf8
from tests.transforms.applying import records

_COLUMNS = ("s", "t", "n", "l", "m", "j")
_TEXTS = ("", "a", "é", "日本", "%c", "%s", "{}", "[[]", "(", "infinity", "1e400", "\0", "\U0001f600", "zz", "12:00+02")
_NUMBERS = (-1, 0, 1, 2, 3, 7, 65, 255, 256, 0xD800, 0x110000, 2**31, -(2**63), 2**63 - 1)
_TYPES = (
    *("BIT", "UHUGEINT", "HUGEINT", "TIMETZ", "TIMESTAMP_NS", "TIME_NS", "DATE", "INTERVAL", "UUID", "BLOB", "JSON"),
    *("BIGNUM", "DECIMAL(38, 10)", "VARCHAR[]", "VARIANT", "ENUM('a', 'é')", "STRUCT(a BIT)", "MAP(VARCHAR, BIT)"),
)
_LAMBDAS = (
    "list_reduce({l}, lambda acc, x: {f})",
    "list_reduce(list_prepend({n}, {l}), lambda acc, x: {f})",
    "list_reduce({l}, lambda acc, x: {f}, {n})",
    "list_transform({l}, lambda x: {f})",
    "list_transform({l}, lambda x: list_reduce({l}, lambda acc, y: acc + y + x + {n}))",
    "list_filter({l}, lambda x: x < {n})",
    "[x + {n} for x in {l} if x > {n}]",
    "{l}.list_reduce(lambda acc, x: {f}, {n})",
)
_SAFE = Limits(sql_ms=4_000, sql_bytes=64 << 20)


@cache
def _functions() -> Sequence[tuple[str, int]]:
    """The names of functions that give the same result each time, with the numbers of their arguments."""
    asked = (
        "SELECT DISTINCT function_name, len(parameters) FROM duckdb_functions() WHERE function_type = 'scalar'"
        " AND stability = 'CONSISTENT' AND regexp_matches(function_name, '^[a-z_0-9]+$') ORDER BY 1, 2"
    )
    return duckdb.connect(":memory:").execute(asked).fetchall()


def _expression(chance: Random, depth: int) -> str:
    match chance.randrange(6 if depth else 1):
        case 0:
            return chance.choice((*_COLUMNS, *_COLUMNS, str(chance.choice(_NUMBERS)), "'a'", "NULL"))
        case 1:
            return f"({_expression(chance, depth - 1)})::{chance.choice(_TYPES)}"
        case 2:
            over = "acc + x + {n}", "x + {n}", "acc * {n} + x"
            form = chance.choice(_LAMBDAS).replace("{f}", chance.choice(over))
            return form.replace("{l}", "l").replace("{n}", chance.choice(("n", "1", "len(s)")))
        case 3:
            first, other = _expression(chance, depth - 1), _expression(chance, depth - 1)
            return f"CASE WHEN n > {chance.randrange(3)} THEN {first} ELSE {other} END"
        case 4:
            return f"printf({chance.choice(('s', chr(39) + '%c' + chr(39)))}, n::INT)"
    name, count = chance.choice(_functions())
    return f"{name}({', '.join(_expression(chance, depth - 1) for _ in range(count))})"


def _row(chance: Random) -> dict[str, Any]:
    return {
        "s": chance.choice(_TEXTS),
        "t": chance.choice(_TEXTS),
        "n": chance.choice(_NUMBERS),
        "l": [chance.randrange(9) for _ in range(chance.randint(1, 4))],
        "m": [chance.choice(_TEXTS) for _ in range(chance.randint(1, 3))],
        "j": chance.choice(('{"a":1}', "[1,2]", "{", "1", '{"é":"\\ud800"}')),
    }


def _outcomes(made: Chain, rows: Sequence[dict[str, Any]]) -> list[str]:
    """What becomes of each row."""
    done = made.apply(records(*rows))
    told = ["dropped"] * len(rows)
    for part in done.records:
        if unreadable := rows_without_utf8(part.value):
            raise ValueError(f"rows {unreadable} are no UTF-8")
        for place, row in zip(part.index.to_pylist(), range(len(part)), strict=True):
            told[place] = _shown(part.value.slice(row, 1))
    for bad in done.bad:
        if "codec can't" in bad.reason or "<class" in bad.reason:
            raise ValueError(f"a reason is Python's: {bad.reason}")
        told[bad.index] = "bad"
    return told


def _shown(cell: pa.Array) -> str:
    try:
        return repr(objects(cell))
    except (OverflowError, ValueError):  # Python has no such date
        return str(cell)


def case(chance: Random) -> Callable[[], object]:
    """Some rows through a query, alone and together."""
    expression = _expression(chance, 3)
    where = f" WHERE {_expression(chance, 2)} IS NOT NULL" if chance.random() < 0.3 else ""
    query = f"SELECT n, {expression} AS x FROM records{where}"
    rows = [_row(chance) for _ in range(6)]

    def run() -> None:
        try:
            made = Chain([TransformSpec("x", "Sql", {"query": query})], limits=_SAFE)
        except ConfigError:
            return
        together, alone = _outcomes(made, rows), [_outcomes(made, [row])[0] for row in rows]
        if together != alone:
            raise ValueError(f"{query} of {rows}: alone {alone}, together {together}")

    return run
