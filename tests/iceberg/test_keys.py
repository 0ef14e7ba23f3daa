"""Keys of every kind are found again, in files of every format, and as columns change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from tests.iceberg.histories import MutationTable, create, pyiceberg_rows

KINDS: dict[str, tuple[IcebergType, list[Any]]] = {
    "int": (IntegerType(), [-5, 7, 2**31 - 1]),
    "long": (LongType(), [-(2**63), 0, 2**62]),
    "string": (StringType(), ["", "ü" * 40, "ü" * 40 + "x"]),
    "decimal": (DecimalType(38, 2), [-1.5, 0, 123456789012345.25]),
    "small decimal": (DecimalType(9, 2), [-1.5, 0, 1234567.25]),
    "uuid": (UUIDType(), [f"00000000-0000-0000-0000-00000000000{i}" for i in range(3)]),
    "date": (DateType(), ["1969-12-31", "2024-02-29", "9999-12-31"]),
    "timestamp": (TimestampType(), ["1969-12-31T23:59:59", "2024-02-29T00:00:00", "2024-02-29T00:00:00.000001"]),
    "timestamptz": (TimestamptzType(), ["1969-12-31T23:00:00Z", "2024-02-29T00:00:00Z", "2024-02-29T00:00:01+01:00"]),
    "binary": (BinaryType(), ["", "AA==", "AAE="]),
    "fixed": (FixedType(2), ["AAA=", "AAE=", "//8="]),
}


def superseded(table: MutationTable, *steps: Any) -> int:
    counts = table.commit(*steps).counts
    assert counts is not None
    return counts.superseded


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("partitioned", ["no", "by key"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_of_any_type_is_found_in_any_format(
    catalog: Catalog, kind: str, partitioned: str, file_format: str
) -> None:
    iceberg_type, (a, b, c) = KINDS[kind]
    schema = Schema(NestedField(1, "k", iceberg_type, required=True), NestedField(2, "v", LongType(), required=False))
    terms = ["bucket(k, 3)"] if partitioned == "by key" else []
    table = create(catalog, terms, 2, schema=schema, ids=("k",), file_format=file_format)
    table.commit(table.step([{"k": key, "v": 1} for key in (a, b, c)]))
    assert superseded(table, table.step([{"k": b, "v": 2}], [{"k": c}])) == 2
    assert superseded(table, table.step([{"k": b, "v": 3}])) == 1


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_composite_key_is_compared_whole_and_within_structs(catalog: Catalog, file_format: str) -> None:
    schema = Schema(
        NestedField(1, "a", StringType(), required=True),
        NestedField(2, "o", StructType(NestedField(3, "b", LongType(), required=True)), required=True),
        NestedField(4, "c", BooleanType(), required=True),
        NestedField(5, "v", LongType(), required=False),
    )
    table = create(catalog, [], 2, schema=schema, ids=("a", "o.b", "c"), file_format=file_format)

    def row(a: str, b: int, c: bool, v: int) -> dict[str, Any]:
        return {"a": a, "o": {"b": b}, "c": c, "v": v}

    table.commit(table.step([row("x", 1, True, 1), row("x", 2, True, 1), row("y", 1, True, 1), row("x", 1, False, 1)]))
    assert superseded(table, table.step([row("x", 1, True, 2)], [row("y", 1, False, 0), row("y", 2, True, 0)])) == 1
    assert superseded(table, table.step([], [row("x", 1, False, 0), row("y", 1, True, 0)])) == 2


def test_keys_are_found_in_files_from_before_their_column_was_renamed_and_widened(catalog: Catalog) -> None:
    schema = Schema(
        NestedField(1, "id", IntegerType(), required=True),
        NestedField(2, "amount", DecimalType(9, 2), required=True),
        NestedField(3, "v", LongType(), required=False),
    )
    table = create(catalog, [], 2, schema=schema, ids=("id", "amount"))
    table.commit(table.step([{"id": 1, "amount": 1.5, "v": 1}, {"id": 2, "amount": 2.5, "v": 1}]))
    with table.table.update_schema() as change:
        change.update_column("id", LongType()).update_column("amount", DecimalType(20, 2))
        change.rename_column("id", "key")
    table.ids = ("key", "amount")
    assert superseded(table, table.step([{"key": 2, "amount": 2.5, "v": 2}])) == 1
    assert superseded(table, table.step([{"key": 2**40, "amount": 10.0**12, "v": 2}], [{"key": 1, "amount": 1.5}])) == 1
    assert len(pyiceberg_rows(table.table)) == 2


def test_a_row_from_before_an_id_column_was_added_has_no_key(catalog: Catalog) -> None:
    table = create(catalog, "flat", 2)
    table.commit(table.step([{"id": 1, "name": "a", "g": 1}]))
    with table.table.update_schema() as change:
        change.add_column("tenant", LongType())
    table.ids = ("id", "tenant")
    assert superseded(table, table.step([{"id": 1, "name": "b", "g": 1, "tenant": 4}])) == 0
    assert superseded(table, table.step([{"id": 1, "name": "c", "g": 1, "tenant": 4}])) == 1


def test_files_without_field_ids_are_read_by_the_name_mapping(catalog: Catalog, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = create(catalog, "flat", 2)
    path = tmp_path / "foreign.parquet"
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("g", pa.int64())])
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "a"], "g": [0, 0]}, schema), path)
    table.table.add_files([f"file://{path}"])
    assert superseded(table, table.step([{"id": 2, "name": "b", "g": 0}])) == 1
    assert pyiceberg_rows(table.table) == [(1, "a", 0), (2, "b", 0)]
