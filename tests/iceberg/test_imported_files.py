"""Imported data files lack the columns of their folders, as Hive's do: the value of the partition is that of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import IO, Any, cast
from uuid import UUID, uuid4

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.mutations.columns import Column, ColumnReader
from calving.mutations.lookup import KeyLookup
from harness.duckdb_extensions import duckdb_rows
from tests.iceberg.histories import MutationTable, create, pyiceberg_rows, superseded
from tests.iceberg.test_lookups import Here, by_tasks

KINDS: dict[str, tuple[PrimitiveType, Any, Any, Any]] = {
    "string": (StringType(), "eu", "eu", "us"),
    "int": (IntegerType(), 7, 7, 8),
    "long": (LongType(), 2**40, 2**40, 8),
    "boolean": (BooleanType(), True, True, False),
    "decimal": (DecimalType(9, 2), Decimal("1.50"), 1.5, 2.5),
    "date": (DateType(), (date(2024, 2, 29) - date(1970, 1, 1)).days, "2024-02-29", "2024-03-01"),
    "time": (TimeType(), 3_600_000_000, "01:00:00", "02:00:00"),
    "timestamp": (TimestampType(), 1_709_208_000_000_000, "2024-02-29T12:00:00", "2024-02-29T13:00:00"),
    "timestamptz": (TimestamptzType(), 1_709_208_000_000_000, "2024-02-29T12:00:00Z", "2024-02-29T13:00:00Z"),
    "uuid": (UUIDType(), UUID(int=7), str(UUID(int=7)), str(UUID(int=8))),
    "binary": (BinaryType(), b"\0\1", "AAE=", "AAI="),
}
"""For each type: a partition value, a record's spelling of it, and another value."""
MAPPING = '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["name"]}, {"field-id": 3, "names": ["tenant"]}]'


def by_tenant(catalog: Catalog, kind: PrimitiveType, *, default: Any = None, version: int = 2) -> MutationTable:
    """A table that is partitioned by one of its two id columns."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "name", StringType(), required=False),
        NestedField(3, "tenant", kind, required=False, initial_default=default, write_default=default),
    )
    table = create(catalog, ["tenant"], version, schema=schema, ids=("id", "tenant"))
    with table.table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": MAPPING})
    return table


def bring(table: Table, partition: Any, ids: Sequence[int], file_format: str = "parquet") -> None:
    """Add a file that somebody else has written: without field ids, and without the column of the partition."""
    path = f"{table.location()}/data/tenant={uuid4()}/part-0.{file_format}"
    rows = pa.table({"id": pa.array(ids, pa.int64()), "name": ["old"] * len(ids)})
    with table.io.new_output(path).create() as out:
        match file_format:
            case "orc":
                orc.write_table(rows, out)
            case "avro":
                fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
                fastavro.writer(
                    cast(IO[bytes], out), {"type": "record", "name": "r", "fields": fields}, rows.to_pylist()
                )
            case _:
                pq.write_table(rows, out)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat[file_format.upper()],
        partition=Record(partition),
        record_count=len(ids),
        file_size_in_bytes=len(table.io.new_input(path)),
    )
    file.spec_id = table.spec().spec_id
    with table.transaction() as change, change.update_snapshot().fast_append() as snapshot:
        snapshot.append_data_file(file)


@pytest.mark.parametrize(
    ("kind", "file_format"), [*((kind, "parquet") for kind in KINDS), ("string", "orc"), ("decimal", "avro")]
)
def test_a_row_of_an_imported_file_has_the_value_of_its_partition_as_its_key(
    catalog: Catalog, kind: str, file_format: str
) -> None:
    iceberg_type, value, same, other = KINDS[kind]
    table = by_tenant(catalog, iceberg_type)
    bring(table.table, value, [1, 2], file_format)
    assert superseded(table, table.step([{"id": 1, "name": "b", "tenant": other}])) == 0
    assert superseded(table, table.step([{"id": 1, "name": "c", "tenant": same}])) == 1
    assert superseded(table, table.step([], [{"id": 2, "tenant": same}])) == 1


@pytest.mark.parametrize("as_tasks", [False, True])
def test_an_upsert_of_an_imported_row_leaves_one_row_for_every_reader(catalog: Catalog, *, as_tasks: bool) -> None:
    table = by_tenant(catalog, StringType())
    bring(table.table, "eu", [1, 2])
    bring(table.table, "us", [1, 2])
    if as_tasks:
        by_tasks(table, Here())
    for name in ("A", "B"):  # the second time from the key cache
        table.commit(table.step([{"id": 1, "name": name, "tenant": "eu"}]))
    rows = [(1, "B", "eu"), (1, "old", "us"), (2, "old", "eu"), (2, "old", "us")]
    assert pyiceberg_rows(table.table) == rows
    assert duckdb_rows(table.table) == rows


def test_the_value_of_the_partition_counts_before_the_default(catalog: Catalog) -> None:
    table = by_tenant(catalog, StringType(), default="us")
    bring(table.table, "eu", [1])
    assert superseded(table, table.step([{"id": 1, "name": "b", "tenant": "us"}])) == 0
    assert superseded(table, table.step([{"id": 1, "name": "c", "tenant": "eu"}])) == 1


def test_rows_of_many_imported_files_are_found_where_the_partition_is_the_key(catalog: Catalog) -> None:
    table = by_tenant(catalog, LongType())
    table.ids = ("tenant",)
    for tenant in range(6):
        bring(table.table, tenant, [1, 2])
    for name in ("A", "B", "C"):
        changed = [{"id": 1, "name": name, "tenant": tenant} for tenant in range(5)]
        assert superseded(table, table.step(changed)) == (10 if name == "A" else 5)
    assert pyiceberg_rows(table.table) == [*((1, "C", tenant) for tenant in range(5)), (1, "old", 5), (2, "old", 5)]


def test_a_partition_of_an_order_field_decides_which_row_wins(catalog: Catalog) -> None:
    table = by_tenant(catalog, LongType())
    bring(table.table, 100, [1, 2])
    ordered = MutationTable(catalog, table.name, order="tenant")
    ordered.commit(ordered.step([{"id": 1, "name": "b", "tenant": 101}, {"id": 2, "name": "b", "tenant": 99}]))
    assert pyiceberg_rows(ordered.table) == [(1, "b", 101), (2, "old", 100)]


def test_equality_deletes_that_become_positions_compare_the_value_of_the_partition(catalog: Catalog) -> None:
    table = by_tenant(catalog, StringType())
    bring(table.table, "eu", [1])
    by_key = MutationTable(catalog, table.name, ("id", "tenant"), equality=True)
    by_key.commit(by_key.step([{"id": 1, "name": "A", "tenant": "eu"}]))
    by_key.maintain()
    assert pyiceberg_rows(by_key.table) == [(1, "A", "eu")]


def test_a_task_that_searches_files_knows_the_values_of_their_partitions() -> None:
    columns = (*(Column(place, kind) for place, (kind, *_) in enumerate(KINDS.values())), Column(99, StringType()))
    values = {place: value for place, (_, value, *_) in enumerate(KINDS.values())} | {99: None}
    lookup = KeyLookup({}, "", columns, 2, (), (("a", "PARQUET", values), ("b", "ORC", {})))
    (_, _, same), (_, _, none) = KeyLookup.from_json(lookup.to_json()).files
    as_read = [column.missing(1) for column in ColumnReader(PyArrowFileIO(), columns).within(same).columns]
    assert as_read == [column.missing(1) for column in ColumnReader(PyArrowFileIO(), columns).within(values).columns]
    assert none == {}
