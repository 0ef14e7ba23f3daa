"""What a query of SQL makes of records."""

from __future__ import annotations

import pytest

from calving.errors import ConfigError
from calving.records.values import objects
from tests.transforms.applying import apply, chain, records, values


def test_sql_computes_filters_and_keeps_each_record_in_its_place() -> None:
    query = "SELECT a * 2 AS b, upper(s) AS s FROM records WHERE a > 1"
    done = chain("Sql", {"query": query}).apply(records({"a": 1, "s": "x"}, {"a": 2, "s": "y"}, {"a": 3, "s": "z"}))
    (part,) = done.records
    assert objects(part.value) == [{"b": 4, "s": "Y"}, {"b": 6, "s": "Z"}]
    assert part.index.to_pylist() == [1, 2]
    assert done.dropped == {"transform x": 1}


def test_sql_takes_a_star() -> None:
    assert values("Sql", {"query": "SELECT *, 1 AS one FROM records"}, {"a": 5}) == [{"a": 5, "one": 1}]


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM records",
        "SELECT 1; SELECT 2",
        "SELECT DISTINCT a FROM records",
        "SELECT a FROM records ORDER BY a LIMIT 1",
        "SELECT sum(a) AS a FROM records",
        "SELECT a, row_number() OVER () AS n FROM records",
        "SELECT a FROM records WHERE a > (SELECT 1)",
        "SELECT unnest(a) AS a FROM records",
        "SELECT r.a FROM records r, records s",
        "SELECT * FROM 'secret.csv'",
        "SELECT * FROM read_csv('secret.csv')",
    ],
)
def test_sql_that_looks_at_more_than_one_record_is_refused(query: str) -> None:
    with pytest.raises(ConfigError, match=r"transforms\.x: transform Sql"):
        chain("Sql", {"query": query})


def test_sql_of_an_empty_object() -> None:
    assert values("Sql", {"query": "SELECT 1 AS n, a FROM records"}, {}) == [{"n": 1, "a": None}]


def test_sql_reads_objects_inside_of_objects_from_a_part_of_a_block() -> None:
    given = [{"id": i, "more": {"o": {"p": {"a": i, "s": str(i)}}}} for i in range(6)]
    part = apply("Sql", {"query": "SELECT * FROM records"}, records(*given).slice(3, 5))
    assert objects(part.value) == given[3:5]


def test_sql_refuses_objects_without_fields_by_the_field_that_has_them() -> None:
    done = chain("Sql", {"query": "SELECT CAST(a AS INTEGER) AS a, * FROM records"}).apply(
        records({"a": "1", "b": {"c": {}}}, {"a": "x", "b": {"c": {}}})
    )
    assert [b.reason for b in done.bad] == ["transform 'x': field 'b': SQL knows no objects without fields"] * 2


def test_sql_takes_a_missing_field_for_null_but_knows_its_own_names() -> None:
    query = "SELECT upper(a) AS a, b AS c FROM records WHERE c IS NULL"
    assert values("Sql", {"query": query}, {"x": 1}) == [{"a": None, "c": None}]


def test_sql_gives_the_text_of_an_enum() -> None:
    assert values("Sql", {"query": "SELECT s::ENUM('x', 'y') AS e FROM records"}, {"s": "x"}) == [{"e": "x"}]


def test_sql_hands_on_what_it_does_not_look_at() -> None:
    given = {"n": 2**70, "l": [1, "x"], "o": {"a": [None]}}
    assert values("Sql", {"query": "SELECT * FROM records"}, given) == [given]


def test_a_record_that_sql_cannot_compute_is_told_from_the_others() -> None:
    query = "SELECT CAST(s AS INTEGER) AS n FROM records"
    done = chain("Sql", {"query": query}).apply(records({"s": "1"}, {"s": "x"}, {"s": "3"}))
    assert [b.index for b in done.bad] == [1]
