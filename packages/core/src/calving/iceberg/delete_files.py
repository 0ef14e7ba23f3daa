"""The deleted rows of one head of a table, and its delete files: which change, how they are read, and how new ones are
written: position deletes in version 2, in version 3 deletion vectors, as blobs of one Puffin file.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
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

from calving.errors import TableTroubleError
from calving.iceberg.live_files import LiveFiles
from calving.iceberg.manifests import (
    CONTENT_OFFSET,
    CONTENT_SIZE,
    FILE_PATH_ID,
    LINEAGE_VERSION,
    POS_ID,
    REFERENCED,
    FileKey,
    at,
    is_vector,
    key_of,
)
from calving.mutations.candidates import Candidate
from calving.mutations.columns import Column, ColumnReader
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
_MAGIC = bytes.fromhex("d1d33964")
_PUFFIN = b"PFA1"
_FIELDS = [2147483645]
"""The id of the field that Java names in the footer: the position of a row (``_pos``)."""
_MOST_KNOWN = 4_000


class KnownPositions:
    """Caches the positions in delete files, which never change."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[FileKey, str], BitMap64] = OrderedDict()

    def of(self, table: Table, delete: DataFile, path: str) -> BitMap64:
        """The positions of a data file that a delete file names."""
        known = key_of(delete), path
        positions = self._known.pop(known, None)
        self._keep(known, read_positions(table.io, delete, path) if positions is None else positions)
        return self._known[known]

    def know(self, deletes: Iterable[DataFile], deleted: Iterable[Deleted]) -> None:
        """Keep the positions that were written: those of each item of ``deleted`` are in the item of ``deletes`` with
        its index.
        """
        for file, each in zip(deletes, deleted, strict=True):
            self._keep((key_of(file), each.file.path), each.positions)

    def _keep(self, known: tuple[FileKey, str], positions: BitMap64) -> None:
        self._known[known] = positions
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)


class Deletions:
    """The deleted rows of one head."""

    def __init__(self, table: Table, live: LiveFiles, known: KnownPositions) -> None:
        self._table, self._live, self._known = table, live, known
        self._before: dict[str, BitMap64] = {}
        self.new = 0
        """Rows that ``added`` has found to be newly deleted."""

    def before(self, path: str) -> BitMap64:
        """The rows of a file that the head's position deletes delete."""
        if path not in self._before:
            self._before[path] = self._read(path)
        return self._before[path]

    def _read(self, path: str) -> BitMap64:
        positions = BitMap64()
        data = self._live.data.get(path)
        if data is not None:
            for delete in (*self._live.scoped_of(data), *self._live.wide_of(data)):
                positions |= self._known.of(self._table, delete.file, path)
            positions = within(positions, data.candidate.records)
        return positions

    def added(
        self, files: Mapping[str, Candidate], hits: Mapping[str, BitMap64]
    ) -> tuple[list[Deleted], list[Candidate]]:
        """The files with newly deleted rows, and the files without any live row, if the rows in ``hits`` are
        deleted.
        """
        after: dict[str, BitMap64] = {}
        for path, rows in hits.items():
            before = self.before(path)
            if new := rows - before:
                self.new += len(new)
                after[path] = before | new
        return divided(files, after)

    def removed(
        self, deleted: Sequence[Deleted], gone: Sequence[Candidate]
    ) -> tuple[frozenset[FileKey], frozenset[str]]:
        """P1 and P6: the files to remove, and the manifests that name them. These are replaced delete files, data files
        without live rows, and delete files for removed data files.
        """
        removed: set[FileKey] = set()
        manifests: set[str] = set()
        dangling = self._live.scoped.keys() - self._live.data.keys()
        for path in (*(each.file.path for each in deleted), *(file.path for file in gone), *dangling):
            for delete in self._live.scoped.get(path, ()):
                removed.add(key_of(delete.file))
                manifests.add(delete.manifest)
        for file in gone:
            if file.step is None:
                removed.add((file.path, None))
                manifests.add(self._live.data[file.path].manifest)
        return frozenset(removed), frozenset(manifests)


def within(positions: BitMap64, records: int) -> BitMap64:
    """The positions that a file with so many rows has. A delete file may name others."""
    return positions & BitMap64(range(records)) if positions and positions.max() >= records else positions


def divided(files: Mapping[str, Candidate], deleted: Mapping[str, BitMap64]) -> tuple[list[Deleted], list[Candidate]]:
    """The files with deleted rows and others, and those without any live row. ``deleted``: the deleted rows of files,
    by their paths.
    """
    partly, wholly = [], []
    for path, positions in deleted.items():
        if len(positions) == files[path].records:
            wholly.append(files[path])
        elif positions:
            partly.append(Deleted(files[path], positions))
    return partly, wholly


@dataclass(frozen=True, slots=True)
class Placed:
    """The place of a data file's blob within its Puffin file."""

    offset: int
    size: int
    cardinality: int


def to_blob(positions: BitMap64) -> bytes:
    """The blob ``deletion-vector-v1``: its length, magic bytes, 64-bit Roaring bitmap, and CRC-32 of the last two."""
    packed = positions.copy()
    packed.run_optimize()
    body = _MAGIC + packed.serialize()
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def from_blob(blob: bytes, where: str) -> BitMap64:
    """The positions in a blob. ``where`` names the blob's place in errors.

    :raises TableTroubleError: the blob is damaged.
    """
    body, checksum = blob[4:-4], blob[-4:]
    if (
        int.from_bytes(blob[:4], "big") != len(body)
        or body[:4] != _MAGIC
        or zlib.crc32(body) != int.from_bytes(checksum, "big")
    ):
        raise TableTroubleError(
            f"the deletion vector in {where} is damaged: restore this file, or roll the table back to a snapshot before"
            " it; the files of the sink stay buffered until then"
        )
    positions: BitMap64 = BitMap64.deserialize(body[4:])
    return positions


def puffin(vectors: Mapping[str, BitMap64], created_by: str) -> tuple[bytes, dict[str, Placed]]:
    """A Puffin file with one deletion vector for each data file, and the place of each vector in the file."""
    content = bytearray(_PUFFIN)
    places: dict[str, Placed] = {}
    blobs = []
    for path, positions in vectors.items():
        blob, offset = to_blob(positions), len(content)
        content += blob
        places[path] = Placed(offset, len(blob), len(positions))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": _FIELDS,
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": offset,
                "length": len(blob),
                "properties": {"referenced-data-file": path, "cardinality": str(len(positions))},
            }
        )
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": created_by}}, separators=(",", ":")).encode()
    content += _PUFFIN + footer + len(footer).to_bytes(4, "little") + bytes(4) + _PUFFIN
    return bytes(content), places


@dataclass(frozen=True, slots=True)
class Deleted:
    """All rows of a data file that are deleted."""

    file: Candidate
    positions: BitMap64


def read_positions(io: FileIO, file: DataFile, of: str) -> BitMap64:
    """The positions of one data file that a delete file names.

    :raises TableTroubleError: a deletion vector is damaged.
    """
    return positions_in(io, file).get(of, BitMap64())


def positions_in(io: FileIO, file: DataFile) -> Mapping[str, BitMap64]:
    """The positions in a delete file, by the paths of the data files that it names.

    :raises TableTroubleError: a deletion vector is damaged.
    """
    if is_vector(file):
        with io.new_input(file.file_path).open() as stream:
            stream.seek(at(file, CONTENT_OFFSET))
            blob = bytes(stream.read(at(file, CONTENT_SIZE)))
        return {str(at(file, REFERENCED)): from_blob(blob, file.file_path)}
    found: defaultdict[str, BitMap64] = defaultdict(BitMap64)
    for batch in ColumnReader(io, _COLUMNS).batches(file.file_path, file.file_format.value):
        # Such a file is sorted by path, so each path is one run.
        runs, start = pc.run_end_encode(batch.column(0)), 0
        for path, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            found[path].update(batch.column(1)[start:end].to_pylist())
            start = end
    return found


def write_deleted(table: Table, deleted: Iterable[Deleted], written: list[str]) -> list[DataFile]:
    """Write delete files; returns their manifest entries, and adds their paths to ``written``."""
    by_path = {each.file.path: each for each in deleted}
    if not by_path:
        return []
    if table.metadata.format_version >= LINEAGE_VERSION:
        return _vectors(table, by_path, written)
    with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="calving-deletes") as pool:
        return list(pool.map(lambda each: _position_file(table, each, written), by_path.values()))


class DeleteFiles:
    """Writes the delete files of a change that may be attempted several times. Files of an earlier attempt are used
    again: in version 2 those of data files with the same positions, in version 3, where they are one file, if all are
    the same.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[BitMap64, DataFile]] = {}
        self._version: int | None = None
        self.written: list[str] = []
        """The paths of all files that were written."""

    def of(self, table: Table, deleted: Sequence[Deleted]) -> tuple[DataFile, ...]:
        """The manifest entries of the files for these rows."""
        version, wanted = table.metadata.format_version, {each.file.path: each.positions for each in deleted}
        is_same = {path: positions for path, (positions, _) in self._made.items()} == wanted
        if version != self._version or (version >= LINEAGE_VERSION and not is_same):
            self._version, self._made = version, {}
        missing = [each for each in deleted if self._made.get(each.file.path, (None,))[0] != each.positions]
        for each, made in zip(missing, write_deleted(table, missing, self.written), strict=True):
            self._made[each.file.path] = each.positions, made
        return tuple(self._made[each.file.path][1] for each in deleted)


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
