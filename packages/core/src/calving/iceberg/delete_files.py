"""Reads a table's delete files, and writes new ones: position deletes in version 2, deletion vectors in 3."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType
from pyroaring import BitMap64

from calving.iceberg.entries import (
    CONTENT_OFFSET,
    CONTENT_SIZE,
    FILE_PATH_ID,
    POS_ID,
    at,
    is_vector,
)
from calving.mutations.candidates import Candidate
from calving.mutations.columns import Column, ColumnReader
from calving.mutations.vectors import from_blob, puffin
from calving.version import __version__

_TOGETHER = 8
"""How many files are written at the same time."""
_COLUMNS = (Column(FILE_PATH_ID, StringType()), Column(POS_ID, LongType()))
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POS_ID)}),
    ]
)


@dataclass(frozen=True, slots=True)
class Deleted:
    """All rows of a data file that are deleted."""

    file: Candidate
    positions: BitMap64


def read_positions(io: FileIO, file: DataFile, of: str) -> BitMap64:
    """The positions of one data file that a delete file names.

    :raises TableTroubleError: a deletion vector is damaged.
    """
    if is_vector(file):
        with io.new_input(file.file_path).open() as stream:
            stream.seek(at(file, CONTENT_OFFSET))
            return from_blob(bytes(stream.read(at(file, CONTENT_SIZE))), file.file_path)
    positions = BitMap64()
    for batch in ColumnReader(io, _COLUMNS).batches(file.file_path, file.file_format.value):
        mine = pc.equal(batch.column(0), of)
        positions.update(batch.column(1).filter(mine).to_pylist())
    return positions


def write_deleted(table: Table, deleted: Iterable[Deleted], written: list[str]) -> list[DataFile]:
    """Write delete files; returns their manifest entries, and adds their paths to ``written``."""
    by_path = {each.file.path: each for each in deleted}
    if not by_path:
        return []
    if table.metadata.format_version >= 3:
        return _vectors(table, by_path, written)
    with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="calving-deletes") as pool:
        return list(pool.map(lambda each: _position_file(table, each, written), by_path.values()))


def _vectors(table: Table, deleted: Mapping[str, Deleted], written: list[str]) -> list[DataFile]:
    """P2: one Puffin file with a vector for each data file."""
    location = table.location_provider().new_data_location(f"{uuid4()}-deletes.puffin")
    content, places = puffin({path: each.positions for path, each in deleted.items()}, f"calving {__version__}")
    written.append(location)
    with table.io.new_output(location).create() as out:
        out.write(content)
    return [
        _entry(
            deleted[path].file,
            file_path=location,
            file_format=FileFormat.PUFFIN,
            record_count=place.cardinality,
            file_size_in_bytes=len(content),
            referenced_data_file=path,
            content_offset=place.offset,
            content_size_in_bytes=place.size,
        )
        for path, place in places.items()
    ]


def _position_file(table: Table, deleted: Deleted, written: list[str]) -> DataFile:
    """P3: a position-delete file for one data file. Its bounds hold the whole path of the data file."""
    path = deleted.file.path
    positions = pa.array(deleted.positions.to_array(), pa.int64())
    rows = pa.table([pa.repeat(pa.scalar(path), len(positions)), positions], schema=_SCHEMA)
    location = table.location_provider().new_data_location(f"{uuid4()}-deletes.parquet")
    written.append(location)
    with table.io.new_output(location).create() as out:
        pq.write_table(rows, out, compression="zstd")
        size = out.tell()
    count, ends = len(positions), (positions[0].as_py(), positions[-1].as_py())
    low, high = ({FILE_PATH_ID: path.encode(), POS_ID: end.to_bytes(8, "little")} for end in ends)
    return _entry(
        deleted.file,
        file_path=location,
        file_format=FileFormat.PARQUET,
        record_count=count,
        file_size_in_bytes=size,
        value_counts={FILE_PATH_ID: count, POS_ID: count},
        null_value_counts={FILE_PATH_ID: 0, POS_ID: 0},
        lower_bounds=low,
        upper_bounds=high,
        referenced_data_file=path,
    )


def _entry(about: Candidate, **said: object) -> DataFile:
    made = DataFile.from_args(
        3,
        content=DataFileContent.POSITION_DELETES,
        partition=Record(*about.partition),
        **said,
    )
    made.spec_id = about.spec_id
    return made
