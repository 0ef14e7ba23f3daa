"""Whole numbers without a schema become moments by the unit that their column declares."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from calving.casting.table import TableConverter
from calving.converters.json import JsonConverter
from calving.model.record_path import Evolution
from calving.model.tables import Moments, Unit
from calving.records.declared import read_columns, read_declarations
from calving.records.fields import Projection
from tests.records.test_semantic_types import stored

NOW = 1_780_000_000
WAYS = ["native", "python", "exactly"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CALVING_NATIVE", "1" if request.param == "native" else "0")
    return str(request.param)


def outcome(kind: IcebergType, moments: Moments, way: str, *values: Any) -> list[Any]:
    """The number that is stored for each value of the column ``v``, or the reason why it is bad."""
    schema = Schema(NestedField(1, "v", kind, required=False))
    table = TableConverter("db.t", schema, Evolution(), {}, None, moments, exactly=way == "exactly")
    lines = [json.dumps({"v": value}).encode() for value in values]
    decoded = JsonConverter({}, is_key=False).decode(lines, Projection((table.target,)))
    assert decoded.bad == []
    found: list[Any] = [None] * len(values)
    for part in decoded.values:
        done = table.convert(part)
        for place, value in zip(done.index, stored(done.rows.column(0)) if done.rows else (), strict=True):
            found[part.index[place]] = value
        for bad in done.bad:
            found[part.index[bad.index]] = bad.reason
    return found


@pytest.mark.parametrize(
    ("kind", "unit", "number", "expected"),
    [
        (TimestampType(), "s", NOW, NOW * 1_000_000),
        (TimestampType(), "ms", NOW * 1000 + 1, NOW * 1_000_000 + 1000),
        (TimestamptzType(), "us", NOW * 1_000_000 + 1, NOW * 1_000_000 + 1),
        (TimestamptzType(), "ns", NOW * 1_000_000_000 + 1999, NOW * 1_000_000 + 1),
        (TimestampType(), "ns", -1, -1),
        (TimestampType(), "ns", -(2**63), -(2**63) // 1000),
        (TimestampNanoType(), "ns", NOW * 1_000_000_000 + 1999, NOW * 1_000_000_000 + 1999),
        (TimestamptzNanoType(), "us", NOW * 1_000_000 + 1, NOW * 1_000_000_000 + 1000),
        (TimestampNanoType(), "s", -5, -5_000_000_000),
        (TimeType(), "s", 86_399, 86_399_000_000),
        (TimeType(), "us", 86_399_999_999, 86_399_999_999),
        (TimeType(), "ns", 86_399_999_999_999, 86_399_999_999),
    ],
)
def test_a_number_counts_in_the_declared_unit(
    way: str, kind: IcebergType, unit: Unit, number: int, expected: int
) -> None:
    assert outcome(kind, Moments({"v": unit}), way, number, None, number) == [expected, None, expected]


@pytest.mark.parametrize(
    ("kind", "unit", "number", "reason"),
    [
        (TimestampType(), "s", NOW * 1000, "1780000000000 s is the moment +58375-12-15T20:26:40"),
        (TimestampType(), "us", 253_402_300_800_000_000, "the moment +10000-01-01T00:00:00"),
        (TimestampType(), "us", -62_135_596_800_000_001, "the moment 0000-12-31T23:59:59.999999"),
        (TimestampNanoType(), "s", 10**12, "does not fit a timestamp in nanoseconds"),
        (TimeType(), "s", 86_400, "86400 s are no time of day"),
        (TimeType(), "us", -1, "-1 us are no time of day"),
    ],
)
def test_a_number_that_is_no_moment_in_its_unit_is_bad(
    way: str, kind: IcebergType, unit: Unit, number: int, reason: str
) -> None:
    good, bad = outcome(kind, Moments({"v": unit}), way, 1, number)
    assert reason in bad and good is not None


def test_a_number_counts_milliseconds_where_nothing_is_declared(way: str) -> None:
    micros = NOW * 1_000_000
    found = outcome(TimestampType(), Moments(), way, NOW * 1000, micros, 253_402_300_799_999, -62_135_596_800_000)
    assert found[0] == micros and "58375-" in found[1] and "from us" in found[1]
    assert found[2:] == [253_402_300_799_999_000, -62_135_596_800_000_000]


def test_text_does_not_count(way: str) -> None:
    text = "2026-05-28T20:26:40.123456Z"
    assert outcome(TimestampType(), Moments({"v": "s"}), way, text, "9999-12-31T23:59:59.999999") == [
        NOW * 1_000_000 + 123_456,
        253_402_300_799_999_999,
    ]


@pytest.mark.parametrize(("kind", "text"), [(DateType(), "0000-12-31"), (TimestampType(), "0000-12-31T23:59:59")])
def test_text_of_a_year_below_1_is_bad(way: str, kind: IcebergType, text: str) -> None:
    assert "years 1 to 9999" in outcome(kind, Moments(), way, text)[0]
    assert isinstance(outcome(kind, Moments(any_year=True), way, text)[0], int)


@pytest.mark.parametrize(("days", "good"), [(2_932_896, True), (2_932_897, False), (-719_162, True), (-719_163, False)])
def test_days_are_of_the_years_1_to_9999(way: str, days: int, good: bool) -> None:
    (found,) = outcome(DateType(), Moments(), way, days)
    assert found == days if good else "outside the years" in found
    assert outcome(DateType(), Moments(any_year=True), way, days) == [days]


def test_a_number_beyond_its_column_is_bad_whatever_years_are_taken(way: str) -> None:
    (found,) = outcome(TimestampType(), Moments(any_year=True), way, 2**63 - 1)
    assert "does not fit a timestamp in microseconds" in found


def test_the_unit_of_an_inner_column_is_its_own(way: str) -> None:
    kind = StructType(
        NestedField(2, "at", TimestampType(), required=False),
        NestedField(3, "all", ListType(5, TimestampType(), False), required=False),
        NestedField(4, "by", MapType(6, StringType(), 7, TimestampType(), False), required=False),
    )
    moments = Moments({"v.at": "s", "v.all.element": "us", "v.by.value": "ns"})
    value = {"at": NOW, "all": [NOW * 1_000_000, None], "by": {"a": NOW * 1_000_000_000}}
    (row,) = outcome(kind, moments, way, value)
    moment = row["at"]
    assert moment.isoformat() == "2026-05-28T20:26:40"
    assert row == {"at": moment, "all": [moment, None], "by": [("a", moment)]}


def test_names_are_compared_as_the_sink_compares_them(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema(NestedField(1, "Created", TimestampType(), required=False))
    for fold in (False, True):
        evolution = Evolution(case_insensitive=fold)
        table = TableConverter("db.t", schema, evolution, {}, None, Moments({"created": "us"}))
        assert table.target.counting(1).unit == ("us" if fold else "ms")


def test_a_declaration_names_units() -> None:
    text = (
        "a timestamp from us, b time FROM ns, c list<timestamptz from s>, d map<string, timestamp_ns from us>, e long"
    )
    found = read_declarations(text)
    assert {name: dict(each.units) for name, each in found.items() if each.units} == {
        "a": {"a": "us"},
        "b": {"b": "ns"},
        "c": {"c.element": "s"},
        "d": {"d.value": "us"},
    }
    assert read_columns("s struct<at: timestamp from us, n: long>") == {
        "s": {"struct": {"at": "timestamp", "n": "long"}}
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a date from ms", "numbers for a date are days"),
        ("a long from us", "only times and timestamps count units"),
        ("a timestamp from minutes", "there is no unit 'minutes'; there are: s, ms, us, ns"),
        ("a timestamp from", "the unit of column 'a' is missing"),
    ],
)
def test_a_wrong_unit_is_named(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_columns(text)


def test_a_typed_number_without_a_meaning_counts_in_the_declared_unit() -> None:
    from calving.records.values import Values

    schema = Schema(NestedField(1, "v", TimestampType(), required=False))
    data = pa.StructArray.from_arrays([pa.array([NOW * 1_000_000])], ["v"])
    for exactly in (False, True):
        table = TableConverter("db.t", schema, Evolution(), {}, None, Moments({"v": "us"}), exactly=exactly)
        rows = table.convert(Values(data, True)).rows
        assert rows is not None and stored(rows.column(0)) == [NOW * 1_000_000]
