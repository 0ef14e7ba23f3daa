"""Records that would keep or end DuckDB are bad alone, and queries have no effects."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import pyarrow as pa
import pytest

from calving.errors import ConfigError, UnexpectedError
from calving.model.record_path import Limits, TransformSpec
from calving.records.values import objects
from calving.transforms.chain import Chain
from tests.transforms.applying import chain, records


@pytest.mark.parametrize(
    ("query", "hostile"),
    [
        ("SELECT repeat(s, n) AS s FROM records", {"s": "ab", "n": 10**9}),
        ("SELECT replace(s, 'y', repeat(s, n)) AS s FROM records", {"s": "y" * 50_000, "n": 1}),
        ("SELECT list_resize([s], n)[1] AS s FROM records", {"s": "ab", "n": 10**9}),
        ("SELECT s FROM records WHERE length(repeat(s, n)) > 0", {"s": "ab", "n": 10**9}),
    ],
    ids=["counted", "not counted", "a list", "a condition"],
)
def test_a_record_for_which_sql_needs_too_much_memory_is_bad_alone(query: str, hostile: dict[str, object]) -> None:
    spec = TransformSpec("x", "Sql", {"query": query})
    done = Chain([spec], limits=Limits(sql_bytes=64 * 2**20)).apply(
        records({"s": "a", "n": 1}, hostile, {"s": "c", "n": 1})
    )
    assert [b.index for b in done.bad] == [1] and "iceberg.limits.sql-bytes" in done.bad[0].reason
    assert [row for part in done.records for row in objects(part.value)] == [{"s": "a"}, {"s": "c"}]


def test_a_record_for_which_sql_needs_too_much_time_is_bad_alone() -> None:
    slow = [f"levenshtein(left(s, {length}), left(t, 10000))" for length in range(9_993, 10_001)]
    spec = TransformSpec("x", "Sql", {"query": f"SELECT {' + '.join(slow)} AS n FROM records"})
    rows = records({"s": "a", "t": "a"}, {"s": "ab" * 5_000, "t": "ba" * 5_000}, {"s": "c", "t": "c"})
    done = Chain([spec], limits=Limits(sql_ms=600)).apply(rows)
    assert [b.index for b in done.bad] == [1] and "iceberg.limits.sql-ms = 600" in done.bad[0].reason
    assert [row for part in done.records for row in objects(part.value)] == [{"n": 0}, {"n": 0}]


@pytest.mark.parametrize("call", ["levenshtein(s, 'x')", "damerau_levenshtein(left(s, n), 'x')", "editdist3(s, s)"])
def test_sql_compares_no_texts_of_any_length(call: str) -> None:
    with pytest.raises(ConfigError, match=r"of a text of any length: write"):
        chain("Sql", {"query": f"SELECT {call} AS a FROM records"})


def test_a_text_with_brackets_that_is_no_deep_json_is_good() -> None:
    log = "\x1b[31mERR\x1b[0m line\n" * 600
    rows = records({"id": "1", "log": log, "s": "[" + '{"x":[]},' * 1_001 + "1]"}, {"id": "2", "log": "[" * 2_000})
    done = chain("Sql", {"query": "SELECT id::BIGINT AS id, log, json_valid(log) AS j, s->>1 AS s FROM records"})
    assert not done.apply(rows).bad


@pytest.mark.parametrize(
    ("call", "hostile", "count", "reason"),
    [
        ("json_structure(trim(s, '\"'))", '"' + '{"a":' * 100_000 + "1" + "}" * 100_000, 100, "(SIGSEGV)"),
        ("repeat(s, 50000) ILIKE '%[%b%{'", "[" * 40, 20, "iceberg.limits.sql-ms = 700"),
        ("regexp_extract_all(repeat(s, 20000), '[[](.*b)?')", "[" * 40, 20, "iceberg.limits.sql-ms = 700"),
    ],
    ids=["ends", "pattern", "regex"],
)
def test_a_record_that_keeps_or_ends_duckdb_is_bad_alone(call: str, hostile: str, count: int, reason: str) -> None:
    values = [{"s": "{}"}] * count
    values[7] = values[12] = {"s": hostile}
    spec = TransformSpec("x", "Sql", {"query": f"SELECT {call} AS a, s FROM records"})
    done = Chain([spec], limits=Limits(sql_ms=700)).apply(records(*values))
    assert sorted(b.index for b in done.bad) == [7, 12] and all(reason in b.reason for b in done.bad)
    assert sum(len(part.value) for part in done.records) == count - 2


def test_nobody_else_s_end_of_duckdb_makes_a_record_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calving.transforms.query_process._SERVE", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(UnexpectedError, match=r"the process of DuckDB does not start"):
        Chain([TransformSpec("x", "Sql", {"query": "SELECT a FROM records"})], limits=Limits(sql_ms=701)).apply(
            records({"a": 1})
        )


def test_sql_descends_into_parts_of_json_and_objects_of_them() -> None:
    query = "SELECT json_merge_patch(s->'a', json_object('b', s->>'c'))->>'b' AS b FROM records"
    done = chain("Sql", {"query": query}).apply(records({"s": '{"a":{},"c":"x"}'}))
    assert objects(done.records[0].value) == [{"b": "x"}]


@pytest.mark.parametrize("before", ["", '{"x":"]]]]"} ', '{"x":"' + "]" * 2_000 + '","a":'])
def test_closing_brackets_in_strings_hide_no_levels(before: str) -> None:
    deep = before + '{"]":' * 100_000 + "1" + "}" * (100_000 + before.count("{") - before.count("}"))
    done = chain("Sql", {"query": "SELECT TRY(json_structure(s)) AS a FROM records"}).apply(records({"s": deep}))
    assert "1000 levels" in done.bad[0].reason


def test_texts_with_many_quotes_and_brackets_are_looked_at_in_time() -> None:
    rows = records({"s": '"\\' * 300_000 + "[" * 2_000}, {"s": '\\"' * 300_000 + "{" * 2_000}, {"s": '["[' * 200_000})
    began = process_time()
    chain("Sql", {"query": "SELECT json_valid(s) AS a FROM records"}).apply(rows)
    assert process_time() - began < 10


def test_json_of_many_levels_in_bytes_makes_its_record_bad() -> None:
    value = pa.array([{"s": b"[" * 100_000 + b"]" * 100_000}, {"s": b"[]"}], pa.struct([("s", pa.binary())]))
    done = chain("Sql", {"query": "SELECT json_structure(decode(s)) AS a FROM records"}).apply(
        records(value, typed=True)
    )
    assert [b.index for b in done.bad] == [0]


def escaped(text: str) -> object:
    """JSON whose string is the text."""
    return {"s": '"' + "".join(f"\\u{ord(letter):04x}" for letter in text) + '"'}


@pytest.mark.parametrize(
    "call",
    [
        "json_structure(s)",
        "json_merge_patch(s, s)",
        "json_contains(s, '1')",
        "json_pretty(s)",
        "s::JSON::VARIANT::VARCHAR",
    ],
)
@pytest.mark.parametrize("inside", [lambda s: {"s": s}, lambda s: {"s": [s], "t": 1}, escaped])
def test_json_of_many_levels_within_a_text_makes_its_record_bad_and_ends_no_process(
    call: str, inside: Callable[[str], object]
) -> None:
    deep = '{"]":' * 100_000 + "1" + "}" * 100_000
    done = chain("Sql", {"query": f"SELECT {call} AS a FROM records"}).apply(
        records(inside("{}"), inside(deep), inside("[" * 900 + "]" * 900), inside('{"x":[]}' * 1_001))
    )
    refused = [b for b in done.bad if b.index == 1]
    assert "JSON of more than 1000 levels within a text" in refused[0].reason
    assert {b.index for b in done.bad} <= {1, 3}  # the last one is no JSON


@pytest.mark.parametrize(
    "call",
    [
        "sleep_ms(1)",
        "write_log('x')",
        "getenv('HOME')",
        "GetEnv(a)",
        "glob('/*')",
        "vector_type(a)",
    ],
)
def test_sql_has_no_functions_with_effects(call: str) -> None:
    with pytest.raises(ConfigError):
        chain("Sql", {"query": f"SELECT {call} AS a FROM records"})
