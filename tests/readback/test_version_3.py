"""A table of version 3 in a catalog without a server: Spark and calving change it by turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from calving.iceberg.catalog import open_catalog
from harness.spark_reader import spark_on
from harness.structure import check
from tests.iceberg.histories import SCHEMA, MutationTable
from tests.iceberg.reader import rows_of

pytestmark = pytest.mark.services


def test_spark_and_calving_change_a_table_by_turns_and_each_row_keeps_its_id(tmp_path: Path) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    catalog.create_namespace("db")
    catalog.create_table("db.t", SCHEMA, properties={"format-version": "3", "write.delete.mode": "merge-on-read"})
    table = MutationTable(catalog, "db.t")
    table.commit(table.step([{"id": number} for number in range(4)]))
    rows, ids = "select id, name, g from iceberg.db.t order by id", "select id, _row_id from iceberg.db.t order by id"
    (first,) = spark_on(str(tmp_path), ids)
    spark_on(str(tmp_path), "delete from iceberg.db.t where id = 0", "insert into iceberg.db.t values (9, 'spark', 1)")
    table.commit(table.step([{"id": 1, "name": "new"}]))
    spark_rows, after = spark_on(str(tmp_path), rows, ids)
    check(table.table)
    kept = {row["id"]: row["_row_id"] for row in after}
    assert [tuple(row.values()) for row in spark_rows] == rows_of(table.table)
    assert [(id, name) for id, name, _ in rows_of(table.table)] == [(1, "new"), (2, None), (3, None), (9, "spark")]
    assert {row["id"]: row["_row_id"] for row in first if row["id"] in (2, 3)} == {id: kept[id] for id in (2, 3)}
    assert len(set(kept.values())) == 4
