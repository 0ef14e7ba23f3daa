"""Default values of columns: Spark and DuckDB read what calving has written where records lack the fields."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.types import IntegerType

from calving.iceberg.catalog import open_catalog
from harness.duckdb_extensions import duckdb_rows
from harness.spark_reader import spark_on
from tests.iceberg.histories import SCHEMA, MutationTable
from tests.iceberg.reader import rows_of

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
