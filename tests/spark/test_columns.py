"""The columns of a DataFrame, without Spark: which of them a table can have, and what is said of the others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, MapType, StringType, StructType

from calving.errors import BadRecordError, CalvingError, ConfigError
from calving_spark.wording import as_options
from tests.spark.lake import SparkLake
from tests.spark.written import Batches

Make = Callable[..., Batches]
PAIR = StructType().add("id", "long").add("s", "string")


@pytest.fixture
def batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    lake = SparkLake.create(tmp_path / "warehouse")

    def make(schema: StructType, **options: str) -> Batches:
        return Batches(
            lake, schema, monkeypatch.setattr, {key.replace("_", "-"): text for key, text in options.items()}
        )

    return make


TWICE = StructType().add("a", "long").add("a", "long")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (TWICE, "column s has two fields a: rename one"),
        (ArrayType(TWICE), "column s.element has two fields a"),
        (MapType(StringType(), TWICE), "column s.value has two fields a"),
        (StructType().add("t", TWICE), "column s.t has two fields a"),
        (StructType(), "column s has no fields"),
        (ArrayType(StructType()), "column s.element has no fields"),
    ],
)
def test_a_struct_that_no_column_can_be_is_named(batches: Make, kind: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=f"table lake.t: {said}"):
        batches(StructType().add("id", "long").add("s", kind)).write([])


def test_fields_that_differ_by_case_are_two_unless_case_is_ignored(batches: Make) -> None:
    schema = StructType().add("s", StructType().add("a", "long").add("A", "long"))
    with pytest.raises(ConfigError, match="column s has two fields a"):
        batches(schema, schema_case_insensitive="true").write([])
    written = batches(schema)
    written.write([{"s": {"a": 1, "A": 2}}])
    assert written.rows == [({"a": 1, "A": 2},)]


@pytest.mark.parametrize("evolves", ["false", "true"])
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (PAIR, StructType().add("ID", "long"), "has a column id, and the DataFrame ID, which"),
        (
            StructType().add("n", StructType().add("a", "long")),
            StructType().add("n", StructType().add("a", "long").add("A", "long")),
            "has a column n.a, and the DataFrame n.A, which",
        ),
    ],
)
def test_a_column_that_differs_by_case_from_one_of_the_table_is_not_added(
    batches: Make, before: StructType, after: StructType, said: str, evolves: str
) -> None:
    batches(before).write([])
    with pytest.raises(ConfigError, match=f"{said}.* set schema-case-insensitive = true"):
        batches(after, evolve_schema_enabled=evolves, on_new_checkpoint="continue").write([])


def test_a_column_in_another_case_is_the_tables_if_case_is_ignored(batches: Make) -> None:
    batches(PAIR).write([{"id": 1, "s": "a"}])
    written = batches(StructType().add("ID", "long").add("S", "string"), schema_case_insensitive="true", sink="t")
    written.write([{"ID": 2, "S": "b"}])
    assert written.rows == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"default_partition_by": "nix"}, "default-partition-by nix: the DataFrame has no column nix"),
        ({"default_partition_by": "id, day(nix)"}, r"default-partition-by day\(nix\): the DataFrame has no column nix"),
        ({"path": "lake.outer.t"}, "its name leads through the table lake.outer"),
        ({"keys": "d"}, "id column d is double, which cannot identify a row"),
        ({"keys": "n"}, r"id column n is struct<.*>, which cannot identify a row"),
        ({"keys": "id", "sequence_by": "nix"}, "no column nix, .* correct that key, or add the column; the table was"),
        ({"keys": "id", "auto_create_props.format_version": "1"}, "set auto-create-props.format-version = 2"),
    ],
)
def test_a_table_that_cannot_be_created_is_refused_in_words_of_options(
    batches: Make, options: dict[str, str], said: str
) -> None:
    schema = StructType().add("id", "long").add("d", "double").add("n", StructType().add("a", "long"))
    batches(PAIR, path="lake.outer").write([])
    with pytest.raises(CalvingError, match=said) as caught:
        batches(schema, **options).write([])
    assert "iceberg.table" not in str(caught.value)


@pytest.mark.parametrize("kind", ["timestamp_ntz", "date"])
def test_moments_of_all_years_are_written_if_the_option_says_so(batches: Make, kind: str) -> None:
    schema = StructType().add("id", "long").add("at", kind)
    far: list[dict[str, Any]] = [{"id": 1, "at": 4_000_000 if kind == "date" else 400_000_000_000_000_000}]
    with pytest.raises(BadRecordError, match=r"outside the years 1 to 9999; timestamp-range = any takes all years"):
        batches(schema).write(far)
    written = batches(schema, timestamp_range="any")
    written.write(far, [{"id": 2, "at": datetime(2026, 1, 1) if kind != "date" else datetime(2026, 1, 1).date()}])
    assert written.lake.table("lake.t").scan(selected_fields=("id",)).to_arrow()["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("sentence", "wanted"),
    [
        ("set iceberg.table.lake.t.id-columns or iceberg.tables.default-id-columns", "set id-columns"),
        ("set iceberg.tables.timestamp-range = any", "set timestamp-range = any"),
        ("correct it (if the sink creates the table, declare it in iceberg.table.t.columns); so", "correct it; so"),
        ("column iceberg of iceberg.db.t", "column iceberg of iceberg.db.t"),
    ],
)
def test_a_sentence_about_settings_of_a_sink_becomes_one_about_options(sentence: str, wanted: str) -> None:
    assert as_options(sentence) == wanted
