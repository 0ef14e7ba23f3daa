"""The contract of file formats, as tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile as ManifestFile
from pyiceberg.manifest import DataFileContent
from pyiceberg.manifest import FileFormat as IcebergFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
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
)

from calving.model.files import DataFile
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.records.fields import arrow_schema
from calving.writing.formats.interface import FORMATS
from calving.writing.properties import FORMAT
from calving.writing.table import TableWriter

Read = Callable[[Path], Sequence[Mapping[str, Any]]]
_F = NestedField
_SIMPLE_FIELDS = (
    _F(1, "id", LongType(), required=True),
    _F(2, "text", StringType(), required=False),
    _F(3, "x", DoubleType(), required=False),
    _F(4, "flag", BooleanType(), required=False),
    _F(5, "raw", BinaryType(), required=False),
    _F(6, "tags", ListType(7, StringType(), element_required=False), required=False),
    _F(
        8,
        "o",
        StructType(
            _F(9, "y", LongType(), required=False),
            _F(10, "inner", StructType(_F(11, "z", LongType(), required=False)), required=False),
        ),
        required=False,
    ),
)
_SIMPLE = Schema(*_SIMPLE_FIELDS)
_TYPES_FIELDS = (
    _F(1, "id", LongType(), required=True),
    _F(2, "i", IntegerType(), required=False),
    _F(3, "b", BooleanType(), required=False),
    _F(4, "f", FloatType(), required=False),
    _F(5, "x", DoubleType(), required=False),
    _F(6, "n", DecimalType(9, 2), required=False),
    _F(7, "s", StringType(), required=False),
    _F(8, "raw", BinaryType(), required=False),
    _F(11, "d", DateType(), required=False),
    _F(13, "ts", TimestampType(), required=False),
    _F(14, "tz", TimestamptzType(), required=False),
    _F(15, "m", MapType(16, StringType(), 17, LongType(), value_required=False), required=False),
    _F(18, "l", ListType(19, DoubleType(), element_required=False), required=False),
)
_TYPES = assign_fresh_schema_ids(Schema(*_TYPES_FIELDS))
"""Columns of all types that pyiceberg reads in every format, with the ids that a new table gives them."""
_CELLS: dict[str, list[Any]] = {
    "id": [1, 2, 3],
    "i": [7, None, -(2**31)],
    "b": [True, False, None],
    "f": [1.5, None, -2.0],
    "x": [0.0, None, 1e300],
    "n": ["1.25", "-9999999.99", None],
    "s": ["a", "ü" * 20, None],
    "raw": [b"\x00\xff", None, b""],
    "d": [0, -1, None],
    "ts": [-1_000_000, 1_704_164_645_678_901, None],
    "tz": [-2_000_000, None, 1_704_164_645_678_901],
    "m": [[("k", -1), ("j", None)], [], None],
    "l": [[1.0, None], None, []],
}


class FormatContract:
    """The contract of file formats: a file holds the rows that were written, and its manifest entry describes the file.
    The fixture ``name`` is the format's name in ``write.format.default``. The fixture ``read`` returns the rows of a
    file as a reader of the plain format sees them.
    """

    @pytest.fixture
    def name(self) -> str:
        raise NotImplementedError("a format's tests define the fixture 'name'")

    @pytest.fixture
    def read(self) -> Read:
        raise NotImplementedError("a format's tests define the fixture 'read'")

    def test_it_writes_one_of_the_formats_that_iceberg_knows(self, name: str, tmp_path: Path) -> None:
        (file,) = _written(name, tmp_path, _SIMPLE, _simple(3))
        assert file.file_format.lower() in FORMATS.own

    def test_its_own_reader_finds_the_rows(self, name: str, read: Read, tmp_path: Path) -> None:
        (file,) = _written(name, tmp_path, _SIMPLE, _simple(50), _simple(30))
        assert _plain(read(_local(file))) == [*_simple(50).to_pylist(), *_simple(30).to_pylist()]

    def test_the_part_of_a_block_is_written_as_it_is(self, name: str, read: Read, tmp_path: Path) -> None:
        given = _simple(40)
        (file,) = _written(name, tmp_path, _SIMPLE, given.slice(20, 7), given.slice(3, 11))
        rows = given.to_pylist()
        assert _plain(read(_local(file))) == [*rows[20:27], *rows[3:14]]

    def test_pyiceberg_finds_the_rows(self, name: str, tmp_path: Path) -> None:
        arrow = arrow_schema(_TYPES)
        given = pa.RecordBatch.from_arrays([_column(_CELLS[f.name], f.type) for f in arrow], schema=arrow)
        (file,) = _written(name, tmp_path, _TYPES, given)
        if file.file_format == "AVRO":
            pytest.skip("pyiceberg reads no Avro data files")
        assert _scanned(file, _TYPES) == given.to_pylist()

    def test_the_entry_has_the_number_of_rows_and_the_size(self, name: str, tmp_path: Path) -> None:
        (file,) = _written(name, tmp_path, _SIMPLE, _simple(50), _simple(30))
        assert file.record_count == 80
        assert file.file_size_in_bytes == _local(file).stat().st_size

    def test_the_entry_has_statistics(self, name: str, tmp_path: Path) -> None:
        (file,) = _written(name, tmp_path, _SIMPLE, _simple(8))
        assert (file.value_counts or {})[1] == 8
        assert (file.null_value_counts or {})[2] == sum(row["text"] is None for row in _simple(8).to_pylist())
        assert (file.lower_bounds or {})[1] == (0).to_bytes(8, "little")

    def test_a_file_is_closed_at_its_target_size(self, name: str, tmp_path: Path) -> None:
        batch = _simple(40_000)
        files = _written(name, tmp_path, _SIMPLE, *[batch] * 6, **{"write.target-file-size-bytes": "200000"})
        assert len(files) > 2
        assert sum(file.record_count for file in files) == 240_000

    def test_what_is_discarded_leaves_nothing(self, name: str, tmp_path: Path) -> None:
        writer = TableWriter(_table(name, tmp_path, _SIMPLE, {"write.target-file-size-bytes": "200000"}), 0, Limits())
        for _ in range(4):
            writer.write(_simple(40_000))
        assert writer.done
        writer.discard()
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def _simple(count: int) -> pa.RecordBatch:
    """Rows whose columns have nulls at regular distances, a different distance for each column."""
    rows = [
        {
            "id": i,
            "text": None if i % 3 == 1 else f"text {i * 7919}",
            "x": None if i % 4 == 1 else i / 8,
            "flag": None if i % 5 == 1 else i % 2 == 0,
            "raw": None if i % 6 == 1 else bytes([i % 256, 0, 255]),
            "tags": None if i % 4 == 2 else [None if n == 1 else f"tag {n}" for n in range(i % 4)],
            "o": None if i % 4 == 3 else {"y": None if i % 3 else i, "inner": {"z": i} if i % 5 else None},
        }
        for i in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(_SIMPLE))


def _column(cells: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        return pa.array(cells, pa.string()).cast(kind)
    return pa.array(cells, kind)


def _table(name: str, folder: Path, schema: Schema, properties: Mapping[str, str]) -> TableSpec:
    unpartitioned = UNPARTITIONED_PARTITION_SPEC.model_dump_json()
    properties = {FORMAT: name, **properties}
    return TableSpec("db.t", schema.model_dump_json(), unpartitioned, f"file://{folder}", properties, {})


def _written(name: str, folder: Path, schema: Schema, *batches: pa.RecordBatch, **properties: str) -> list[DataFile]:
    writer = TableWriter(_table(name, folder, schema, properties), 0, Limits())
    for batch in batches:
        writer.write(batch)
    return writer.close()


def _local(file: DataFile) -> Path:
    return Path(file.file_path.removeprefix("file://"))


def _plain(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The columns of ``_SIMPLE`` in each row, in order."""
    return [{field.name: row[field.name] for field in _SIMPLE.fields} for row in rows]


def _scanned(file: DataFile, schema: Schema) -> list[dict[str, Any]]:
    """The rows that pyiceberg's scan finds in the file."""
    location = str(_local(file).parent)
    table = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location)
    entry = ManifestFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.file_path,
        file_format=IcebergFormat(file.file_format),
        partition=Record(),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
    )
    entry.spec_id = 0
    scan = ArrowScan(table, load_file_io({}, location), table.schema(), AlwaysTrue())
    rows: list[dict[str, Any]] = scan.to_table([FileScanTask(entry)]).to_pylist()
    return rows
