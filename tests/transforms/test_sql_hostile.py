"""What DuckDB does with records that its functions fail at, or in ways of its own, and what becomes of the record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa
import pytest

from calving.errors import ConfigError, UnexpectedError
from calving.model.record_path import Limits, TransformSpec
from calving.records.values import Records, objects
from calving.transforms.chain import Chain
from calving.transforms.database import Database
from calving.transforms.transformed import Transformed
from tests.transforms.applying import records
from tests.transforms.test_neighbours import outcomes

ENDS = "lower(printf('%c', n::INT))"
"""DuckDB takes its own text for damaged, and refuses all later queries."""


def chain(query: str, limits: Limits | None = None) -> Chain:
    return Chain([TransformSpec("x", "Sql", {"query": query})], limits=limits)


def good(done: Transformed) -> list[object]:
    return [row for part in done.records for row in objects(part.value)]


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        (f"SELECT {ENDS} AS c FROM records", [{"c": "a"}, {"c": "c"}]),
        (f"SELECT n FROM records WHERE {ENDS} <> 'c'", [{"n": 65}]),
    ],
)
def test_a_record_that_makes_duckdb_refuse_all_queries_is_bad_alone(query: str, kept: list[object]) -> None:
    done = chain(query).apply(records({"n": 65}, {"n": 255}, {"n": 67}))
    assert [b.index for b in done.bad] == [1] and "the query has ended DuckDB: INTERNAL Error" in done.bad[0].reason
    assert good(done) == kept
    assert good(chain("SELECT n + 1 AS m FROM records").apply(records({"n": 1}))) == [{"m": 2}]


def test_a_record_that_ends_duckdb_is_found_beside_one_that_is_refused() -> None:
    done = chain(f"SELECT {ENDS} AS c, n FROM records").apply(
        records({"n": 65, "m": 1}, {"n": 255, "m": 1}, {"n": 2**40, "m": 1}, {"n": 66, "m": 1})
    )
    assert {b.index for b in done.bad} == {1, 2} and len(good(done)) == 2


def test_a_query_that_ends_duckdb_where_it_is_planned_ends_no_later_query() -> None:
    database = Database()
    table = pa.table({"n": pa.array([], pa.int64())})
    with pytest.raises(database.error, match="INTERNAL"):
        database.steps(table, f"SELECT {ENDS.replace('n::INT', '255')} AS c FROM records")
    assert "PROJECTION" in database.steps(table, "SELECT n + 1 AS n FROM records")


def test_an_error_of_duckdb_that_python_cannot_read_is_one_of_its_errors() -> None:
    database = Database()
    with pytest.raises(database.error, match="cut within a character"):
        database.execute("SELECT unhex('é')")


def test_a_process_that_ends_with_an_error_of_its_own_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = "from calving.transforms import query_process as s; s._Server.answer = None; s.serve()"
    monkeypatch.setattr("calving.transforms.query_process._SERVE", serve)
    with pytest.raises(UnexpectedError, match="ended with code 1"):
        chain("SELECT a FROM records", Limits(sql_ms=702)).apply(records({"a": 1}))


@pytest.mark.parametrize("call", ["unhex(s)", "from_binary(s)", "upper(s) || unhex(s)::VARCHAR"])
def test_an_error_of_duckdb_that_is_cut_within_a_character_names_the_expression(call: str) -> None:
    done = chain(f"SELECT {call} AS b FROM records").apply(records({"s": "01"}, {"s": "é"}, {"s": "11"}))
    assert [b.index for b in done.bad] == [1]
    assert "cannot be computed" in done.bad[0].reason and "codec" not in done.bad[0].reason


@pytest.mark.parametrize(
    "call",
    [
        "list_reduce(l, lambda acc, x: acc + x + v, 0)",
        "reduce(l, lambda acc, x: acc + x + records.v, 0)",
        "array_reduce(l, lambda acc, x, i: acc + x * i + v, v)",
        "l.list_reduce(lambda acc, x: acc + x + v, 0)",
        "list_transform(l, lambda x: list_reduce(l, lambda acc, y: acc + y + x, 0))",
        "CASE WHEN v > 1 THEN List_Reduce(l, lambda acc, x: acc + x + V, 0) END",
    ],
)
def test_a_reduction_that_takes_a_column_of_another_record_is_refused(call: str) -> None:
    for query in (f"SELECT {call} AS r FROM records", f"SELECT v FROM records WHERE {call} > 50"):
        with pytest.raises(ConfigError, match=r"(?i)reduce\(list_prepend\(initial, list\), lambda\)"):
            chain(query)


def test_lambdas_give_the_same_alone_and_together() -> None:
    rows = '{"l":[1],"v":10,"k":"-"}', '{"l":[1,2],"v":30,"k":"+"}', '{"l":[5,6,7],"v":6,"k":"é"}'
    for call in (
        "list_reduce(list_prepend(0, l), lambda acc, x: acc + x + v)",
        "list_reduce(l, lambda acc, x: acc + x, 0)",
        "list_transform(l, lambda x: list_reduce(l, lambda acc, y: acc + y + x + v))",
        "list_transform(l, lambda x, i: k || x || i)",
        "CASE WHEN v > 6 THEN list_filter(l, lambda x: x < v) END",
        "[x + v for x in l if x > 1]",
    ):
        assert len(outcomes(f"SELECT {call} AS r FROM records", *rows)) == 3
    reduced = outcomes("SELECT list_reduce(list_prepend(0, l), lambda acc, x: acc + x + v) AS r FROM records", *rows)
    assert reduced == ["[{'r': 11}]", "[{'r': 63}]", "[{'r': 36}]"]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("s::UHUGEINT", "UHUGEINT"),
        ("s::TIMETZ", "TIME WITH TIME ZONE"),
        ("s::BIT", "BIT"),
        ("s::BIGNUM", "BIGNUM"),
        ("s::INTERVAL", "INTERVAL"),
        ("s::VARIANT", "VARIANT"),
        ("union_value(a := s)", "UNION(a "),
        ("[s::BIT]", "BIT[]"),
        ("{'a': [s::TIMETZ]}", "STRUCT(a TIME WITH TIME ZONE[])"),
        ("map([s::BIT], [1])", "MAP(BIT, INTEGER)"),
        ("map(['a'::ENUM('a')], [1])", "MAP(ENUM('a'), INTEGER)"),
        ("[1, 2]::INT[2]", "INTEGER[2]"),
        ("row(1, 2)", "STRUCT(INTEGER, INTEGER)"),
    ],
)
def test_a_column_whose_values_a_table_cannot_have_is_refused_by_its_type(call: str, kind: str) -> None:
    with pytest.raises(ConfigError) as refused:
        chain(f"SELECT {call} AS u, s FROM records")
    assert f"column 'u' is of type {kind}" in str(refused.value) and "cast it in the query" in str(refused.value)


def test_a_column_that_is_of_such_a_type_for_some_records_makes_these_bad() -> None:
    query = "SELECT a - b AS d FROM records"
    moments = pa.array([{"a": datetime(2024, 1, 2), "b": datetime(2024, 1, 1)}])
    done = chain(query).apply(records(moments, typed=True))
    assert "column 'd' is of type INTERVAL" in done.bad[0].reason
    assert good(chain(query).apply(records({"a": 3, "b": 1}))) == [{"d": 2}]


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("s::HUGEINT", 5),
        ("'12:00:00'::TIME_NS", "12:00:00"),
        ("'2000-01-01 00:00:00.5'::TIMESTAMP_MS", "2000-01-01 00:00:00.500000"),
        ("'2000-01-01'::TIMESTAMP_S", "2000-01-01 00:00:00"),
        ("18446744073709551615::UBIGINT", 18446744073709551615),
        ("'00000000-0000-0000-0000-00000000000a'::UUID", "00000000-0000-0000-0000-00000000000a"),
        ("'b'::ENUM('a', 'b')", "b"),
        ("1.25::DECIMAL(38, 10)", "1.2500000000"),
        ("[NULL]", [None]),
    ],
)
def test_a_column_of_another_type_has_the_value_that_it_has_in_sql(call: str, value: object) -> None:
    (row,) = good(chain(f"SELECT {call} AS u FROM records").apply(records({"s": "5"})))
    assert isinstance(row, dict)
    assert row["u"] == value or str(row["u"]) == value


@pytest.mark.parametrize("call", ["s::TIMESTAMP_NS", "[s::TIMESTAMP_NS]", "{'a': s::TIMESTAMP_NS}"])
def test_an_infinite_moment_becomes_no_moment_of_the_year_2262(call: str) -> None:
    rows = records({"s": "2000-01-01"}, {"s": "infinity"}, {"s": "-infinity"})
    done = chain(f"SELECT {call} AS u FROM records").apply(rows)
    assert sorted(b.index for b in done.bad) == [1, 2] and "column 'u': infinity is no moment" in done.bad[0].reason


@pytest.mark.parametrize("form", ["{}", "['a', {}]", "{{'a': [{}]}}", "map(['k'], [{}])"])
def test_a_text_of_duckdb_that_is_no_utf_8_makes_its_record_bad(form: str) -> None:
    call = form.format("printf('%c', n::INT)")
    done = chain(f"SELECT {call} AS c, n FROM records WHERE n > 64").apply(
        records({"n": 1}, {"n": 65}, {"n": 255}, {"n": 67})
    )
    assert [(b.index, b.reason) for b in done.bad] == [(2, "transform 'x': field 'c' has a text that is no UTF-8")]
    assert [place for part in done.records for place in part.index.to_pylist()] == [1, 3]


def damaged(found: Records, _: Mapping[str, str]) -> Records:
    """Texts as Arrow takes them from anywhere: the second one is no UTF-8."""
    texts = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")]
    )
    return found.with_value(pa.StructArray.from_arrays([texts], ["t"]))


def test_a_text_of_a_user_s_own_transform_that_is_no_utf_8_makes_its_record_bad() -> None:
    done = Chain([TransformSpec("u", f"{__name__}:damaged")]).apply(records({"n": 1}, {"n": 2}))
    assert [(b.index, b.reason) for b in done.bad] == [(1, "transform 'u': field 't' has a text that is no UTF-8")]
    assert good(done) == [{"t": "a"}]


def test_a_function_behind_a_column_is_a_call_with_that_column() -> None:
    query = "SELECT s.upper() AS u, o.s.lower() AS o, S.upper() FROM records"
    assert outcomes(query, '{"s":"x","o":{"s":"Y"}}', '{"S":"z","o":{"s":null}}', '{"o":{"s":"W"}}') == [
        "[{'S.upper()': 'X', 'o': 'y', 'u': 'X'}]",
        "[{'S.upper()': 'Z', 'o': None, 'u': 'Z'}]",
        "[{'S.upper()': None, 'o': 'w', 'u': None}]",
    ]
    with pytest.raises(ConfigError, match="of a text of any length"):
        chain("SELECT s.levenshtein('x') AS a FROM records")
