"""What Spark and DuckDB read of tables with nanoseconds, and with columns that have no type yet."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from calving.records.declared import read_columns
from harness.duckdb_extensions import duckdb_rows
from harness.spark_reader import spark_on
from tests.iceberg.test_nanoseconds import MOMENT, NANO
from tests.iceberg.test_schema_defaults import ID, record, sink_of

pytestmark = pytest.mark.services


def test_duckdb_reads_nanoseconds_and_spark_refuses_the_table(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, nanos=True)
    sink.take(record([ID, NANO], id=1, at=MOMENT))
    assert duckdb_rows(sink.table, '"at"::varchar') == [("2023-11-14 22:13:20.123456789",)]
    with pytest.raises(AssertionError, match="timestamp_ns"):
        spark_on(str(tmp_path), "select * from iceberg.db.t")


def test_spark_reads_a_column_without_a_type_before_and_after_it_gets_one(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, converters=None, columns=read_columns("later unknown"))
    sink.take((None, {"id": 1}))
    assert spark_on(str(tmp_path), "select * from iceberg.db.t") == [[{"id": 1, "later": None}]]
    with pytest.raises(duckdb.Error, match="unknown"):
        duckdb_rows(sink.table)
    sink.take((None, {"id": 2, "later": "x"}))
    (rows,) = spark_on(str(tmp_path), "select id, later from iceberg.db.t order by id")
    assert rows == [{"id": 1, "later": None}, {"id": 2, "later": "x"}]
    with pytest.raises(duckdb.Error, match="unknown"):  # it reads the table's former schemas, too
        duckdb_rows(sink.table)
