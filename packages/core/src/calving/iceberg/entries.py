"""Manifest entries with all their fields, and the live files of a snapshot.

pyiceberg reads entries as version 2 defines them: without the position of a deletion vector in its file, and without
row ids.
"""

from __future__ import annotations

import json
import struct
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import chain
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import DoubleReader, OptionReader, StructReader
from pyiceberg.avro.reader import Reader as AvroReader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.io import FileIO, InputFile
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    _inherit_from_manifest,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import StructProtocol
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from calving.mutations.candidates import Candidate

FIRST_ROW_ID, REFERENCED, CONTENT_OFFSET, CONTENT_SIZE = 16, 17, 18, 19
"""The indices of a data file's version 3 fields. Records of older versions end before these fields."""
LIST_FIRST_ROW_ID = 15
"""The index of ``first_row_id`` in a manifest file of version 3. Records of older versions end before this field."""
FILE_PATH_ID, POS_ID = 2147483546, 2147483545
"""The columns of a position-delete file."""
_READ_AS: dict[type, tuple[Schema, dict[int, Callable[..., StructProtocol]], dict[int, Callable[..., Enum]]]] = {
    ManifestFile: (
        MANIFEST_LIST_FILE_SCHEMAS[3],
        {-1: ManifestFile, 508: PartitionFieldSummary},
        {517: ManifestContent},
    ),
    ManifestEntry: (
        MANIFEST_ENTRY_SCHEMAS[3],
        {-1: ManifestEntry, 2: DataFile},
        {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ),
}
"""The schema by which records are read, and the classes and enums of its fields, by field id."""
_SCHEMA = "avro.schema"
_DOUBLE = struct.Struct("<d")
_MOST_KNOWN = 200_000

FileKey = tuple[str, int | None]
"""A file in a manifest: its path, and for a deletion vector the offset within the file."""


def key_of(file: DataFile) -> FileKey:
    return file.file_path, at(file, CONTENT_OFFSET)


def at(file: DataFile, place: int) -> Any:
    """A field of version 3; None in a record that ends before it."""
    return file._data[place] if len(file._data) > place else None


def is_vector(file: DataFile) -> bool:
    return file.file_format is FileFormat.PUFFIN


class _SharedReader(AvroFile[Any]):
    """An Avro file of records of one class. Files of one schema share a reader, because to make one costs more than to
    read a small manifest.
    """

    def __init__(self, file: InputFile, kind: type) -> None:
        super().__init__(file)
        self._kind = kind

    def __enter__(self) -> _SharedReader:
        with self.input_file.open() as stream:
            self.decoder = new_decoder(stream.read())
        self.header = self._read_header()
        self.reader = _reader(self.header.meta[_SCHEMA], self._kind)
        return self


@lru_cache(maxsize=256)
def _reader(schema_json: str, kind: type) -> AvroReader:
    return _exact(resolve_reader(AvroSchemaConversion().avro_to_iceberg(json.loads(schema_json)), *_READ_AS[kind]))


class _ExactDoubleReader(DoubleReader):
    """pyiceberg's compiled decoder takes denormal numbers, such as 1e-310, for 0.0."""

    def read(self, decoder: BinaryDecoder) -> float:
        return float(_DOUBLE.unpack(decoder.read(_DOUBLE.size))[0])


_EXACT_DOUBLE: AvroReader = _ExactDoubleReader()  # type: ignore[no-untyped-call]


def _exact(reader: AvroReader) -> AvroReader:
    """The reader, with another reader of doubles. Only partition values and optional fields of records are doubles."""
    match reader:
        case StructReader():
            fields = tuple((place, _exact(field)) for place, field in reader.field_readers)
            return StructReader(fields, reader.create_struct, reader.struct)
        case OptionReader():
            return OptionReader(_exact(reader.option))
        case DoubleReader():
            return _EXACT_DOUBLE
    return reader


def read_manifest_list(io: FileIO, path: str) -> list[ManifestFile]:
    """The manifests, with their first row ids, which pyiceberg omits."""
    with _SharedReader(io.new_input(path), ManifestFile) as reader:
        return list(reader)


def read_all_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """The entries of a manifest, also the deleted ones. They have the sequence numbers and the spec that they inherit
    from the manifest.
    """
    with _SharedReader(io.new_input(manifest.manifest_path), ManifestEntry) as reader:
        return [_inherit_from_manifest(entry, manifest) for entry in reader]


def read_parent(io: FileIO, path: str) -> int | None:
    """The id of the parent that a snapshot had when its manifest list was written; None if it had none. The metadata
    may no longer have it: pyiceberg removes it when the parent expires.
    """
    with _SharedReader(io.new_input(path), ManifestFile) as reader:
        said = reader.header.meta.get("parent-snapshot-id", "null")
    return int(said) if said != "null" else None


def read_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """The live entries of a manifest. They have the sequence numbers, spec and row ids that they inherit from the
    manifest.
    """
    entries = read_all_entries(io, manifest)
    live = [entry for entry in entries if entry.status is not ManifestEntryStatus.DELETED]
    next_row_id = manifest._data[LIST_FIRST_ROW_ID] if len(manifest._data) > LIST_FIRST_ROW_ID else None
    if manifest.content == ManifestContent.DATA and next_row_id is not None:
        for entry in live:
            file = entry.data_file
            if file._data[FIRST_ROW_ID] is None:
                file._data[FIRST_ROW_ID] = next_row_id
                next_row_id += file.record_count
    return live


def referenced(file: DataFile) -> str | None:
    """The data file that a delete file refers to; None if it may refer to several."""
    named = at(file, REFERENCED)
    if named is not None:
        return str(named)
    low, high = (file.lower_bounds or {}).get(FILE_PATH_ID), (file.upper_bounds or {}).get(FILE_PATH_ID)
    return low.decode() if low is not None and low == high else None


@dataclass(frozen=True, slots=True)
class LiveData:
    """A live data file, its data sequence number, and the path of the manifest that names it. Deletes with a greater
    sequence number apply to the file, and position deletes with the same one.
    """

    candidate: Candidate
    sequence: int
    manifest: str


@dataclass(frozen=True, slots=True)
class LiveDelete:
    """A live delete file, and the path of the manifest that names it."""

    entry: ManifestEntry
    manifest: str

    @property
    def file(self) -> DataFile:
        """The delete file itself."""
        return self.entry.data_file

    @property
    def sequence(self) -> int:
        """The data sequence number of the deletes."""
        return self.entry.sequence_number or 0


@dataclass(slots=True)
class LiveFiles:
    """The live files of one snapshot."""

    data: dict[str, LiveData] = field(default_factory=dict)
    scoped: dict[str, list[LiveDelete]] = field(default_factory=dict)
    """Position-delete files that refer to one data file, by its path."""
    wide: list[LiveDelete] = field(default_factory=list)
    """Position-delete files that refer to several data files of a partition."""
    equality: list[LiveDelete] = field(default_factory=list)

    def delete_entries(self) -> Mapping[str, Sequence[ManifestEntry]]:
        """The entries of each manifest of delete files, by its path."""
        by_manifest: defaultdict[str, list[ManifestEntry]] = defaultdict(list)
        for delete in chain(chain.from_iterable(self.scoped.values()), self.wide, self.equality):
            by_manifest[delete.manifest].append(delete.entry)
        return by_manifest

    def scoped_of(self, data: LiveData) -> Iterator[LiveDelete]:
        """The ``scoped`` delete files that apply to a data file. A file that was removed and added again keeps its
        rows (P4).
        """
        for delete in self.scoped.get(data.candidate.path, ()):
            if delete.sequence >= data.sequence:
                yield delete

    def wide_of(self, data: LiveData) -> Iterator[LiveDelete]:
        """The ``wide`` delete files that may refer to a data file."""
        about = data.candidate
        for delete in self.wide:
            same = delete.file.spec_id == about.spec_id and partition_of(delete.file) == about.partition
            if same and delete.sequence >= data.sequence:
                yield delete


class Manifests:
    """Reads live files. Manifests never change, so each manifest is read once. ``ids``: columns whose bounds are
    kept.
    """

    def __init__(self, ids: Collection[int]) -> None:
        self._ids = frozenset(ids)
        self._known: OrderedDict[str, Sequence[LiveData | LiveDelete]] = OrderedDict()
        self._count = 0

    def live(self, io: FileIO, manifest_list: str | None) -> LiveFiles:
        """The live files of a manifest list; None stands for an empty table."""
        files = LiveFiles()
        for manifest in read_manifest_list(io, manifest_list) if manifest_list is not None else ():
            if not (manifest.has_added_files() or manifest.has_existing_files()):
                continue
            for entry in self._entries(io, manifest):
                _sort_in(files, entry)
        return files

    def _entries(self, io: FileIO, manifest: ManifestFile) -> Sequence[LiveData | LiveDelete]:
        path = manifest.manifest_path
        entries = self._known.pop(path, None)
        if entries is None:
            entries = [self._slim(entry, path) for entry in read_entries(io, manifest)]
            self._count += len(entries)
        self._known[path] = entries
        while self._count > _MOST_KNOWN and len(self._known) > 1:
            self._count -= len(self._known.popitem(last=False)[1])
        return entries

    def _slim(self, entry: ManifestEntry, manifest: str) -> LiveData | LiveDelete:
        file = entry.data_file
        if file.content != DataFileContent.DATA:
            return LiveDelete(entry, manifest)
        lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
        candidate = Candidate(
            path=file.file_path,
            file_format=file.file_format.value,
            records=file.record_count,
            size=file.file_size_in_bytes,
            spec_id=file.spec_id,
            partition=partition_of(file),
            lower={each: lower[each] for each in self._ids if each in lower},
            upper={each: upper[each] for each in self._ids if each in upper},
        )
        return LiveData(candidate, entry.sequence_number or 0, manifest)


def partition_of(file: DataFile) -> tuple[Any, ...]:
    """The values of the file's partition."""
    return tuple(file.partition[i] for i in range(len(file.partition)))


def _sort_in(live: LiveFiles, entry: LiveData | LiveDelete) -> None:
    if isinstance(entry, LiveData):
        live.data[entry.candidate.path] = entry
    elif entry.file.content == DataFileContent.EQUALITY_DELETES:
        live.equality.append(entry)
    elif (about := referenced(entry.file)) is not None:
        live.scoped.setdefault(about, []).append(entry)
    else:
        live.wide.append(entry)
