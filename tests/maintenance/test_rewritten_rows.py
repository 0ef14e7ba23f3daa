"""Rows are written again as they were: every type, in every format, also after the table's columns have changed."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.maintenance.strategy import Strategy
from calving.model.record_path import Limits
from calving.mutations.rows import RowReader
from calving.protocol.commit import Step
from calving.records.arrays import build
from calving.records.fields import arrow_schema
from calving.writing.table import TableWriter
from tests.iceberg.histories import MutationTable, create, pyiceberg_rows
from tests.maintenance.compacting import compact, data_files

FORMATS = ("parquet", "orc", "avro")
EVERY_TYPE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "b", BooleanType(), required=False),
    NestedField(3, "i", IntegerType(), required=False),
    NestedField(4, "f", FloatType(), required=False),
    NestedField(5, "d", DoubleType(), required=False),
    NestedField(6, "small", DecimalType(9, 2), required=False),
    NestedField(7, "large", DecimalType(38, 10), required=False),
    NestedField(8, "day", DateType(), required=False),
    NestedField(9, "clock", TimeType(), required=False),
    NestedField(10, "ts", TimestampType(), required=False),
    NestedField(11, "tz", TimestamptzType(), required=False),
    NestedField(12, "text", StringType(), required=False),
    NestedField(13, "uuid", UUIDType(), required=False),
    NestedField(14, "fixed", FixedType(3), required=False),
    NestedField(15, "bytes", BinaryType(), required=False),
    NestedField(16, "list", ListType(17, DecimalType(9, 2), element_required=False), required=False),
    NestedField(18, "map", MapType(19, StringType(), 20, LongType(), value_required=True), required=False),
    NestedField(
        21,
        "struct",
        StructType(
            NestedField(22, "must", LongType(), required=True),
            NestedField(23, "inner", StructType(NestedField(24, "x", StringType(), required=False)), required=False),
        ),
        required=False,
    ),
    NestedField(
        25,
        "structs",
        ListType(26, StructType(NestedField(27, "y", TimestamptzType(), required=False)), element_required=True),
        required=False,
    ),
    NestedField(28, "longs", MapType(29, LongType(), 30, StringType(), value_required=False), required=False),
    identifier_field_ids=[1],
)
FULL: dict[str, Any] = {
    "b": True,
    "i": -(2**31),
    "f": 1.5,
    "d": 5e-324,
    "small": Decimal("-1234567.89"),
    "large": Decimal("9999999999999999999999999999.0123456789"),
    "day": -1,
    "clock": 86_399_999_999,
    "ts": 1_700_000_000_123_456,
    "tz": -2_000_000,
    "text": "ä\0\U0001f9ca",
    "uuid": UUID(int=2**127 + 5).bytes,
    "fixed": b"\0\xff\1",
    "bytes": b"",
    "list": [Decimal("1.25"), None],
    "map": [("a", 1), ("", -1)],
    "struct": {"must": 7, "inner": {"x": None}},
    "structs": [{"y": None}, {"y": 3_000_000}],
    "longs": [(1, None), (2**62, "z")],
}
ROWS = [FULL, dict.fromkeys(FULL), {**FULL, "list": [], "map": [], "structs": [], "struct": {"must": 1, "inner": None}}]


def batch(schema: Schema, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows whose dates, times and timestamps are numbers."""

    def leaf(values: Any, kind: pa.DataType) -> pa.Array:
        storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        if pa.types.is_temporal(storage):
            return pa.array(values, pa.int32() if pa.types.is_date(storage) else pa.int64()).cast(storage)
        array = pa.array(values, storage)
        return kind.wrap_array(array) if isinstance(kind, pa.BaseExtensionType) else array

    kinds = arrow_schema(schema)
    return pa.RecordBatch.from_arrays(
        [build([row.get(field.name) for row in rows], field.type, leaf) for field in kinds], schema=kinds
    )


def add(table: MutationTable, rows: list[dict[str, Any]]) -> None:
    writer = TableWriter(table.spec(), 0, Limits())
    writer.write(batch(table.table.schema(), rows))
    table.commit(Step(tuple(writer.close()), (), frozenset()))


def raw(table: Table) -> list[Any]:
    """The rows as the libraries of the formats read them from the files, in the order of the ids."""
    rows: list[Any] = []
    for path in data_files(table):
        with table.io.new_input(path).open() as stream:
            if path.endswith("avro"):
                rows += fastavro.reader(cast(Any, stream))
            else:
                rows += (orc.read_table(stream) if path.endswith("orc") else pq.read_table(stream)).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("column", [field.name for field in EVERY_TYPE.fields if field.field_type.is_primitive])
@pytest.mark.parametrize("strategy", ["sort", "z-order"])
def test_rows_are_sorted_by_a_column_of_every_type_and_written_again_as_they_were(
    catalog: Catalog, strategy: str, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calving.maintenance.rewrite._AT_ONCE", 3_000)
    table = create(catalog, "flat", 2, schema=EVERY_TYPE)
    for number in range(3):
        add(table, [{"id": 10 * number + i, **row} for i, row in enumerate(ROWS)])
    if strategy == "sort":
        with table.table.update_sort_order() as order:
            order.asc(column, IdentityTransform(), NullOrder.NULLS_FIRST)
    before = raw(table.table)
    by = Strategy("z-order", (column, "id" if column != "id" else "i")) if strategy == "z-order" else None
    (done,) = compact(table, strategy=by)
    assert done.dropped is done.failed is None
    assert str(raw(table.table)) == str(before)
    (path,) = data_files(table.table)
    found = [value is not None for value in pq.read_table(path.removeprefix("file://"))[column].to_pylist()]
    assert strategy == "z-order" or found == sorted(found)


@pytest.mark.parametrize("strategy", ["as they were", "z-order"])
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("file_format", FORMATS)
def test_every_type_is_written_again_as_it_was(
    catalog: Catalog, file_format: str, version: int, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calving.maintenance.rewrite._AT_ONCE", 3_000)
    table = create(catalog, "flat", version, schema=EVERY_TYPE, file_format=file_format)
    if version == 1:
        table.resolver = None  # type: ignore[assignment]
    for number in range(3):
        add(table, [{"id": 10 * number + i, **row} for i, row in enumerate(ROWS)])
    before = raw(table.table)
    scanned = table.table.scan().to_arrow().sort_by("id") if file_format == "parquet" else None
    (done,) = compact(table, strategy=Strategy("z-order", ("text", "d")) if strategy == "z-order" else None)
    assert done.dropped is done.failed is None
    (path,) = data_files(table.table)
    assert path.endswith(file_format)
    after = [{k: v for k, v in row.items() if not k.startswith("_")} for row in raw(table.table)]
    assert str(after) == str(before)
    assert scanned is None or table.table.scan().to_arrow().sort_by("id") == scanned


@pytest.mark.parametrize("file_format", FORMATS)
def test_columns_that_were_added_renamed_widened_and_dropped_are_those_of_now(
    catalog: Catalog, file_format: str
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "n", IntegerType(), required=False),
        NestedField(3, "f", FloatType(), required=False),
        NestedField(4, "price", DecimalType(9, 2), required=False),
        NestedField(5, "gone", StringType(), required=False),
        NestedField(6, "s", StructType(NestedField(7, "a", IntegerType(), required=False)), required=False),
    )
    table = create(catalog, "flat", 2, schema=schema, file_format=file_format)
    add(table, [{"id": 1, "n": 5, "f": 0.5, "price": Decimal("1.50"), "gone": "x", "s": {"a": 3}}])
    with table.table.update_schema() as change:
        change.update_column("n", LongType()).update_column("f", DoubleType())
        change.update_column("price", DecimalType(12, 2)).delete_column("gone")
        change.rename_column("n", "number").add_column("more", StringType())
        change.update_column(("s", "a"), LongType()).add_column(("s", "b"), StringType())
    add(table, [{"id": 2, "number": 2**40, "f": 1e300, "price": Decimal("1234567890.12"), "more": "m", "s": None}])
    expected = [
        {"id": 1, "number": 5, "f": 0.5, "price": Decimal("1.50"), "s": {"a": 3, "b": None}, "more": None},
        {"id": 2, "number": 2**40, "f": 1e300, "price": Decimal("1234567890.12"), "s": None, "more": "m"},
    ]
    assert file_format != "parquet" or table.table.scan().to_arrow().sort_by("id").to_pylist() == expected
    (done,) = compact(table)
    assert done.failed is None and len(data_files(table.table)) == 1
    found = raw(table.table)
    assert [{**row, "price": row["price"]} for row in found] == expected


def test_a_file_with_another_type_is_refused_and_nothing_is_left(catalog: Catalog) -> None:
    table = create(catalog, "flat", 2)
    for number in range(3):
        table.commit(table.step([], inserts=[{"id": number, "name": "a", "g": 1}]))
    path = data_files(table.table)[0].removeprefix("file://")
    schema = pq.read_schema(path)
    at = schema.get_field_index("g")
    wrong = pq.read_table(path).set_column(at, schema.field(at).with_type(pa.string()), pa.array(["1"]))
    pq.write_table(wrong, path)
    before = sorted(Path(path).parent.iterdir())
    (done,) = compact(table)
    assert done.failed is not None
    assert "cannot be read whole: column g is string in the file, which is not exactly long" in done.failed
    assert sorted(Path(path).parent.iterdir()) == before


def test_a_file_without_ids_needs_a_name_mapping(catalog: Catalog) -> None:
    table = create(catalog, "flat", 2)
    for number in range(2):
        table.commit(table.step([], inserts=[{"id": number, "name": "a", "g": 1}]))
    for path in data_files(table.table):
        rows = pq.read_table(path.removeprefix("file://")).to_pylist()
        names = pa.schema([pa.field("ident", pa.int64()), pa.field("name", pa.string()), pa.field("g", pa.int64())])
        own = [{"ident": row["id"], "name": row["name"], "g": row["g"]} for row in rows]
        pq.write_table(pa.Table.from_pylist(own, names), path.removeprefix("file://"))
    (done,) = compact(table)
    assert done.failed is not None and "no field ids, and the table has no name mapping" in done.failed
    mapping = (
        '[{"field-id": 1, "names": ["ident"]}, {"field-id": 2, "names": ["name"]}, {"field-id": 3, "names": ["g"]}]'
    )
    with table.table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": mapping})
    (done,) = compact(table)
    assert done.failed is None and pyiceberg_rows(table.table) == table.rows()


def test_orc_timestamps_that_two_libraries_read_in_two_ways_are_refused(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "at", TimestampType()))
    table = create(catalog, "flat", 2, schema=schema, file_format="orc")
    add(table, [{"id": 1, "at": 5}])
    add(table, [{"id": 2, "at": 5}])
    path = data_files(table.table)[0].removeprefix("file://")
    rows = orc.read_table(path)
    orc.write_table(rows.set_column(1, rows.schema.field(1), pa.array([-1_500], pa.timestamp("ns"))), path)
    (done,) = compact(table)
    assert done.failed is not None and "column at has a timestamp before 1970 with a fraction" in done.failed


@pytest.mark.parametrize("file_format", FORMATS)
def test_few_long_rows_are_read_at_a_time(catalog: Catalog, file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = 64 * 1024
    monkeypatch.setattr("calving.mutations.rows._BATCH_BYTES", bound, raising=False)
    table = create(catalog, "flat", 2, file_format=file_format)
    add(table, [{"id": number, "name": f"{number:01000}"} for number in range(2_000)])
    (path,) = data_files(table.table)
    batches = [*RowReader(table.table.io, table.table.schema()).batches(path, file_format, {})]
    assert [row["id"] for each in batches for row in each.to_pylist()] == [*range(2_000)]
    assert max(each.nbytes for each in batches) < 5 * bound


def test_row_groups_of_values_that_repeat_are_read_one_by_one(catalog: Catalog) -> None:
    table = create(catalog, "flat", 2)
    with table.table.transaction() as change:
        change.set_properties({"write.parquet.row-group-limit": "1000"})
    add(table, [{"id": number, "name": f"{number % 2:01000}"} for number in range(3_000)])
    (path,) = data_files(table.table)
    batches = RowReader(table.table.io, table.table.schema()).batches(path, "parquet", {})
    assert [each.num_rows for each in batches] == [1_000] * 3
