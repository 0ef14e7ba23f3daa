"""Queries of the transform Sql, and what each makes of a row of ``flat.records``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from random import Random
from typing import Any

from calving.model.record_path import TransformSpec
from tests.fuzz.chain import CHANGES, Dropped, Options, Record, Refused
from tests.fuzz.forms import Short

Row = dict[str, Any]


def _cased(row: Row) -> str:
    n = row.get("n")
    return "none" if n is None else "even" if n % 2 == 0 else "odd"


def _mod(n: int, by: int) -> int:
    return int(math.fmod(n, by))


def _or_null(value: Any, change: Callable[[Any], Any]) -> Any:
    return None if value is None else change(value)


def _objects(row: Row) -> Row:
    if row.get("t") in (None, ""):
        raise Dropped
    if row.get("s") is None:  # the fields of a null are null
        return {"a": None, "c": None, "s": None}
    return {"a": row["s"]["a"], "c": row["s"]["b"].upper(), "s": row["s"]}


def _numbers(row: Row) -> Row:
    if row.get("n") is None:
        raise Dropped
    if row.get("t") is None:
        return {"i": None, "t": None}
    # DuckDB rounds the text of a fraction.
    if not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", row["t"]):
        raise Refused("no number")
    number = int(Decimal(row["t"]).to_integral_value(ROUND_HALF_UP))
    if number >= 1 << 31:
        raise Refused("too large")
    return {"i": Short(number), "t": row["t"]}


def _positive(row: Row) -> Row:
    if row.get("n") is None or row["n"] < 0:
        raise Dropped
    return {**row, "rest": row["n"] % 7}


QUERIES: dict[str, Callable[[Row], Row]] = {
    "SELECT id, n, t AS text FROM records": lambda r: {"id": r.get("id"), "n": r.get("n"), "text": r.get("t")},
    "SELECT *, n % 7 AS rest FROM records WHERE n >= 0": _positive,
    "SELECT id, upper(t) AS u, lower(t) AS l, t || '-' || CAST(n AS VARCHAR) AS both FROM records": lambda r: {
        "id": r.get("id"),
        "u": _or_null(r.get("t"), str.upper),
        "l": _or_null(r.get("t"), str.lower),
        "both": None if r.get("t") is None or r.get("n") is None else f"{r['t']}-{r['n']}",
    },
    "SELECT n, CASE WHEN n IS NULL THEN 'none' WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END AS kind FROM records": lambda r: {
        "n": r.get("n"),
        "kind": _cased(r),
    },
    "SELECT s.a AS a, upper(s.b) AS c, s FROM records WHERE t <> ''": _objects,
    "SELECT * EXCLUDE (t), coalesce(t, 'none') AS text FROM records": lambda r: {
        **{n: v for n, v in r.items() if n != "t"},
        "text": "none" if r.get("t") is None else r["t"],
    },
    "SELECT * REPLACE (n * 3 + 1 AS n) FROM records;": lambda r: {**r, "n": _or_null(r.get("n"), lambda n: n * 3 + 1)},
    "SELECT CAST(t AS INTEGER) AS i, t FROM records WHERE n IS NOT NULL": _numbers,
    "SELECT id, l[1] AS first, len(l) AS many, d * 2 AS d FROM records WHERE b": lambda r: _listed(r),
    "SELECT id, abs(n) AS a, -n AS m, n % 10 AS r, n BETWEEN 0 AND 50 AS few FROM records AS records": lambda r: {
        "id": r.get("id"),
        "a": _or_null(r.get("n"), abs),
        "m": _or_null(r.get("n"), lambda n: -n),
        "r": _or_null(r.get("n"), lambda n: _mod(n, 10)),
        "few": _or_null(r.get("n"), lambda n: 0 <= n <= 50),
    },
    "SELECT length(t) AS c, substr(t, 1, 3) AS p, replace(t, 'a', 'o') AS r, trim(t) AS w FROM records r": lambda r: {
        "c": _or_null(r.get("t"), len),
        "p": _or_null(r.get("t"), lambda t: t[:3]),
        "r": _or_null(r.get("t"), lambda t: t.replace("a", "o")),
        "w": _or_null(r.get("t"), lambda t: t.strip(" ")),
    },
    "SELECT {'n': n, 't': t} AS obj, [id, id] AS pair FROM records WHERE id IS NOT NULL": lambda r: _packed(r),
}


def _listed(row: Row) -> Row:
    if row.get("b") is not True:
        raise Dropped
    items = row.get("l") or [None]
    many = None if "l" not in row else len(row["l"])
    return {
        "id": row.get("id"),
        "first": items[0],
        "many": many,
        "d": _or_null(row.get("d"), lambda d: float(d) * 2),
    }


def _packed(row: Row) -> Row:
    if row.get("id") is None:
        raise Dropped
    return {"obj": {"n": row.get("n"), "t": row.get("t")}, "pair": [row["id"], row["id"]]}


def step(random: Random) -> TransformSpec:
    return TransformSpec("sql", "Sql", {"query": random.choice([*QUERIES])})


def _queried(record: Record, options: Options) -> Record:
    return record.having(QUERIES[options["query"]](record.fields), {})


CHANGES["Sql"] = _queried
