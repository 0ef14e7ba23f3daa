"""Rows of files from before a column was added have its initial default, also as keys and as order values."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from harness.duckdb_extensions import duckdb_rows
from tests.iceberg.histories import MutationTable, create, pyiceberg_rows, superseded

FORMATS = ["parquet", "orc", "avro"]
KINDS: dict[str, tuple[IcebergType, Any, Any, Any]] = {
    "string": (StringType(), "eu", "eu", "us"),
    "int": (IntegerType(), 7, 7, 8),
    "long": (LongType(), 2**40, 2**40, 8),
    "boolean": (BooleanType(), True, True, False),
    "decimal": (DecimalType(9, 2), Decimal("1.50"), 1.5, 2.5),
    "date": (DateType(), date(2024, 2, 29), "2024-02-29", "2024-03-01"),
    "timestamp": (TimestampType(), datetime(2024, 2, 29, 12), "2024-02-29T12:00:00", "2024-02-29T13:00:00"),
    "uuid": (UUIDType(), UUID(int=7), str(UUID(int=7)), str(UUID(int=8))),
    "binary": (BinaryType(), b"\0\1", "AAE=", "AAI="),
}
"""For each type: a default, a record's spelling of the default, and another value."""


@pytest.mark.parametrize(
    ("kind", "file_format"), [*((kind, "parquet") for kind in KINDS), ("string", "orc"), ("decimal", "avro")]
)
def test_a_row_from_before_an_id_column_was_added_has_the_default_as_its_key(
    catalog: Catalog, kind: str, file_format: str
) -> None:
    iceberg_type, default, same, other = KINDS[kind]
    table = create(catalog, "flat", 2, file_format=file_format)
    table.commit(table.step([{"id": 1, "name": "a", "g": 1}, {"id": 2, "name": "a", "g": 1}]))
    with table.table.update_schema() as change:
        change.add_column("tenant", iceberg_type, default_value=default)
    table.ids = ("id", "tenant")
    table.expected.clear()
    assert superseded(table, table.step([{"id": 1, "name": "b", "g": 1, "tenant": other}])) == 0
    assert superseded(table, table.step([{"id": 1, "name": "c", "g": 1, "tenant": same}])) == 1
    assert superseded(table, table.step([], [{"id": 2, "tenant": same}])) == 1


def test_an_upsert_of_a_default_key_leaves_one_row_for_every_reader(catalog: Catalog) -> None:
    table = create(catalog, "flat", 2)
    table.commit(table.step([{"id": 1, "name": "a", "g": 1}, {"id": 2, "name": "a", "g": 1}]))
    with table.table.update_schema() as change:
        change.add_column("tenant", StringType(), default_value="eu")
    table.ids = ("id", "tenant")
    table.commit(table.step([{"id": 1, "name": "A", "g": 1, "tenant": "eu"}]))
    rows = [(1, "A", 1, "eu"), (2, "a", 1, "eu")]
    assert pyiceberg_rows(table.table) == rows
    assert duckdb_rows(table.table) == rows


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_default_inside_a_struct_counts_where_the_struct_has_a_value(catalog: Catalog, file_format: str) -> None:
    schema = Schema(
        NestedField(1, "k", LongType(), required=True),
        NestedField(2, "o", StructType(NestedField(3, "a", LongType(), required=False)), required=False),
    )
    table = create(catalog, [], 2, schema=schema, ids=("k",), file_format=file_format)
    table.commit(table.step([{"k": 1, "o": {"a": 5}}, {"k": 2, "o": None}]))
    with table.table.update_schema() as change:
        change.add_column(("o", "tenant"), StringType(), default_value="eu")
    table.ids = ("k", "o.tenant")
    eu = {"a": 6, "tenant": "eu"}
    assert superseded(table, table.step([{"k": 1, "o": eu}, {"k": 2, "o": eu}])) == 1


def test_a_default_of_the_order_field_decides_which_row_wins(catalog: Catalog) -> None:
    table = create(catalog, "flat", 2)
    table.commit(table.step([{"id": 1, "name": "a", "g": 1}, {"id": 2, "name": "a", "g": 1}]))
    with table.table.update_schema() as change:
        change.add_column("seq", LongType(), default_value=100)
    ordered = MutationTable(catalog, table.name, order="seq")
    late, early = {"id": 1, "name": "b", "g": 1, "seq": 101}, {"id": 2, "name": "b", "g": 1, "seq": 99}
    ordered.commit(ordered.step([late, early]))
    assert pyiceberg_rows(ordered.table) == [(1, "b", 1, 101), (2, "a", 1, 100)]


def test_equality_deletes_compare_the_default(catalog: Catalog) -> None:
    table = create(catalog, "flat", 2)
    table.commit(table.step([{"id": 1, "name": "a", "g": 1}]))
    with table.table.update_schema() as change:
        change.add_column("tenant", StringType(), default_value="eu")
    by_key = MutationTable(catalog, table.name, ("id", "tenant"), equality=True)
    by_key.commit(by_key.step([{"id": 1, "name": "A", "g": 1, "tenant": "eu"}]))
    by_key.maintain()
    assert pyiceberg_rows(by_key.table) == [(1, "A", 1, "eu")]


def test_a_task_that_searches_files_knows_the_defaults() -> None:
    from calving.mutations.columns import Column
    from calving.mutations.lookup import KeyLookup

    columns = (Column(1, LongType()), Column(9, UUIDType(), uuid4(), 4, "o.u"), Column(3, DateType(), date(2024, 1, 2)))
    lookup = KeyLookup({}, "", columns, 2, (), ())
    assert KeyLookup.from_json(lookup.to_json()).columns == columns
