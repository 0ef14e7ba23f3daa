"""A column cannot have the name of a partition field: the record that needs it is bad, and the others are written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.model.record_path import ConverterSpec, Evolution, TopicConverters
from calving.model.tables import RowMutations
from calving.runtime.checks import refuse_missing_tables
from calving.settings.load import parse
from tests.mutations.changing import Changing

Make = Callable[..., Changing]
NOON = "2024-05-06T12:00:00Z"


@pytest.fixture
def sink(tmp_path: Path) -> Make:
    def make(**settings: Any) -> Changing:
        defaults = {"mutations": None, "id_columns": (), "evolution": Evolution(create=True, evolve=True), "slots": 2}
        return Changing(tmp_path, **defaults | settings)

    return make


def refused(column: str) -> str:
    return f"the table cannot have a column '{column}': one of its partition fields has this name"


def check_bad(sink: Changing, column: str, *records: object) -> None:
    """The first of these records is bad because of the column, and it alone."""
    ((offset, reason),) = sink.reasons(sink.take(*((None, record) for record in records)))
    assert offset == sink._done[0] - len(records)
    assert reason.endswith(refused(column))


@pytest.mark.parametrize(
    ("term", "record", "name"),
    [
        ("day(ts)", {"ts": NOON}, "ts_day"),
        ("bucket(id, 4)", {"id": 1}, "id_bucket"),
        ("o.x", {"o": {"x": 1}}, "o_x"),
    ],
)
def test_a_field_with_the_name_of_a_partition_field_is_bad(
    sink: Make, term: str, record: dict[str, Any], name: str
) -> None:
    made = sink(partition_by=(term,))
    made.take((None, record))
    check_bad(made, name, {**record, name: "x"}, {**record, "more": 1})
    assert len(made.rows("more")) == 2


def test_a_record_with_such_a_field_creates_no_table_and_the_others_do(sink: Make) -> None:
    made = sink(partition_by=("day(ts)",))
    check_bad(made, "ts_day", {"ts": NOON, "ts_day": "x"}, {"ts": NOON, "n": 1})
    assert made.rows("n") == [(1,)]


def test_if_all_records_have_such_a_field_all_are_bad_and_there_is_no_table(sink: Make) -> None:
    made = sink(partition_by=("day(ts)",))
    check_bad(made, "ts_day", {"ts": NOON, "ts_day": "x"})
    assert not made.catalog.table_exists("db.t")


def test_the_column_of_an_identity_term_has_its_partition_fields_name(sink: Make) -> None:
    made = sink(partition_by=("cat",))
    made.take((None, {"cat": "a"}))
    assert made.rows("cat") == [("a",)]


def test_the_old_name_of_a_renamed_partition_column_is_bad(sink: Make) -> None:
    made = sink(partition_by=("cat",))
    made.take((None, {"cat": "a"}))
    with made.table.update_schema() as change:
        change.rename_column("cat", "category")
    check_bad(made, "cat", {"cat": "b"}, {"category": "c"})
    assert made.rows("category") == [("a",), ("c",)]


def test_partition_fields_of_former_specs_count(sink: Make) -> None:
    made = sink(partition_by=("day(ts)",))
    made.take((None, {"ts": NOON}))
    with made.table.update_spec() as change:
        change.remove_field("ts_day")
    check_bad(made, "ts_day", {"ts": NOON, "ts_day": "x"}, {"ts": NOON})


def test_without_case_names_that_differ_in_case_count(sink: Make) -> None:
    made = sink(partition_by=("day(ts)",), evolution=Evolution(create=True, evolve=True, case_insensitive=True))
    check_bad(made, "ts_day", {"ts": NOON, "TS_Day": "x"}, {"ts": NOON})
    check_bad(made, "ts_day", {"ts": NOON, "TS_Day": "x"}, {"ts": NOON})


def test_without_evolution_such_a_field_is_ignored_like_any_other(sink: Make) -> None:
    made = sink(partition_by=("day(ts)",))
    made.take((None, {"ts": NOON}))
    other = made.with_(evolution=Evolution())
    assert other.reasons(other.take((None, {"ts": NOON, "ts_day": "x"}))) == []


def test_fields_of_records_with_a_schema_count_if_they_have_a_value(sink: Make) -> None:
    schema = {
        "type": "struct",
        "fields": [
            {"field": "cat", "type": "string", "optional": True},
            {"field": "cat_trunc", "type": "string", "optional": True},
        ],
    }

    def record(name: str | None) -> dict[str, Any]:
        return {"schema": schema, "payload": {"cat": "abcdef", "cat_trunc": name}}

    envelope = ConverterSpec("json", {"schemas.enable": "true"})
    made = sink(partition_by=("truncate(cat, 2)",))
    made.take((None, {"cat": "a"}))
    typed = made.with_(converters=TopicConverters(ConverterSpec("json"), envelope))
    check_bad(typed, "cat_trunc", record("ab"), record(None))
    assert typed.rows("cat") == [("a",), ("abcdef",)]


def test_a_mutation_tables_records_are_checked_alike(sink: Make) -> None:
    made = sink(partition_by=("bucket(id, 4)",), mutations=RowMutations("op"), id_columns=("id",))
    made.take((None, {"id": 1, "op": "u"}))
    check_bad(made, "id_bucket", {"id": 1, "op": "u", "id_bucket": 1}, {"id": 2, "op": "u"})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"partition_by": ("day(ts)", "days(ts)")}, "two terms of its partition-by have the name 'ts_day'"),
        ({"partition_by": ("bucket(n, 4)", "bucket(n, 8)")}, "two terms of its partition-by have the name 'n_bucket'"),
        (
            {"partition_by": ("day(ts)",), "columns": {"ts_day": "string"}},
            r"partition-by 'day\(ts\)' makes a partition field 'ts_day', so the table cannot have a column of this name",
        ),
    ],
)
def test_settings_that_ask_for_one_name_twice_stop_the_sink(sink: Make, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        sink(**settings).take((None, {"ts": NOON, "n": 1}))


def test_the_soft_delete_field_cannot_have_the_name_of_a_partition_field(sink: Make) -> None:
    made = sink(partition_by=("truncate(cat, 2)",))
    made.take((None, {"id": 1, "cat": "abc"}))
    soft = RowMutations("op", delete_mode="soft", soft_delete_field="cat_trunc")
    with pytest.raises(ConfigError, match="soft-delete-field cat_trunc: " + refused("cat_trunc")):
        made.with_(mutations=soft, id_columns=("id",)).take((None, {"id": 1, "op": "d"}))


@pytest.mark.parametrize(
    "more",
    [
        {"iceberg.table.db.t.partition-by": "day(ts), days(ts)"},
        {"iceberg.table.db.t.columns": "ts timestamptz, ts_day string"},
    ],
)
def test_validate_refuses_them(tmp_path: Path, more: dict[str, str]) -> None:
    settings = {
        "name": "s",
        "topics": "t",
        "kafka.bootstrap.servers": "b:1",
        "iceberg.tables": "db.t",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.default-partition-by": "day(ts)",
        "iceberg.catalog.type": "embedded",
    }
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    with pytest.raises(ConfigError, match="'ts_day'"):
        list(refuse_missing_tables(catalog, parse({**settings, **more})))
