"""Default values of columns: Spark and DuckDB read what calving has written where records lack the fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import IntegerType

from calving.iceberg.catalog import open_catalog
from harness.duckdb_extensions import duckdb_rows
from harness.spark_reader import spark_on
from tests.iceberg.histories import SCHEMA, MutationTable
from tests.iceberg.reader import rows_of
from tests.iceberg.test_schema_defaults import ID, record, sink_of

pytestmark = pytest.mark.services


def test_spark_and_duckdb_read_the_default_of_a_record_that_lacks_the_field(tmp_path: Path) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    catalog.create_namespace("db")
    catalog.create_table("db.t", SCHEMA, properties={"format-version": "3", "write.delete.mode": "merge-on-read"})
    table = MutationTable(catalog, "db.t")
    table.commit(table.step([{"id": 1, "name": "old"}]))
    with table.table.update_schema() as change:
        change.add_column("n", IntegerType(), default_value=5)
    table.commit(table.step([{"id": 3, "name": "lacks"}, {"id": 4, "name": "null", "n": None}]))
    (rows,) = spark_on(str(tmp_path), "select id, name, n from iceberg.db.t order by id")
    expected = [(1, "old", 5), (3, "lacks", 5), (4, "null", None)]
    assert [tuple(row.values()) for row in rows] == expected
    assert [(row[0], row[1], row[3]) for row in rows_of(table.table)] == expected
    assert sorted(duckdb_rows(table.table, "id, name, n")) == expected


def test_spark_and_duckdb_read_the_defaults_that_a_schema_declares(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(record([ID], id=1))
    sink.take(record([ID, *DECLARED], id=2, **dict.fromkeys(field["field"] for field in DECLARED)))
    sink.take(record([ID], id=3))
    selected = "id, cast(n as string), cast(d as string), cast(at as string), cast(day as string), t, b"
    (rows,) = spark_on(str(tmp_path), f"select {selected} from iceberg.db.t order by id")
    expected = ("5", "2.58", "1970-01-01 00:00:00.001", "1970-01-02", "x", "True")
    assert [tuple(str(v) for v in row.values())[1:] for row in rows] == [expected] * 3
    assert [tuple(map(str, row)) for row in duckdb_rows(sink.table, 'n, d, "at", day, t, b')] == [
        ("5", "2.58", "1970-01-01 00:00:00.001000", "1970-01-02", "x", "True")
    ] * 3


DATA = "org.apache.kafka.connect.data."
DECLARED: list[dict[str, Any]] = [
    {"field": "n", "type": "int64", "optional": True, "default": 5},
    {"field": "d", "type": "bytes", "name": f"{DATA}Decimal", "parameters": {"scale": "2"}, "default": "AQI="},
    {"field": "at", "type": "int64", "name": "io.debezium.time.Timestamp", "default": 1},
    {"field": "day", "type": "int32", "name": f"{DATA}Date", "default": 1},
    {"field": "t", "type": "string", "default": "x"},
    {"field": "b", "type": "boolean", "default": True},
]
