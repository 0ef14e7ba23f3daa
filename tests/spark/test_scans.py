"""The reader of ``spark.read.format("calving")`` without Spark: the rows that it reads, and of which files."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, IntegerType, LongType, NestedField, TimestampNanoType, TimeType, UUIDType
from pyspark.sql import datasource as spark
from pyspark.sql.types import IntegerType as SparkInteger
from pyspark.sql.types import StructType

from calving.errors import ConfigError, TableTroubleError
from calving_spark.options import read_of_scan
from calving_spark.readers import FilesOfTask, FilteredReader
from calving_spark.scans import Scan
from calving_spark.source import DefaultSource
from calving_spark.table_columns import chosen, frame_schema
from tests.iceberg.histories import LAYOUTS, create, play
from tests.spark.lake import SparkLake


@pytest.fixture
def lake(tmp_path: Path) -> SparkLake:
    return SparkLake.create(tmp_path / "warehouse")


def source(lake: SparkLake, name: str = "lake.t", **options: object) -> DefaultSource:
    named = {key.replace("_", "-"): str(value) for key, value in options.items()}
    return DefaultSource({**lake.to_read, "path": name, **named})


def rows(found: DefaultSource, schema: StructType | None = None) -> list[tuple[object, ...]]:
    """What tasks read, each in a process of its own."""
    reader = found.reader(schema or found.schema())
    groups = reader.partitions()
    sent = pickle.dumps((reader, groups))
    reader, groups = pickle.loads(sent)
    batches = [batch for group in groups for batch in reader.read(group)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def made(lake: SparkLake, *batches: pa.Table, name: str = "lake.t") -> None:
    for batch in batches:
        lake.catalog.create_table_if_not_exists(name, batch.schema).append(batch)


def numbers(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("equality", "file_format"), [(False, "parquet"), (False, "orc"), (False, "avro"), (True, "parquet")]
)
def test_rows_that_were_deleted_are_not_read(lake: SparkLake, layout: str, equality: bool, file_format: str) -> None:
    table = create(lake.catalog, layout, 2, file_format=file_format)
    table.equality = equality
    play(table, layout, 500, 8)
    assert sorted(rows(source(lake, table.name)), key=repr) == table.rows()


def test_types_that_spark_does_not_have_are_read_as_its_own(lake: SparkLake) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "u", UUIDType(), required=False),
        NestedField(3, "f", FixedType(3), required=False),
        NestedField(4, "t", TimeType(), required=False),
    )
    table, key = lake.catalog.create_table("lake.t", schema), UUID(int=7)
    columns: list[list[object]] = [[1, 2], [key.bytes, None], [b"abc", None], [time(1, 2, 3, 4), None]]
    arrow = table.schema().as_arrow()
    arrays = [pa.array(values, each.type) for values, each in zip(columns, arrow, strict=True)]
    table.append(pa.Table.from_arrays(arrays, schema=arrow))
    assert rows(source(lake)) == [(1, str(key), b"abc", time(1, 2, 3, 4)), (2, None, None, None)]


def test_a_column_whose_values_spark_would_round_is_refused_and_can_be_left_out() -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "at", TimestampNanoType(), required=False)
    )
    with pytest.raises(ConfigError, match=r"column at is timestamp_ns, .* the option columns"):
        frame_schema("lake.t", schema)
    assert frame_schema("lake.t", chosen("lake.t", schema, ["id"])).names == ["id"]


def test_a_snapshot_is_read_by_its_id_and_by_its_time_with_the_columns_of_then(lake: SparkLake) -> None:
    made(lake, numbers(1, 2))
    then = lake.table("lake.t").current_snapshot()
    assert then is not None
    with lake.table("lake.t").update_schema() as update:
        update.add_column("more", LongType()).rename_column("id", "key")
    lake.table("lake.t").append(pa.table({"key": pa.array([3]), "more": pa.array([4])}))
    assert rows(source(lake)) == [(3, 4), (1, None), (2, None)]
    assert rows(source(lake, snapshot_id=then.snapshot_id)) == [(1,), (2,)]
    assert rows(source(lake, as_of_timestamp=then.timestamp_ms)) == [(1,), (2,)]
    assert source(lake, snapshot_id=then.snapshot_id).schema().names == ["id"]


def test_a_tag_is_read_with_the_columns_of_now(lake: SparkLake) -> None:
    made(lake, numbers(1, 2))
    table = lake.table("lake.t")
    then = table.current_snapshot()
    assert then is not None
    table.manage_snapshots().create_tag(then.snapshot_id, "then").commit()
    with lake.table("lake.t").update_schema() as update:
        update.add_column("more", LongType())
    made(lake, pa.table({"id": pa.array([3]), "more": pa.array([4])}))
    assert rows(source(lake, branch="then")) == [(1, None), (2, None)]


@pytest.mark.parametrize("before", [(), (1, 2)])
def test_a_dataframe_stays_with_the_snapshot_of_its_columns(lake: SparkLake, before: Sequence[int]) -> None:
    lake.catalog.create_table("lake.t", numbers().schema)
    if before:
        made(lake, numbers(*before))
    found = source(lake)
    schema = found.schema()
    found = pickle.loads(pickle.dumps(found))
    made(lake, numbers(3))
    assert rows(found, schema) == [(each,) for each in before]


def test_only_the_columns_that_are_named_are_read_in_this_order(lake: SparkLake) -> None:
    made(lake, pa.table({"a": [1], "b": ["x"], "c": [2.5]}))
    assert rows(source(lake, columns="c, a")) == [(2.5, 1)]


def test_a_schema_that_says_that_a_column_has_no_nulls_is_refused_if_it_may_have_some(lake: SparkLake) -> None:
    made(lake, pa.table({"id": pa.array([1, None])}))
    with pytest.raises(ConfigError, match="column id may be null, and the schema of this read says NOT NULL"):
        rows(source(lake), StructType().add("id", "long", nullable=False))


def test_small_files_are_read_together_and_large_ones_apart(lake: SparkLake) -> None:
    made(lake, *(numbers(each) for each in range(6)))
    assert [len(each.files) for each in groups(source(lake))] == [6]
    with lake.table("lake.t").transaction() as change:
        change.set_properties({"read.split.target-size": "1"})
    assert [len(each.files) for each in groups(source(lake))] == [1] * 6


def planned(found: DefaultSource, *filters: spark.Filter) -> tuple[FilteredReader, list[FilesOfTask]]:
    options = read_of_scan(found.options)
    reader = FilteredReader(options, Scan(options), found.schema())
    assert [*reader.pushFilters([*filters])] == [*filters]
    return reader, [each for each in reader.partitions() if isinstance(each, FilesOfTask)]


def groups(found: DefaultSource, *filters: spark.Filter) -> list[FilesOfTask]:
    return planned(found, *filters)[1]


def read(found: DefaultSource, *filters: spark.Filter) -> list[pa.RecordBatch]:
    reader, groups = planned(found, *filters)
    return [batch for group in groups for batch in reader.read(group)]


def kinds(start: int) -> pa.Table:
    """Ten rows from this number on."""
    ids = [*range(start, start + 10)]
    moments = [datetime(2026, 1, 1 + start // 10, 1, tzinfo=UTC)] * 10
    return pa.table(
        {
            "id": ids,
            "s": [f"s{start}" for _ in ids],
            "m": pa.array([Decimal(each) for each in ids], pa.decimal128(6, 2)),
            "day": [each.date() for each in moments],
            "at": pa.array(moments, pa.timestamp("us", tz="UTC")),
            "local": pa.array([each.replace(tzinfo=None) for each in moments], pa.timestamp("us")),
            "flag": [start == 0] * 10,
            "f": [float(each) for each in ids],
            "none": pa.array([None if start else 1] * 10, pa.int64()),
        }
    )


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        (spark.EqualTo(("id",), 13), {10}),
        (spark.EqualNullSafe(("id",), 13), {10}),
        (spark.GreaterThan(("id",), 19), {20}),
        (spark.GreaterThanOrEqual(("id",), 19), {10, 20}),
        (spark.LessThan(("id",), 10), {0}),
        (spark.LessThanOrEqual(("id",), 10), {0, 10}),
        (spark.In(("id",), (3, 25)), {0, 20}),
        (spark.StringStartsWith(("s",), "s1"), {10}),
        (spark.EqualTo(("m",), Decimal("13")), {10}),
        (spark.EqualTo(("m",), Decimal("13.001")), {0, 10, 20}),
        (spark.EqualTo(("day",), date(2026, 1, 2)), {10}),
        (spark.LessThan(("at",), datetime(2026, 1, 2, tzinfo=UTC)), {0}),
        (spark.LessThan(("local",), datetime(2026, 1, 2)), {0}),
        (spark.EqualTo(("flag",), True), {0}),
        (spark.IsNull(("none",)), {10, 20}),
        (spark.IsNotNull(("none",)), {0}),
        (spark.GreaterThan(("f",), 15.0), {0, 10, 20}),
        (spark.Not(spark.EqualTo(("id",), 13)), {0, 10, 20}),
        (spark.In(("id",), (3, None)), {0, 10, 20}),
        (spark.EqualTo(("none", "x"), 1), {0, 10, 20}),
    ],
)
def test_a_filter_leaves_out_the_files_in_which_it_is_true_for_no_row(
    lake: SparkLake, given: spark.Filter, starts: set[int]
) -> None:
    made(lake, kinds(0), kinds(10), kinds(20))
    assert {batch.column(0)[0].as_py() for batch in read(source(lake), given)} == starts


@pytest.mark.parametrize(
    ("given", "files"),
    [
        (spark.EqualTo(("m",), Decimal(f"1{'0' * 35}")), 1),
        (spark.LessThan(("m",), Decimal(f"1{'0' * 35}.00")), 1),
        (spark.GreaterThan(("m",), Decimal(f"-{'9' * 36}.99")), 2),
        (spark.LessThan(("m",), Decimal("1E+40")), 2),
        (spark.GreaterThan(("m",), Decimal("Infinity")), 2),
        (spark.LessThan(("m",), Decimal("NaN")), 2),
    ],
)
def test_a_filter_with_a_number_of_any_length_is_taken(lake: SparkLake, given: spark.Filter, files: int) -> None:
    for number in (Decimal(1), Decimal(f"1{'0' * 35}")):
        made(lake, pa.table({"m": pa.array([number], pa.decimal128(38, 2))}))
    assert len(read(source(lake), given)) == files


def test_a_filter_on_a_column_that_was_widened_or_renamed_loses_no_row(lake: SparkLake) -> None:
    lake.catalog.create_table("lake.t", Schema(NestedField(1, "a", IntegerType(), required=False)))
    lake.table("lake.t").append(pa.table({"a": pa.array([1, 2], pa.int32())}))
    then = lake.table("lake.t").current_snapshot()
    assert then is not None
    with lake.table("lake.t").update_schema() as update:
        update.update_column("a", LongType()).rename_column("a", "b")
    now = [each.files for each in groups(source(lake), spark.EqualTo(("b",), 2))]
    before = [each.files for each in groups(source(lake, snapshot_id=then.snapshot_id), spark.EqualTo(("a",), 2))]
    assert len(now) == len(before) == 1


def test_a_filter_finds_the_rows_of_equality_deletes_too(lake: SparkLake) -> None:
    table = create(lake.catalog, "flat", 2)
    table.equality = True
    table.commit(table.step([{"id": each, "name": "a", "g": 0} for each in range(5)]))
    table.commit(table.step([{"id": 100, "name": "b", "g": 0}], [{"id": 3}]))
    left = read(source(lake, table.name), spark.LessThan(("id",), 50))
    assert [batch.column(0).to_pylist() for batch in left] == [[0, 1, 2, 4]]


def test_a_file_that_is_gone_is_named(lake: SparkLake) -> None:
    made(lake, numbers(1))
    (task,) = lake.table("lake.t").scan().plan_files()
    Path(task.file.file_path.removeprefix("file://")).unlink()
    with pytest.raises(TableTroubleError, match=f"file {task.file.file_path} cannot be read"):
        rows(source(lake))


def test_no_secret_travels_to_the_tasks_but_those_of_the_storage(
    lake: SparkLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_SECRET", "hunter2")
    made(lake, numbers(1))
    found = source(lake, **{"catalog.token": "${env:LAKE_SECRET}"})
    schema = found.schema()
    assert b"hunter2" not in pickle.dumps((found, found.reader(schema)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"columns": "id, nix"}, "table lake.t has no column nix; it has id"),
        ({"snapshot_id": 7}, "table lake.t has no snapshot 7"),
        ({"as_of_timestamp": 7}, "table lake.t has no snapshot as old as 7 ms"),
        ({"branch": "nix"}, "table lake.t has no branch or tag nix"),
        ({"snapshot_id": 7, "branch": "nix"}, "options snapshot-id and branch name two states"),
        ({"write_id": "x"}, "option write-id is for writes"),
        ({"snapshot": 7}, "option snapshot: unknown"),
        ({"catalog.token": "hunter2"}, "option catalog.token shows a secret"),
    ],
)
def test_what_the_table_does_not_have_is_refused(lake: SparkLake, options: dict[str, Any], said: str) -> None:
    made(lake, numbers(1))
    with pytest.raises(ConfigError, match=said):
        source(lake, **options).schema()


def test_a_table_that_does_not_exist_is_named(lake: SparkLake) -> None:
    with pytest.raises(ConfigError, match=r"table lake\.nix does not exist"):
        source(lake, "lake.nix").schema()


def test_a_column_of_another_type_is_refused(lake: SparkLake) -> None:
    made(lake, numbers(1))
    with pytest.raises(ConfigError, match="column id is bigint, not int"):
        source(lake).reader(StructType().add("id", SparkInteger()))


def test_a_file_may_hold_the_keys_of_reads_and_of_writes(lake: SparkLake, tmp_path: Path) -> None:
    made(lake, numbers(1))
    keys = {**lake.options, "columns": "id", "sink": "numbers"}
    file = tmp_path / "lake.properties"
    file.write_text("".join(f"{key} = {text}\n" for key, text in keys.items()))
    assert rows(DefaultSource({"config": str(file), "table": "lake.t"})) == [(1,)]


def test_a_stream_out_of_a_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="calving reads no stream out of a table"):
        DefaultSource({}).streamReader(StructType())
