"""What becomes of a record behind transforms does not depend on the records beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from calving.errors import ConfigError
from calving.model.record_path import Evolution, PredicateSpec, RouteRule, Routing, TransformSpec
from calving.records.values import Records
from calving.source.reading import UNREADABLE
from calving.transforms.chain import Chain
from harness.blocks import RecordEnvelope
from tests.fuzz.alone import MINE, Raw, Trial, check, fates
from tests.fuzz.sink import Run, Sink
from tests.mutations.changing import Changing


@pytest.mark.parametrize("number", range(30))
def test_a_record_becomes_the_same_alone_in_company_and_without_rust(number: int) -> None:
    assert check(1, number, 14) == []


def outcomes(query: str, *values: str, kind: str = "Sql", typed: bool = False) -> list[Any]:
    """The values that a query makes of JSON, or why they are refused: the same alone and together."""
    chain = (TransformSpec("x", kind, {"query": query} if kind == "Sql" else {}),)
    trial = Trial(chain, typed, [Raw(value.encode(), None, (), 0) for value in values])
    alone, _ = fates(trial, [[place] for place in range(len(values))])
    for order in (range(len(values)), range(len(values) - 1, -1, -1)):
        assert fates(trial, [[*order]])[0] == alone
    found = []
    for place in range(len(values)):
        (told,) = alone.get(place, [None])
        found.append(None if told is None else told[2] if told[0] == "bad" else told[3])
    return found


def test_a_null_has_no_type_in_sql_whatever_others_have() -> None:
    query = "SELECT coalesce(n, 'none') AS x, typeof(n) AS t FROM records"
    assert outcomes(query, '{"n":null}', '{"n":5}', '{"n":"a"}', '{"m":1}') == [
        """[{'t': '"NULL"', 'x': 'none'}]""",
        "[{'t': 'BIGINT', 'x': 5}]",
        "[{'t': 'VARCHAR', 'x': 'a'}]",
        """[{'t': '"NULL"', 'x': 'none'}]""",
    ]
    assert outcomes("SELECT coalesce(l[1], 'none') AS x FROM records", '{"l":[]}', '{"l":[7]}', '{"l":[null]}') == [
        "[{'x': 'none'}]",
        "[{'x': 7}]",
        "[{'x': 'none'}]",
    ]


def test_fields_that_differ_by_case_stay_apart_in_sql() -> None:
    both, other = '{"A":"upper","a":"lower"}', '{"a":"lower","A":"upper"}'
    assert outcomes("SELECT a AS x, A AS y FROM records", both, other, '{"A":"one"}') == [
        "[{'x': 'lower', 'y': 'upper'}]",
        "[{'x': 'lower', 'y': 'upper'}]",
        "[{'x': 'one', 'y': 'one'}]",
    ]
    assert outcomes("SELECT * FROM records", both, other) == [
        "[{'A': 'upper', 'a': 'lower'}]",
        "[{'A': 'upper', 'a': 'lower'}]",
    ]
    assert outcomes("SELECT upper(a) || A FROM records", both) == ["[{'(upper(a) || A)': 'LOWERupper'}]"]


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("SELECT aB AS x FROM records", '{"AB":1,"ab":2}'),
        ("SELECT * EXCLUDE (a) FROM records", '{"A":1,"a":2}'),
        ("SELECT COLUMNS('a') FROM records", '{"A":1,"a":2}'),
        ("SELECT records AS r FROM records", '{"A":1,"a":2}'),
        ("SELECT s.a AS x FROM records", '{"s":{"A":1,"a":2}}'),
    ],
)
def test_a_record_is_bad_if_the_query_does_not_tell_its_fields_apart(query: str, value: str) -> None:
    (found,) = outcomes(query, value)
    assert "that differ by case only" in found


@pytest.mark.parametrize(
    "expression",
    [
        "unnest(l)",
        "unlist(l)",
        "upper(unlist(l))",
        "generate_subscripts(l, 1)",
        "regexp_split_to_table(s, ',')",
        "any_value(s)",
        "row_number() OVER ()",
        "(SELECT max(x) FROM unnest(l) t(x))",
        "stats(s)",
        "nextval('s')",
    ],
)
def test_sql_that_may_make_several_rows_or_look_at_others_is_refused(expression: str) -> None:
    for query in (f"SELECT {expression} AS x FROM records", f"SELECT 1 AS x FROM records WHERE {expression} = 1"):
        with pytest.raises(ConfigError, match=r"transform Sql"):
            Chain([TransformSpec("x", "Sql", {"query": query})])


def test_the_condition_of_sql_is_computed_from_left_to_right_for_each_record() -> None:
    query = "SELECT x FROM records WHERE x <> '' AND (CAST(x AS INTEGER) > 0 OR CAST(x AS INTEGER) < -7)"
    found = outcomes(query, '{"x":""}', '{"x":"zz"}', '{"x":"5"}', '{"x":"-9"}', '{"x":"-1"}')
    assert [found[0], *found[2:]] == [None, "[{'x': '5'}]", "[{'x': '-9'}]", None]
    assert "WHERE" in found[1] and "cannot be computed" in found[1]


def test_a_record_that_sql_cannot_compute_is_named_behind_a_condition() -> None:
    query = "SELECT CAST(x AS INTEGER) AS n FROM records WHERE y > 0"
    found = outcomes(query, '{"x":"a","y":0}', '{"x":"b","y":1}', '{"x":"1","y":0}', '{"x":"2","y":2}')
    assert found == [None, "transform 'x': CAST(x AS INTEGER) cannot be computed", None, "[{'n': 2}]"]


def test_sql_knows_objects_without_any_field() -> None:
    assert outcomes("SELECT 1 AS n FROM records", "{}", '{"a":1}') == ["[{'n': 1}]", "[{'n': 1}]"]


def test_a_transform_of_a_users_own_sees_the_types_that_a_record_has_alone() -> None:
    found = outcomes("", '{"a":null,"l":[]}', '{"a":1,"l":[1]}', '{"a":"x","l":null}', kind=MINE)
    assert [text.partition("'types': ")[2].partition(", 'value'")[0] for text in found] == [
        "'null; a: null, l: list<item: null>'",
        "'null; a: int64, l: list<item: int64>'",
        "'null; a: string, l: null'",
    ]


def unnamed(found: Records, _: Mapping[str, str]) -> Records:
    """The topic of the records whose ``a`` is 1 only."""
    nobody = pa.scalar(None, pa.string())
    return replace(found, topic=pc.if_else(pc.equal(pc.struct_field(found.value, "a"), 1), found.topic, nobody))


def test_a_record_whose_topic_a_transform_makes_null_has_no_route_in_any_company(tmp_path: Path) -> None:
    routing = Routing((), topic_pattern="db.{topic}", unrouted="dead-letter")
    chain = (TransformSpec("u", "tests.transforms.test_neighbours:unnamed"),)
    sink = Changing(tmp_path, None, (), transforms=chain, routing=routing)
    outcome = sink.take((None, {"a": 1}), (None, {"a": 2}), (None, {"a": 3}))
    assert [(offset, "no route" in reason) for offset, reason in sink.reasons(outcome)] == [(1, True), (2, True)]
    assert [len(found) for found in outcome.written.values()] == [1]


OF_HEADERS = {
    "HeaderFrom": TransformSpec("h", "HeaderFrom$Value", {"fields": "id", "headers": "h", "operation": "copy"}),
    "InsertHeader": TransformSpec("h", "InsertHeader", {"header": "h", "value.literal": "v"}),
    "DropHeaders": TransformSpec("h", "DropHeaders", {"headers": "h"}),
    "HasHeaderKey": TransformSpec("h", "Filter", {}, PredicateSpec("HasHeaderKey", {"name": "gone"})),
}


@pytest.mark.parametrize("kind", OF_HEADERS)
def test_a_record_whose_headers_cannot_be_read_is_bad_alone_where_a_transform_needs_them(
    kind: str, tmp_path: Path
) -> None:
    sink = Sink(tmp_path / "warehouse")
    run = Run(Routing((RouteRule("db.t"),)), Evolution(create=True), transforms=(OF_HEADERS[kind],))
    values = [b'{"id":%d}' % number for number in range(5)]
    envelopes = [RecordEnvelope(headers=None if number == 2 else (("h", b"1"),)) for number in range(5)]
    try:
        found = sink.take(run, [], values, envelopes)
    finally:
        sink.close()
    assert found.error is None
    assert (found.dead, found.reasons) == ({2: "HEADER_CONVERTER"}, {2: UNREADABLE})
    assert sorted(found.rows["db.t"].elements()) == sorted(found.rows["db.t"]) and len(found.rows["db.t"]) == 4
