"""The bounds of a table's files, and of files that wait for their commit: read again where they may be wrong, and
corrected if the files hold values beyond them.

A version of calving before 0.2.0 took the bounds of text and binary columns in a row group of Parquet from Arrow's
statistics also where Arrow had left them out, because one of them was longer than 4,096 bytes. Only the values of such
a row group tell its bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import BinaryType, StringType

from calving.errors import TableTroubleError
from calving.iceberg.manifests import FileKey, key_of, read_entries, read_manifest_list
from calving.iceberg.snapshot import SinkSnapshot
from calving.iceberg.summary import ENGINE, ENGINE_VERSION
from calving.model import files
from calving.model.events import DataWritten, Envelope
from calving.protocol.commit import Admitted
from calving.protocol.ledger_key import COMMIT_ID
from calving.writing.formats.interface import Bounds
from calving.writing.formats.metrics import bytes_not_below, text_not_below
from calving.writing.formats.parquet import bounds, has_values

_WIDTH = 16
"""The length of a new bound, in characters or bytes, if the wrong one is not longer."""
_ROWS_AT_ONCE = 1024
_ARROW = "parquet-cpp-arrow"
_FIELD_ID = b"PARQUET:field_id"
_FIRST_RIGHT = (0, 2)

Stored = Mapping[int, bytes]


def are_right_by(version: str | None) -> bool:
    """Whether files that a version of calving has written have right bounds. None: a version before 0.2.0, or another
    writer.
    """
    parts = (version or "").split(".")
    try:
        return (int(parts[0]), int(parts[1])) >= _FIRST_RIGHT
    except (IndexError, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class RightBounds:
    """All bounds of a file, of which those of ``columns`` were wrong."""

    lower: Stored
    upper: Stored
    columns: frozenset[int]


def right_bounds(io: FileIO, path: str, lower: Stored, upper: Stored) -> RightBounds | None:
    """The right bounds of a Parquet file; None if none of these bounds excludes a value of the file. Reads the file's
    end, and values only of row groups without statistics.

    :raises Exception: whatever reading the file raises.
    """
    with io.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
        if not str(file.metadata.created_by).startswith(_ARROW):
            return None
        mended = {column.field_id: column for column in _columns(file, lower.keys() | upper.keys())}
        wrong = {i for i, column in mended.items() if not column.is_within(lower.get(i), upper.get(i))}
    if not wrong:
        return None
    below, above = dict(lower), dict(upper)
    for field_id in wrong:
        column = mended[field_id]
        below[field_id] = column.lower(lower.get(field_id))
        greatest = column.upper(upper.get(field_id))
        above.pop(field_id, None)
        above |= {} if greatest is None else {field_id: greatest}
    return RightBounds(below, above, frozenset(wrong))


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a file, and its least and greatest value."""

    field_id: int
    least: str | bytes
    greatest: str | bytes

    def is_within(self, lower: bytes | None, upper: bytes | None) -> bool:
        # UTF-8 has the order of the characters.
        return (lower is None or lower <= _encoded(self.least)) and (upper is None or upper >= _encoded(self.greatest))

    def lower(self, before: bytes | None) -> bytes:
        return _encoded(self.least[: _width(before)])

    def upper(self, before: bytes | None) -> bytes | None:
        if isinstance(self.greatest, bytes):
            return bytes_not_below(self.greatest, _width(before))
        text = text_not_below(self.greatest, _width(before))
        return None if text is None else text.encode()


_GEO = ("GEOMETRY", "GEOGRAPHY")
"""Logical types of Parquet."""


def _width(before: bytes | None) -> int:
    return max(_WIDTH, len(before or b""))


def _encoded(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _columns(file: pq.ParquetFile, ids: set[int]) -> Iterator[_Column]:
    """Of these columns, the text and binary columns that have values. Bounds of geometries are corners of a box."""
    schema = file.metadata.schema
    columns = [*map(schema.column, range(file.metadata.num_columns))]
    places = {column.path: i for i, column in enumerate(columns) if column.logical_type.type not in _GEO}
    for field_id, path in _paths(list(file.schema_arrow)):
        place = places.get(".".join(path))
        ends = [] if field_id not in ids or place is None else [*_ends(file, path, place)]
        if ends:
            yield _Column(field_id, min(low for low, _ in ends), max(high for _, high in ends))


def _ends(file: pq.ParquetFile, path: Sequence[str], place: int) -> Iterator[Bounds]:
    """The least and the greatest value of each part of a column, the one in this place, that has values."""
    chunks = [file.metadata.row_group(i).column(place) for i in range(file.metadata.num_row_groups)]
    unknown = [i for i, chunk in enumerate(chunks) if has_values(chunk) and bounds(chunk) is None]
    yield from (known for chunk in chunks if (known := bounds(chunk)) is not None)
    yield from _read(file, path, unknown) if unknown else ()


def _paths(fields: Sequence[pa.Field], above: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The ids of text and binary columns that are not in lists or maps, and the names that lead to them."""
    for field in fields:
        said = (field.metadata or {}).get(_FIELD_ID)
        path = (*above, field.name)
        if pa.types.is_struct(field.type):
            yield from _paths([field.type.field(i) for i in range(field.type.num_fields)], path)
        elif said is not None and (pa.types.is_string(field.type) or pa.types.is_binary(field.type)):
            yield int(said), path


def _read(file: pq.ParquetFile, path: Sequence[str], groups: Sequence[int]) -> Iterator[tuple[str, str]]:
    """The least and the greatest value of each part of these row groups that has values."""
    for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=[".".join(path)], use_threads=False):
        column = batch.column(batch.schema.get_field_index(path[0]))
        for name in path[1:]:
            column = pc.struct_field(column, name)
        ends = pc.min_max(column)
        if ends["min"].is_valid:
            yield ends["min"].as_py(), ends["max"].as_py()


log = logging.getLogger(__name__)

_TOGETHER = 8
"""How many files are read at the same time."""
_LOWER, _UPPER = 10, 11
"""The indices of a data file's bounds."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """Corrected entries of data and delete files, by file; the columns whose bounds were wrong; and the manifests that
    name these files.
    """

    entries: Mapping[FileKey, DataFile]
    columns: Mapping[FileKey, frozenset[int]]
    manifests: frozenset[str]
    added: frozenset[str] = frozenset()

    def put_into(self, snapshot: SinkSnapshot) -> None:
        """Make the corrections part of a snapshot."""
        snapshot.correct(self.entries, self.manifests)


class Mending:
    """The correction of one branch, kept until its commit: after a refused attempt only new files are read."""

    def __init__(self) -> None:
        self._known: dict[FileKey, RightBounds | None] = {}

    @property
    def looked_at(self) -> int:
        """How many files were read."""
        return len(self._known)

    def of(self, table: Table, branch: str) -> Corrections | None:
        """The corrections of this head of the branch; None if no bounds are wrong.

        :raises TableTroubleError: a file of the table cannot be read.
        """
        head = table.metadata.snapshot_by_name(branch)
        entries: dict[FileKey, DataFile] = {}
        manifests: set[str] = set()
        with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="calving-bounds") as pool:
            for manifest in read_manifest_list(table.io, head.manifest_list) if head is not None else ():
                doubtful = [e.data_file for e in read_entries(table.io, manifest) if _is_doubtful(table.metadata, e)]
                for file, right in zip(doubtful, pool.map(partial(self._right, table), doubtful), strict=True):
                    if right is not None:
                        entries[key_of(file)] = _corrected(file, right)
                        manifests.add(manifest.manifest_path)
        columns = {key: right.columns for key, right in self._known.items() if right is not None and key in entries}
        return Corrections(entries, columns, frozenset(manifests)) if entries else None

    def unused(self, used: Collection[str]) -> list[str]:
        """The written files that no commit uses: none, because only manifests are written."""
        return []

    def _right(self, table: Table, file: DataFile) -> RightBounds | None:
        key = key_of(file)
        if key not in self._known:
            try:
                self._known[key] = right_bounds(
                    table.io, file.file_path, file.lower_bounds or {}, file.upper_bounds or {}
                )
            except Exception as error:  # a storage may raise anything
                raise TableTroubleError(
                    f"table {'.'.join(table.name())}: the bounds of file {file.file_path} cannot be checked:"
                    f" {type(error).__name__}: {error}"
                ) from error
        return self._known[key]


def _is_doubtful(metadata: TableMetadata, entry: ManifestEntry) -> bool:
    """Whether the bounds of an entry may be wrong: a sink has committed the file, and not with a version that writes or
    checks bounds rightly. Of a snapshot that has expired, nobody knows who made it.
    """
    file = entry.data_file
    if file.file_format is not FileFormat.PARQUET or file.content is DataFileContent.POSITION_DELETES:
        return False
    snapshot = metadata.snapshot_by_id(entry.snapshot_id) if entry.snapshot_id is not None else None
    if snapshot is None or snapshot.summary is None:
        return True
    made_by = snapshot.summary.additional_properties
    if made_by.get(ENGINE) == "calving":
        return not are_right_by(made_by.get(ENGINE_VERSION))
    return COMMIT_ID in made_by  # a coordinator of the Java sink commits files of calving's workers, too


def _corrected(file: DataFile, right: RightBounds) -> DataFile:
    made = DataFile(*file._data)
    made.spec_id = file.spec_id
    made._data[_LOWER], made._data[_UPPER] = dict(right.lower), dict(right.upper)
    return made


def doubtful_files(entries: Iterable[Envelope]) -> frozenset[str]:
    """The paths of Parquet files in entries of the control log whose writer may have told wrong bounds. Entries without
    source offsets are not calving's.
    """
    return frozenset(
        file.file_path
        for entry in entries
        if isinstance(entry.event, DataWritten) and entry.spans and not are_right_by(entry.writer)
        for file in entry.event.files
        if file.file_format.upper() == FileFormat.PARQUET.value and file.content != files.FileContent.POSITION_DELETES
    )


def corrected(table: Table, admitted: Admitted, doubtful: Collection[str]) -> Admitted:
    """The admitted files with right bounds; those in ``doubtful`` are read. A file that cannot be read gets no bounds
    of text and binary columns, because no bound excludes no row.
    """
    every = {file.file_path: file for file in (*admitted.data_files, *admitted.delete_files)}
    wanted = [every[path] for path in sorted(every.keys() & doubtful)]
    if not wanted:
        return admitted
    with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="calving-bounds") as pool:
        every |= {file.file_path: file for file in pool.map(partial(_checked, table), wanted)}

    def taken(before: Sequence[files.DataFile]) -> tuple[files.DataFile, ...]:
        return tuple(every[file.file_path] for file in before)

    steps = tuple(
        replace(step, data_files=taken(step.data_files), delete_files=taken(step.delete_files))
        for step in admitted.steps
    )
    return replace(
        admitted, data_files=taken(admitted.data_files), delete_files=taken(admitted.delete_files), steps=steps
    )


def _checked(table: Table, file: files.DataFile) -> files.DataFile:
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    try:
        right = right_bounds(table.io, file.file_path, lower, upper)
    except Exception as error:  # a storage may raise anything
        log.warning(
            "table %s: file %s cannot be read, and is committed without bounds of text: %s",
            ".".join(table.name()),
            file.file_path,
            error,
        )
        schema = table.metadata.schema()
        others = [i for i in schema.field_ids if not isinstance(schema.find_type(i), StringType | BinaryType)]
        lower, upper = ({i: ends[i] for i in others if i in ends} for ends in (lower, upper))
        return replace(file, lower_bounds=lower, upper_bounds=upper)
    return file if right is None else replace(file, lower_bounds=right.lower, upper_bounds=right.upper)
