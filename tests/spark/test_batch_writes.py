"""``df.write.format("calving")``: whole or not at all, once by its id, with every value as Spark has it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameWriter

from tests.spark.lake import SparkLake
from tests.spark.sessions import is_connect

pytestmark = pytest.mark.services


def append(frame: DataFrame, lake: SparkLake, **options: str) -> DataFrameWriter:
    named = {name.replace("_", "-"): text for name, text in options.items()}
    return frame.write.format("calving").mode("append").options(**{**lake.options, "table": "lake.t", **named})


def refusal(writer: DataFrameWriter) -> str:
    with pytest.raises(PySparkException) as caught:
        writer.save()
    return str(caught.value)


EVERY_TYPE = """SELECT id AS value, id % 2 = 0 AS flag, CAST(id AS INT) AS i, CAST(id AS TINYINT) AS b,
    CAST(id AS SMALLINT) AS s, CAST(id / 3 AS FLOAT) AS f, id / 7 AS d, CAST(id / 3 AS DECIMAL(12, 4)) AS m,
    concat('text ', id) AS t, CAST(concat('bytes ', id) AS BINARY) AS y, date_add(DATE'1969-12-30', CAST(id AS INT)) AS day,
    TIMESTAMP'1969-12-31 23:59:59.123456 UTC' + make_dt_interval(id) AS at,
    TIMESTAMP_NTZ'1999-12-31 23:59:59.999999' AS local, array(id, NULL, 3) AS list, map('k', id, 'n', NULL) AS names,
    named_struct('a', id, 'b', named_struct('c', array(named_struct('d', 'x')))) AS nested, CAST(NULL AS STRING) AS nothing
    FROM RANGE(0, 20, 1, 3)"""


def plain(value: object) -> object:
    """Maps as pyiceberg has them, and moments in UTC."""
    match value:
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list():
            if value and all(isinstance(item, tuple) for item in value):
                return {key: plain(item) for key, item in value}
            return [plain(item) for item in value]
    return value


def test_every_value_is_in_the_table_as_spark_has_it(session: SparkSession, lake: SparkLake) -> None:
    append(session.sql(EVERY_TYPE), lake).save()
    rows = sorted(lake.table("lake.t").scan().to_arrow().to_pylist(), key=lambda row: row["value"])
    assert len(rows) == 20
    for number, row in enumerate(rows):
        moment = datetime(1969, 12, 31, 23, 59, 59, 123456) + timedelta(days=number)
        wanted = {
            "value": number,
            "flag": number % 2 == 0,
            "i": number,
            "b": number,
            "s": number,
            "f": pytest.approx(number / 3, rel=1e-6),
            "d": number / 7,
            "m": (Decimal(number) / 3).quantize(Decimal("0.0001")),
            "t": f"text {number}",
            "y": f"bytes {number}".encode(),
            "day": date(1969, 12, 30) + timedelta(days=number),
            "local": datetime(1999, 12, 31, 23, 59, 59, 999999),
            "list": [number, None, 3],
            "names": {"k": number, "n": None},
            "nested": {"a": number, "b": {"c": [{"d": "x"}]}},
            "nothing": None,
        }
        assert row.pop("at").replace(tzinfo=None) == moment
        assert plain(row) == wanted


def test_a_write_with_an_id_is_made_once(session: SparkSession, lake: SparkLake) -> None:
    frame = session.range(10).withColumnRenamed("id", "value")
    for _ in range(2):
        append(frame, lake, write_id="2026-11-26").save()
    assert lake.values("lake.t") == [*range(10)]
    assert lake.orphans("lake.t") == set()
    append(frame, lake, write_id="2026-11-27").save()
    assert lake.values("lake.t") == sorted([*range(10)] * 2)


def test_an_append_goes_into_the_partitions_of_a_table_that_it_has_created(
    session: SparkSession, lake: SparkLake
) -> None:
    append(session.range(100), lake, default_partition_by="bucket(id, 4), truncate(id, 50)").save()
    table = lake.table("lake.t")
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[4]", "truncate[50]"]
    assert len(list(table.scan("id = 77").plan_files())) < len(list(table.scan().plan_files()))
    assert lake.values("lake.t", "id") == [*range(100)]


def test_missing_columns_are_added_if_the_option_says_so(session: SparkSession, lake: SparkLake) -> None:
    append(session.sql("SELECT 1 AS id, named_struct('a', 1) AS s"), lake).save()
    wider = session.sql("SELECT 5000000000 AS id, named_struct('a', 2, 'b', 'x') AS s, 'y' AS more")
    said = refusal(append(wider, lake))
    assert "table lake.t has no column " in said and "more" in said and "s.b" in said
    append(wider, lake, evolve_schema_enabled="true").save()
    rows = sorted(lake.table("lake.t").scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert rows == [
        {"id": 1, "s": {"a": 1, "b": None}, "more": None},
        {"id": 5_000_000_000, "s": {"a": 2, "b": "x"}, "more": "y"},
    ]


def test_an_empty_dataframe_adds_nothing(session: SparkSession, lake: SparkLake) -> None:
    frames = [session.range(0), session.range(5).where("id > 5")]
    if not is_connect():  # only a Spark context makes a DataFrame without partitions
        frames.append(session.createDataFrame(session.sparkContext.emptyRDD(), "id long"))
    for frame in frames:
        append(frame, lake).save()
    assert lake.table("lake.t").current_snapshot() is None


def fails_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    yield from batches
    if context is not None and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails")


def test_rows_of_a_task_that_is_run_again_are_there_once(session: SparkSession, lake: SparkLake) -> None:
    append(session.range(100).mapInArrow(fails_at_first, "id long"), lake).save()
    assert lake.values("lake.t", "id") == [*range(100)]


def always_fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise RuntimeError("every attempt fails")


def test_a_write_that_fails_adds_nothing(session: SparkSession, lake: SparkLake) -> None:
    good = session.range(10)
    refusal(append(good.union(session.range(10).mapInArrow(always_fails, "id long")), lake))
    assert lake.values("lake.t", "id") == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT 'x' AS id", "table lake.t"),
        ("SELECT 1 AS id, INTERVAL '1' DAY AS i", "column i is interval day"),
        ("SELECT 1 AS id, array(parse_json('1')) AS v", "column v.element is variant"),
        ("SELECT 1 AS id, NULL AS n", "column n is void"),
        ("SELECT 1 AS id, 2 AS id", "two columns id"),
    ],
)
def test_a_dataframe_that_the_table_cannot_take_is_refused(
    session: SparkSession, lake: SparkLake, sql: str, said: str
) -> None:
    append(session.range(1), lake).save()
    assert said in refusal(append(session.sql(sql), lake, evolve_schema_enabled="true"))
    assert lake.values("lake.t", "id") == [0]


def test_what_would_replace_the_table_is_refused(session: SparkSession, lake: SparkLake) -> None:
    append(session.range(1), lake).save()
    assert 'mode("overwrite") would replace the table' in refusal(append(session.range(5), lake).mode("overwrite"))
    assert lake.values("lake.t", "id") == [0]


def test_a_table_that_is_missing_is_refused_unless_it_may_be_created(session: SparkSession, lake: SparkLake) -> None:
    assert "table lake.t does not exist" in refusal(append(session.range(5), lake, auto_create_enabled="false"))


def test_a_mistaken_option_is_refused_before_any_task_runs(session: SparkSession, lake: SparkLake) -> None:
    assert "option tabel: unknown; did you mean 'table'?" in refusal(append(session.range(5), lake, tabel="x"))
