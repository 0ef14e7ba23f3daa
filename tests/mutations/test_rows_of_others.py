"""Rows of files that other writers have made: in whatever form a value is in the file, it is the table's."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    ListType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from calving.errors import TableTroubleError
from calving.mutations.rows import RowReader

FAR = datetime(9999, 12, 31, 1, 2, 3, 456789)
EARLY = datetime(1, 1, 1)


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def column(kind: IcebergType, number: int = 1) -> NestedField:
    return NestedField(number, f"c{number}", kind, required=False)


def read(folder: Path, table: pa.Table, columns: list[NestedField], **how: Any) -> list[dict[str, Any]]:
    path = str(folder / "one.parquet")
    pq.write_table(table, path, **how)
    reader = RowReader(PyArrowFileIO(), Schema(*columns))
    return [row for batch in reader.batches(path, "PARQUET", {}) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("form", "wanted", "values"),
    [
        ("large_string", StringType(), ["b", None, ""]),
        ("string_view", StringType(), ["b", None, "longer than twelve bytes"]),
        ("dictionary", StringType(), ["b", None, "b"]),
        ("large_binary", BinaryType(), [b"b", None]),
        ("binary_view", BinaryType(), [b"b", None, b"longer than twelve bytes"]),
    ],
)
def test_a_value_is_read_in_whatever_form_its_writer_had_it(
    tmp_path: Path, form: str, wanted: IcebergType, values: list[Any]
) -> None:
    plain = pa.array(values)
    array: Any = plain.dictionary_encode() if form == "dictionary" else plain.cast(form)
    table = pa.table([array], schema=pa.schema([field("c1", array.type, 1)]))
    assert [row["c1"] for row in read(tmp_path, table, [column(wanted)])] == values


@pytest.mark.parametrize("form", [pa.list_, pa.large_list, lambda each: pa.list_(each, 2)])
def test_a_list_is_read_in_whatever_form_its_writer_had_it(tmp_path: Path, form: Any) -> None:
    values = [["a", None], None, ["b", "c"]]
    array = pa.array(values, form(field("element", pa.string(), 2)))
    table = pa.table([array], schema=pa.schema([field("c1", array.type, 1)]))
    wanted = column(ListType(2, StringType(), element_required=False))
    assert [row["c1"] for row in read(tmp_path, table, [wanted])] == values


@pytest.mark.parametrize("wanted", [TimestampType(), TimestamptzType()])
def test_times_of_96_bits_are_instants_of_any_year(tmp_path: Path, wanted: IcebergType) -> None:
    array = pa.array([FAR, None, EARLY], pa.timestamp("us"))
    table = pa.table([array], schema=pa.schema([field("c1", array.type, 1)]))
    found = [row["c1"] for row in read(tmp_path, table, [column(wanted)], use_deprecated_int96_timestamps=True)]
    zone = UTC if isinstance(wanted, TimestamptzType) else None
    assert found == [FAR.replace(tzinfo=zone), None, EARLY.replace(tzinfo=zone)]


def test_times_of_96_bits_are_instants_within_lists_and_structs(tmp_path: Path) -> None:
    inner = pa.struct([field("c2", pa.timestamp("us"), 2)])
    table = pa.table(
        [
            pa.array([{"c2": FAR}, None], inner),
            pa.array([[FAR, None], []], pa.list_(field("element", inner[0].type, 4))),
        ],
        schema=pa.schema([field("c1", inner, 1), field("c3", pa.list_(field("element", pa.timestamp("us"), 4)), 3)]),
    )
    columns = [
        column(StructType(column(TimestamptzType(), 2))),
        column(ListType(4, TimestamptzType(), element_required=False), 3),
    ]
    far = FAR.replace(tzinfo=UTC)
    found = read(tmp_path, table, columns, use_deprecated_int96_timestamps=True)
    assert found == [{"c1": {"c2": far}, "c3": [far, None]}, {"c1": None, "c3": []}]


def test_a_local_time_is_no_instant(tmp_path: Path) -> None:
    array = pa.array([FAR], pa.timestamp("us"))
    table = pa.table([array], schema=pa.schema([field("c1", array.type, 1)]))
    with pytest.raises(TableTroubleError, match=r"column c1 is timestamp\[us\] in the file, which is not exactly"):
        read(tmp_path, table, [column(TimestamptzType())])
