"""Values into Iceberg types: facts 6.8, with the repairs that the manual lists."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.casting.exact import primitive
from calving.casting.table import TableConverter
from calving.casting.texts import java_double
from calving.casting.type_counts import decide, seen_of
from calving.converters.json import JsonConverter
from calving.model.record_path import Evolution
from calving.model.tables import SchemaChange
from calving.records.fields import Projection
from calving.records.inferred import merge, of_value
from calving.records.values import Values, texts

DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (True, BooleanType(), True),
        ("TRUE", BooleanType(), True),
        (7, IntegerType(), 7),
        ("-12", IntegerType(), -12),
        ("+12", LongType(), 12),
        (2.0, LongType(), 2),
        (1, DoubleType(), 1.0),
        ("1.5d", DoubleType(), 1.5),
        (" 2.5 ", DoubleType(), 2.5),
        ("NaN", DoubleType(), math.nan),
        ("-Infinity", DoubleType(), -math.inf),
        (Decimal("1.005"), DecimalType(9, 2), Decimal("1.01")),
        ("1.23", DecimalType(9, 2), Decimal("1.23")),
        (5, DecimalType(9, 2), Decimal("5.00")),
        ("text", StringType(), "text"),
        (True, StringType(), "true"),
        (12, StringType(), "12"),
        (1e10, StringType(), "1.0E10"),
        ({"a": [1, None]}, StringType(), '{"a":[1,null]}'),
        ("2024-01-02", StringType(), "2024-01-02"),
        ("00112233-4455-6677-8899-aabbccddeeff", UUIDType(), bytes.fromhex("00112233445566778899aabbccddeeff")),
        ("aGVsbG8=", BinaryType(), b"hello"),
        ("aGVsbG8", BinaryType(), b"hello"),
        ("aGVsbG8=", FixedType(5), b"hello"),
        (19000, DateType(), 19000),
        ("2022-01-08", DateType(), 19000),
        (1000, TimeType(), 1_000_000),
        ("01:02:03.5", TimeType(), 3_723_500_000),
        (1704164645678, TimestamptzType(), 1704164645678000),
        ("2024-01-02T03:04:05.678Z", TimestamptzType(), 1704164645678000),
        ("2024-01-02T04:04:05.678+01:00", TimestamptzType(), 1704164645678000),
        ("2024-01-02 03:04:05.678", TimestamptzType(), 1704164645678000),
        ("2024-01-02T03:04:05.678901234Z", TimestamptzType(), 1704164645678901),
        (1704164645678, TimestampType(), 1704164645678000),
        ("2024-01-02T03:04:05.678-08", TimestampType(), 1704164645678000),
        ("2024-01-02T03:04", TimestampType(), 1704164640000000),
    ],
)
def test_a_value_is_taken(value: Any, kind: Any, expected: Any) -> None:
    found = primitive(value, kind)
    assert found == expected or (isinstance(expected, float) and math.isnan(expected) and math.isnan(found))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**31, IntegerType()),
        (2**63, LongType()),
        ("9" * 30, LongType()),
        (1.9, IntegerType()),
        (math.nan, IntegerType()),
        (1e39, FloatType()),
        ("99999999.99", DecimalType(4, 2)),
        ("yes", BooleanType()),
        (1, BooleanType()),
        ("1.5", LongType()),
        ("", LongType()),
        ("not base64!", BinaryType()),
        ("aGVsbG8=", FixedType(4)),
        ("1-2-3", UUIDType()),
        ("2024-13-01", DateType()),
        (2**40, DateType()),
        ("25:00", TimeType()),
        (DAY_US, TimeType()),
        ("yesterday", TimestamptzType()),
        ("2023-02-30T00:00:00Z", TimestamptzType()),
        (2**62, TimestamptzType()),
        ({"a": 1}, LongType()),
        ([1], TimestamptzType()),
    ],
)
def test_what_does_not_fit_is_an_error_never_a_wrap_around(value: Any, kind: Any) -> None:
    with pytest.raises((ValueError, OverflowError, pa.ArrowInvalid)):
        primitive(value, kind)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (100.0, "100.0"),
        (1e10, "1.0E10"),
        (1e-5, "1.0E-5"),
        (0.001, "0.001"),
        (123456.789, "123456.789"),
        (1e7, "1.0E7"),
        (-1.5, "-1.5"),
        (-0.0, "-0.0"),
        (9999999.0, "9999999.0"),
        (1.25e-10, "1.25E-10"),
    ],
)
def test_a_double_as_text_is_javas(number: float, text: str) -> None:
    assert java_double(number) == text


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, None),
        (1, "long"),
        (2**70, "decimal(38, 0)"),
        (1.5, "double"),
        ("2024-01-02", "string"),
        ([], None),
        ([1, 2.5], {"list": "double"}),
        ({}, None),
        ({"a": None, "b": 1}, {"struct": {"b": "long"}}),
        ([{"a": 1}, {"b": "x"}], {"list": {"struct": {"a": "long", "b": "string"}}}),
    ],
)
def test_a_type_is_inferred_from_a_value(value: Any, kind: Any) -> None:
    assert of_value(value) == kind


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        ("long", "double", "double"),
        ("long", "string", "string"),
        ("boolean", "long", "string"),
        ({"struct": {"a": "long"}}, "long", "string"),
        (
            {"struct": {"a": "long"}},
            {"struct": {"a": "double", "b": "string"}},
            {"struct": {"a": "double", "b": "string"}},
        ),
        ({"list": "long"}, {"list": None}, {"list": "long"}),
        (None, "long", "long"),
    ],
)
def test_two_types_merge_to_the_narrowest_that_takes_both(a: Any, b: Any, both: Any) -> None:
    assert merge(a, b) == both == merge(b, a)


SCHEMA = Schema(
    NestedField(1, "i", IntegerType(), required=False),
    NestedField(2, "l", LongType(), required=False),
    NestedField(3, "f", FloatType(), required=False),
    NestedField(4, "d", DoubleType(), required=False),
    NestedField(5, "s", StringType(), required=False),
    NestedField(6, "b", BooleanType(), required=False),
    NestedField(7, "n", DecimalType(12, 3), required=False),
    NestedField(8, "day", DateType(), required=False),
    NestedField(9, "t", TimeType(), required=False),
    NestedField(10, "z", TimestamptzType(), required=False),
    NestedField(11, "ts", TimestampType(), required=False),
    NestedField(
        12,
        "o",
        StructType(
            NestedField(13, "x", LongType(), required=False), NestedField(14, "z", TimestamptzType(), required=False)
        ),
        required=False,
    ),
    NestedField(15, "a", ListType(16, LongType(), element_required=False), required=False),
)
NONE = Evolution()


@dataclass
class Outcome:
    """Rows and reasons by place, and schema changes."""

    rows: dict[int, dict[str, Any]]
    bad: dict[int, str]
    changes: list[SchemaChange]


def convert(
    values: list[bytes], schema: Schema = SCHEMA, evolution: Evolution = NONE, *, exactly: bool = False
) -> Outcome:
    table = TableConverter("db.t", schema, evolution, {}, exactly=exactly)
    unknown: Literal["ignore", "look", "add"] = (
        "add" if evolution.evolve else "look" if evolution.case_insensitive else "ignore"
    )
    projection = None if exactly else Projection((table.target,), unknown)
    decoded = JsonConverter({}, is_key=False).decode(values, projection)
    found = Outcome({}, {b.index: b.reason for b in decoded.bad}, [])
    for part in decoded.values:
        places = part.index if part.index is not None else range(len(values))
        converted = table.convert(part)
        found.changes += [n for n in converted.changes if n not in found.changes]
        found.bad |= {places[b.index]: b.reason for b in converted.bad}
        if converted.rows is not None:
            kept = converted.index
            found.rows |= dict(
                zip((places[i] for i in kept), numbers(converted.rows.to_struct_array()).to_pylist(), strict=True)
            )
    if not found.changes:
        assert sorted([*found.rows, *found.bad]) == list(range(len(values)))
    return found


def numbers(array: pa.Array) -> pa.Array:
    """Timestamps and dates as numbers: Python's own end in the year 9999."""
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.int64())
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32())
    if isinstance(array, pa.StructArray):
        children = [numbers(child) for child in array.flatten()]
        return pa.StructArray.from_arrays(children, names=[f.name for f in array.type], mask=array.is_null())
    return array


def comparable(found: Outcome) -> Any:
    if found.changes:
        merged: dict[Any, Any] = {}
        for need in found.changes:
            key = (need.kind, need.path)
            merged[key] = merge(merged.get(key), need.type if need.seen is None else decide(need.seen, 0).kind)
        return merged
    return found.rows, set(found.bad)


_MILLIS = st.integers(-(10**14), 10**14)
_ISO = st.datetimes().map(lambda d: d.isoformat() + "Z")
_LOCAL = st.datetimes().map(lambda d: d.isoformat())
_ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.just([]), st.just({})
)
_RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "i": st.one_of(st.integers(-(2**31), 2**31 - 1), _ODD),
        "l": st.one_of(st.integers(-(2**63), 2**63 - 1), _ODD),
        "f": st.one_of(st.floats(width=32, allow_nan=False, allow_infinity=False), _ODD),
        "d": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(), _ODD),
        "s": st.one_of(st.text(), st.sampled_from(["2024-01-02", "2024-01-02T03:04:05Z", "12"]), _ODD),
        "b": st.one_of(st.booleans(), _ODD),
        "n": st.one_of(st.integers(-(10**8), 10**8), st.decimals(-1000, 1000, places=3).map(float), _ODD),
        "day": st.one_of(st.dates().map(lambda d: d.isoformat()), st.integers(-(10**6), 10**6), _ODD),
        "t": st.one_of(st.times().map(lambda t: t.isoformat()), st.integers(0, 86_399_999), _ODD),
        "z": st.one_of(_MILLIS, _ISO, _LOCAL, _ODD),
        "ts": st.one_of(_MILLIS, _LOCAL, _ISO, _ODD),
        "o": st.one_of(
            st.fixed_dictionaries({}, optional={"x": st.integers(), "z": _MILLIS, "new": st.integers()}), _ODD
        ),
        "a": st.one_of(st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=3), _ODD),
        "unknown": _ODD,
    },
)


def test_few_values_give_what_they_give_among_many() -> None:
    values = [b'{"l":%d,"s":"%d","x":1.%d}' % (i, i, i) for i in range(40)]
    together = convert(values).rows
    assert [convert([value]).rows[0] for value in values] == [together[i] for i in range(40)]


@settings(max_examples=100, deadline=None)
@given(st.lists(_RECORDS, min_size=1, max_size=8))
def test_the_fast_way_and_the_exact_way_give_the_same(records: list[dict[str, Any]]) -> None:
    values = [json.dumps(record).encode() for record in records]
    assert comparable(convert(values)) == comparable(convert(values, exactly=True))


@settings(max_examples=50, deadline=None)
@given(st.lists(_RECORDS, min_size=1, max_size=6))
def test_the_fast_way_and_the_exact_way_ask_for_the_same(records: list[dict[str, Any]]) -> None:
    evolution = Evolution(evolve=True)
    values = [json.dumps(record).encode() for record in records]
    assert comparable(convert(values, SCHEMA, evolution)) == comparable(
        convert(values, SCHEMA, evolution, exactly=True)
    )


GOOD = [json.dumps({"l": i, "s": "x"}).encode() for i in range(500)]
POISON = [
    b"",
    b"   ",
    b"[1]",
    b'{"d":NaN}',
    b'{"l":1}{"l":2}',
    b'{"l":1',
    b'{"s":"\xff"}',
    b'{"l":"x"}',
    b'{"l":1e999}',
    b'{"l":1} x',
    b"[" * 100_000,
    b'{"l":' + b"9" * 5000 + b"}",
]


@pytest.mark.parametrize("place", [0, 1, 250, 499])
@pytest.mark.parametrize("poison", POISON, ids=range(len(POISON)))
def test_a_poison_value_is_named_wherever_it_stands(poison: bytes, place: int) -> None:
    values = [*GOOD[:place], poison, *GOOD[place + 1 :]]
    found = convert(values)
    assert set(found.bad) == {place}
    assert len(found.rows) == len(values) - 1


@pytest.mark.parametrize(
    "odd",
    [
        b'{"l":1,"l":2}',
        b' {"l": 2}\n',
        b'{\n "l": 2\n}',
        b'{"l":2,"s":"\\ud83d\\ude00"}',
        b'{"l":"2"}',
    ],
)
def test_an_odd_value_among_others_is_taken_as_the_exact_way_takes_it(odd: bytes) -> None:
    values = [*GOOD[:100], odd, *GOOD[101:]]
    assert comparable(convert(values)) == comparable(convert(values, exactly=True))
    assert convert(values).rows[100]["l"] == 2


def test_blank_values_and_several_in_one_do_not_make_up_for_each_other() -> None:
    found = convert([b'{"l":1}\n{"l":2}', b" ", b'{"l":3}'])
    assert set(found.bad) == {0, 1}
    assert found.rows[2]["l"] == 3


def test_unknown_fields_are_ignored_without_evolution() -> None:
    assert convert([b'{"l":1,"zz":{"q":1}}']).rows[0]["l"] == 1


def test_an_unknown_field_that_is_only_null_needs_nothing() -> None:
    found = convert([b'{"l":1,"zz":null,"yy":{},"xx":[]}'], evolution=Evolution(evolve=True))
    assert found.rows[0]["l"] == 1


def test_an_unknown_nested_field_is_a_need() -> None:
    found = convert([b'{"o":{"new":"2024-01-02"}}'], evolution=Evolution(evolve=True))
    assert found.changes == [SchemaChange("db.t", "add", ("o", "new"), seen=seen_of("string", 1, "2024-01-02"))]


def test_a_number_too_large_for_its_column_is_a_need_to_widen() -> None:
    found = convert([b'{"i":3000000000}'], evolution=Evolution(evolve=True))
    assert found.changes == [SchemaChange("db.t", "widen", ("i",), "long")]


def test_a_missing_value_of_a_required_column_is_an_error_or_a_need() -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    assert "required" in convert([b'{"id":1}', b"{}"], schema).bad[1]
    found = convert([b'{"id":1}', b"{}"], schema, Evolution(evolve=True))
    assert found.changes == [SchemaChange("db.t", "optional", ("id",))]


def test_maps_are_written() -> None:
    kind = MapType(2, StringType(), 3, LongType(), value_required=False)
    schema = Schema(NestedField(1, "m", kind, required=False))
    assert convert([b'{"m":{"a":1,"b":null}}'], schema).rows == {0: {"m": [("a", 1), ("b", None)]}}


def test_fields_are_found_ignoring_case_when_asked() -> None:
    evolution = Evolution(case_insensitive=True)
    assert convert([b'{"L":5}'], evolution=evolution).rows[0]["l"] == 5


@pytest.mark.parametrize("exactly", [False, True])
def test_the_text_of_a_route_field_is_found_at_any_depth_and_of_any_kind(exactly: bool) -> None:
    values = [b'{"a":{"b":"x"}}', b'{"a":{"b":7}}', b'{"a":1}', b"{}", b'{"a":{"b":null}}', b'{"a":{"b":true}}']
    found: dict[int, str | None] = {}
    projection = None if exactly else Projection(route="a.b")
    for part in JsonConverter({}, is_key=False).decode(values, projection).values:
        found |= dict(zip(part.index or range(len(values)), texts(part.data, "a.b"), strict=True))
    assert [found[i] for i in range(len(values))] == ["x", "7", None, None, None, "true"]


def test_an_error_names_the_field_and_the_value() -> None:
    assert "field 'o.x': 'abc' is not a long" in convert([b'{"o":{"x":"abc"}}']).bad[0]


@pytest.mark.parametrize(
    "text",
    [
        " 234567812345678123456781234567a",
        "+2345678123456781234567812345678",
        "0x345678123456781234567812345678",
        "1234567812345678123456781234567_8",
        "12345678123456781234567812345678 ",
        "\u06612345678123456781234567812345678",
        "1234-56781234-5678-1234-567812345678",
        "12345678-12345678123456781234-5678",
        "{12345678-1234-5678-1234-567812345678}",
    ],
)
def test_a_text_that_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        primitive(text, UUIDType())


@pytest.mark.parametrize("exactly", [False, True])
def test_nanoseconds_near_the_least_moment_round_down_to_microseconds(exactly: bool) -> None:
    numbers = [-(2**63) + 1, -(2**63) + 807, -(2**63) + 808, -1001, -1, 0, 999, 2**63 - 1]
    column = pa.array(numbers, pa.int64()).cast(pa.timestamp("ns", "UTC"))
    rows = pa.StructArray.from_arrays([column], ["at"])
    schema = Schema(NestedField(1, "at", TimestamptzType(), required=False))
    found = TableConverter("db.t", schema, Evolution(), {}, exactly=exactly).convert(Values(rows, True))
    assert found.rows is not None
    assert found.rows.column(0).cast(pa.int64()).to_pylist() == [number // 1000 for number in numbers]


@pytest.mark.parametrize(
    ("text", "number"), [("0" * 60 + "1", 1), ("-" + "0" * 5000 + "7", -7), ("+" + "0" * 40, 0), ("0" * 45, 0)]
)
def test_zeros_in_front_of_a_whole_number_do_not_count(text: str, number: int) -> None:
    assert primitive(text, LongType()) == number


@pytest.mark.parametrize("value", ["9" * 5000, Decimal("1e100")])
def test_the_reason_for_a_number_that_is_too_large_shows_the_number_of_the_record(value: Any) -> None:
    with pytest.raises(OverflowError, match=r"9999|1E\+100"):
        primitive(value, LongType())


@pytest.mark.parametrize("text", ["1dd", "1fd", "1dfdf", "1.5Df", "d", "Infinityd"])
def test_a_number_has_one_suffix_at_most(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        primitive(text, DoubleType())


@pytest.mark.parametrize("offset", ["+25:00", "-24", "+01:60", "+0260"])
@pytest.mark.parametrize("kind", [TimestampType(), TimestamptzType()])
def test_an_offset_that_no_clock_has_is_refused(offset: str, kind: Any) -> None:
    with pytest.raises((ValueError, pa.ArrowInvalid)):
        primitive(f"2024-01-02T03:04:05{offset}", kind)


@pytest.mark.parametrize("evolve", [True, False])
@pytest.mark.parametrize("is_typed", [True, False])
def test_a_record_without_fields_is_bad_for_a_table_without_columns(*, evolve: bool, is_typed: bool) -> None:
    """A file has no rows without columns."""
    converter = TableConverter("db.t", Schema(), Evolution(evolve=evolve), {})
    values = Values(pa.array([{}], pa.struct([])), True) if is_typed else Values([{}], False)
    (bad,) = converter.convert(values).bad
    assert bad.reason == "table db.t: it has no columns, and the record brings none: add a column to the table"


def test_a_field_is_the_first_column_of_a_table_without_columns() -> None:
    found = TableConverter("db.t", Schema(), Evolution(evolve=True), {}).convert(Values([{"a": 1}], False))
    assert (found.bad, [change.path for change in found.changes]) == ([], [("a",)])
