"""Spark keeps reading a table that it shares with calving, with columns that calving cannot write."""

from __future__ import annotations

from uuid import uuid4

import pytest

from calving.iceberg.catalog import open_catalog
from harness.spark_reader import spark_on
from tests.iceberg.histories import MutationTable


@pytest.mark.services
def test_spark_reads_its_variants_beside_rows_that_have_changed(rest_uri: str) -> None:
    catalog = open_catalog("iceberg", {"type": "rest", "uri": rest_uri})
    catalog.create_namespace_if_not_exists("variants")
    name = f"variants.t{uuid4().hex}"
    spark_on(
        rest_uri,
        f"create table iceberg.{name} (id bigint not null, v variant, s struct<v: variant, n: bigint>) using iceberg"
        " tblproperties ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')",
        f"insert into iceberg.{name} values (1, parse_json('{{\"a\": 1}}'), named_struct('v', parse_json('2'), 'n', 3L)),"
        " (2, parse_json('7'), null)",
    )
    table = MutationTable(catalog, name)
    table.commit(table.step([{"id": 2, "s": {"n": 8}}, {"id": 3}]))
    (rows,) = spark_on(rest_uri, f"select id, to_json(v) v, to_json(s.v) sv, s.n from iceberg.{name} order by id")
    assert rows == [
        {"id": 1, "v": '{"a":1}', "sv": "2", "n": 3},
        {"id": 2, "v": None, "sv": None, "n": 8},
        {"id": 3, "v": None, "sv": None, "n": None},
    ]
