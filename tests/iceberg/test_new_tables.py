"""Columns that are declared, or partitioned by time, have that type when they are created, whatever records hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from calving.errors import BadRecordError, ConfigError
from calving.iceberg.catalog import open_catalog
from calving.model.record_path import Evolution, Tolerance
from calving.records.declared import read_columns, with_declared
from calving.runtime.checks import check_settings, refuse_missing_tables
from calving.settings.load import parse
from tests.mutations.changing import Changing

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)
ISO, MILLIS = "2024-05-06T12:00:00Z", 1_714_996_800_000
Make = Callable[..., Changing]


@pytest.fixture
def sink(tmp_path: Path) -> Make:
    def make(**settings: Any) -> Changing:
        defaults = {"mutations": None, "id_columns": (), "evolution": Evolution(create=True, evolve=True), "slots": 2}
        return Changing(tmp_path, **defaults | settings)

    return make


def types(sink: Changing) -> dict[str, str]:
    return {field.name: str(field.field_type) for field in sink.table.schema().fields}


@pytest.mark.parametrize("ts", [ISO, MILLIS])
@pytest.mark.parametrize("unit", ["year", "month", "day", "hour"])
def test_a_column_that_is_partitioned_by_time_is_created_as_a_moment(sink: Make, unit: str, ts: object) -> None:
    made = sink(partition_by=(f"{unit}(ts)",))
    made.take((None, {"ts": ts, "n": 1}))
    assert types(made) == {"ts": "timestamptz", "n": "long"}
    assert made.rows("ts", "n") == [(NOON, 1)]


def test_a_column_that_is_partitioned_by_time_counts_in_its_declared_unit(sink: Make) -> None:
    made = sink(partition_by=("day(ts)",), units={"ts": "us"})
    made.take((None, {"ts": MILLIS * 1000, "n": 1}))
    made.take((None, {"ts": MILLIS * 1000, "n": 2}))  # the table exists
    assert types(made) == {"ts": "timestamptz", "n": "long"}
    assert made.rows("ts", "n") == [(NOON, 1), (NOON, 2)]


def test_a_column_inside_of_a_struct_is_partitioned_by_time(sink: Make) -> None:
    made = sink(partition_by=("day(meta.at)",))
    made.take((None, {"meta": {"at": ISO, "who": "x"}}))
    assert made.rows("meta") == [({"at": NOON, "who": "x"},)]


def test_text_and_milliseconds_may_be_mixed_in_a_column_that_is_partitioned_by_time(sink: Make) -> None:
    made = sink(partition_by=("day(ts)",))
    made.take(*[(None, {"ts": ts}) for ts in (ISO, MILLIS, MILLIS + 1, ISO)])
    assert len(made.rows("ts")) == 4


def test_what_is_no_moment_is_bad_in_a_column_that_is_partitioned_by_time(sink: Make) -> None:
    made = sink(partition_by=("day(ts)",))
    outcome = made.take((None, {"ts": "soon"}), (None, {"ts": ISO}))
    assert [offset for offset, _ in made.reasons(outcome)] == [0]
    assert "'soon' is not a timestamptz" in made.reasons(outcome)[0][1]


@pytest.mark.parametrize(
    ("term", "record", "text"),
    [
        (
            "day(ts)",
            {"ts": True},
            r"cannot be applied to a boolean: declare another type, such as iceberg\.table\.db\.t",
        ),
        ("day(ts)", {"t": ISO}, r"there is no column 'ts': .*columns = \"ts timestamptz\", or correct the term"),
        ("bucket(v, 4)", {"v": 1.5}, r"cannot be applied to a double: .*columns = \"v string\""),
    ],
)
def test_a_term_that_does_not_fit_the_records_says_what_to_write(
    sink: Make, term: str, record: object, text: str
) -> None:
    made = sink(partition_by=(term,))
    ((offset, reason),) = made.reasons(made.take((None, record)))
    assert offset == 0 and re.search(text, reason)
    assert made.catalog.list_namespaces() == []


def test_a_term_that_is_not_understood_stops_the_sink(sink: Make) -> None:
    with pytest.raises(ConfigError, match=r"partition-by 'bucket\(v, ²\)'"):
        sink(partition_by=("bucket(v, ²)",)).take((None, {"v": 1}))


def test_a_declared_type_goes_before_the_one_that_a_partition_makes_likely(sink: Make) -> None:
    made = sink(partition_by=("day(ts)",), columns={"ts": "date"})
    made.take((None, {"ts": "2024-05-06"}))
    assert types(made) == {"ts": "date"}


def test_a_table_is_created_with_its_declared_columns_and_the_others_are_inferred(sink: Make) -> None:
    made = sink(columns=read_columns("amount decimal(12, 2), ts timestamptz, props map<string, string>, note text"))
    made.take((None, {"id": 1, "amount": 1.005, "ts": ISO, "props": {"a": 1}}))
    assert types(made) == {
        "id": "long",
        "amount": "decimal(12, 2)",
        "ts": "timestamptz",
        "props": "map<string, string>",
        "note": "string",
    }
    assert made.rows("amount", "ts", "props", "note") == [(Decimal("1.01"), NOON, [("a", "1")], None)]


def test_what_all_tables_declare_is_there_where_records_have_it(sink: Make) -> None:
    made = sink(types=read_columns("ts timestamptz, amount decimal(12, 2), meta.at timestamptz"))
    made.take((None, {"id": 1, "ts": ISO}))
    assert types(made) == {"id": "long", "ts": "timestamptz"}
    made.take((None, {"id": 2, "amount": 7, "meta": {"at": MILLIS, "by": "x"}}))
    assert made.rows("id", "amount", "meta")[1] == (2, Decimal("7.00"), {"at": NOON, "by": "x"})


def test_a_column_that_is_added_inside_of_another_has_its_declared_type(sink: Make) -> None:
    made = sink(types=read_columns("meta.at timestamptz"))
    made.take((None, {"meta": {"by": "x"}}))
    made.take((None, {"meta": {"at": ISO}}))
    assert ({"by": None, "at": NOON},) in made.rows("meta")


def test_values_that_a_declared_column_does_not_take_are_bad(sink: Make) -> None:
    made = sink(columns={"v": "long"}, tolerance=Tolerance())
    with pytest.raises(BadRecordError, match=r"offset 1: table db\.t: field 'v': 'x' is not a long"):
        made.take((None, {"v": 1}), (None, {"v": "x"}), (None, {"v": "x"}))


def test_declared_names_are_found_in_any_case_where_all_are(sink: Make) -> None:
    made = sink(columns={"Amount": "decimal(12, 2)"}, evolution=Evolution(create=True, case_insensitive=True))
    made.take((None, {"AMOUNT": 1}), (None, {"amount": 2}))
    assert types(made) == {"Amount": "decimal(12, 2)"}


def test_a_fraction_may_be_an_id_where_it_is_declared_as_a_decimal(sink: Make) -> None:
    made = sink(columns={"id": "decimal(9, 1)"}, id_columns=("id",))
    made.take((None, {"id": 1.5}))
    assert made.rows("id") == [(Decimal("1.5"),)]


SETTINGS = {
    "name": "s",
    "topics": "t",
    "iceberg.tables": "db.t",
    "iceberg.tables.auto-create-enabled": "true",
    "kafka.bootstrap.servers": "localhost:9092",
}


def test_a_table_declares_columns_beside_those_of_all_tables() -> None:
    declarations = {"iceberg.tables.default-columns": "ts timestamptz, v long", "iceberg.table.db.t.columns": "v text"}
    sink = parse({**SETTINGS, **declarations})
    assert sink.declared("db.t") == {"ts": "timestamptz", "v": "string"}
    assert sink.declared("db.other") == {"ts": "timestamptz", "v": "long"}


def test_a_declaration_that_is_not_understood_is_named_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"^iceberg\.table\.db\.t\.columns: column 'v': there is no type 'lnog'"):
        parse({**SETTINGS, "iceberg.table.db.t.columns": "v lnog"})


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("partition-by", "day(v)", r"partition-by: 'day\(v\)' cannot be applied to v double"),
        ("id-columns", "v", "the id-column 'v' cannot be declared as double"),
    ],
)
def test_a_declaration_that_its_table_cannot_have_is_refused_before_the_start(
    tmp_path: Path, key: str, value: str, text: str
) -> None:
    sink = parse({**SETTINGS, "iceberg.table.db.t.columns": "v double", f"iceberg.table.db.t.{key}": value})
    catalog = open_catalog("c", {"type": "embedded", "warehouse": str(tmp_path)})
    with pytest.raises(ConfigError, match=text):
        list(refuse_missing_tables(catalog, sink))


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (
            {"default-partition-by": "weekly(ts)"},
            r"^iceberg\.tables\.default-partition-by: 'weekly\(ts\)' is not understood",
        ),
        (
            {"default-partition-by": "day(v)", "default-columns": "v double"},
            r"^iceberg\.tables\.default-partition-by: 'day\(v\)' cannot be applied to v double",
        ),
        (
            {"default-id-columns": "v", "default-columns": "v double"},
            r"^iceberg\.tables\.default-id-columns: the id-column 'v' cannot be declared as double",
        ),
    ],
)
def test_defaults_that_no_table_can_have_are_refused_before_the_start_where_records_name_the_tables(
    keys: dict[str, str], text: str
) -> None:
    routes = {"iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "to", "iceberg.tables": ""}
    with pytest.raises(ConfigError, match=text):
        check_settings(parse({**SETTINGS, **routes, **{f"iceberg.tables.{key}": each for key, each in keys.items()}}))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a long", {"a": "long"}),
        ("a.b TEXT , c Decimal(3,1)", {"a.b": "string", "c": "decimal(3, 1)"}),
        ("a list<map<string,struct<x: fixed[4], y bigint>>>", {
            "a": {"list": {"map": ["string", {"struct": {"x": "fixed[4]", "y": "long"}}]}}
        }),
    ],
)  # fmt: skip
def test_declarations_are_read(text: str, found: dict[str, Any]) -> None:
    assert read_columns(text) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ts", "the type of column 'ts' is missing"),
        ("ts instant", "there is no type 'instant'; a type is boolean"),
        ("v decimal(40, 2)", "a decimal has digits and scale"),
        ("v decimal", "a decimal has digits and scale"),
        ("v list<long", "'>' is missing"),
        ("a long b long", "',' is missing before 'b long'"),
        ("a long, a text", "column 'a' is declared twice"),
    ],
)
def test_a_declaration_that_is_not_understood_says_where(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_columns(text)


def test_a_declaration_below_a_value_that_is_no_object_makes_it_one_only_where_the_table_is_created_so() -> None:
    declared = {"a.b": "long"}
    assert with_declared({"struct": {"a": "string"}}, declared) == {"struct": {"a": "string"}}
    found = with_declared({"struct": {"a": "string"}}, declared, everywhere=declared)
    assert found == {"struct": {"a": {"struct": {"b": "long"}}}}
