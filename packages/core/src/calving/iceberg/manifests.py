"""Manifests and manifest lists: their entries with all fields, read and written.

pyiceberg reads entries as version 2 defines them: without the position of a deletion vector in its file, and without
row ids. It cannot write manifests of delete files, nor those of tables of format version 3.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Literal

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
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import StructProtocol
from pyiceberg.types import NestedField
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from calving.caches import cached_by_length
from calving.model import files
from calving.writing.partitioning import to_record

LINEAGE_VERSION: Literal[3] = 3
"""The format version in which every row has an id."""
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
_METRICS = (*range(6, 12), 13)
"""The indices of a data file's fields that tell something of each column, and where its row groups begin."""
_SCHEMA = "avro.schema"
_CACHED = 2_000_000
"""The characters of schemas whose readers are kept: anybody may have written them."""
_DOUBLE = struct.Struct("<d")

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

    def __init__(self, file: InputFile, kind: type, *, lean: bool = False) -> None:
        super().__init__(file)
        self._kind, self._lean = kind, lean

    def __enter__(self) -> _SharedReader:
        with self.input_file.open() as stream:
            self.decoder = new_decoder(stream.read())
        self.header = self._read_header()
        self.reader = _reader(self.header.meta[_SCHEMA], self._kind, lean=self._lean)
        return self


@cached_by_length(_CACHED)
def _reader(schema_json: str, kind: type, *, lean: bool) -> AvroReader:
    reader = resolve_reader(AvroSchemaConversion().avro_to_iceberg(json.loads(schema_json)), *_READ_AS[kind])
    return _exact(_without_metrics(reader) if lean else reader)


def _without_metrics(reader: AvroReader) -> AvroReader:
    """The reader of entries, which skips the metrics of data files: they are most of an entry."""
    if not isinstance(reader, StructReader):
        return reader
    skipped = _METRICS if reader.create_struct is DataFile else ()
    fields = tuple(
        (None, _Discarded(field)) if place in skipped else (place, _without_metrics(field))
        for place, field in reader.field_readers
    )
    return StructReader(fields, reader.create_struct, reader.struct)


class _Discarded(AvroReader):
    """Reads a field and keeps nothing of it. pyiceberg's compiled readers of maps are faster than its skipping."""

    def __init__(self, field: AvroReader) -> None:
        self._field = field

    def read(self, decoder: BinaryDecoder) -> None:
        self._field.read(decoder)

    def skip(self, decoder: BinaryDecoder) -> None:
        self._field.read(decoder)


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


def read_all_entries(io: FileIO, manifest: ManifestFile, *, lean: bool = False) -> list[ManifestEntry]:
    """The entries of a manifest, also the deleted ones. They have the sequence numbers and the spec that they inherit
    from the manifest. ``lean``: without bounds, counts and split offsets: they are most of an entry.
    """
    with _SharedReader(io.new_input(manifest.manifest_path), ManifestEntry, lean=lean) as reader:
        return [_inherit_from_manifest(entry, manifest) for entry in reader]


def read_parent(io: FileIO, path: str) -> int | None:
    """The id of the parent that a snapshot had when its manifest list was written; None if it had none. The metadata
    may no longer have it: pyiceberg removes it when the parent expires.
    """
    with _SharedReader(io.new_input(path), ManifestFile) as reader:
        said = reader.header.meta.get("parent-snapshot-id", "null")
    return int(said) if said != "null" else None


def read_entries(io: FileIO, manifest: ManifestFile, *, lean: bool = False) -> list[ManifestEntry]:
    """The live entries of a manifest. They have the sequence numbers, spec and row ids that they inherit from the
    manifest. ``lean``: as of ``read_all_entries``.
    """
    entries = read_all_entries(io, manifest, lean=lean)
    live = [entry for entry in entries if entry.status is not ManifestEntryStatus.DELETED]
    next_row_id = manifest._data[LIST_FIRST_ROW_ID] if len(manifest._data) > LIST_FIRST_ROW_ID else None
    if manifest.content == ManifestContent.DATA and next_row_id is not None:
        for entry in live:
            file = entry.data_file
            if file._data[FIRST_ROW_ID] is None:
                file._data[FIRST_ROW_ID] = next_row_id
                next_row_id += file.record_count
    return live


def schema_with(metadata: TableMetadata, field_id: int) -> Schema | None:
    """The last schema that has a column, which may have been dropped; None if no schema of the table has it."""
    schemas = [metadata.schema(), *sorted(metadata.schemas, key=lambda each: -each.schema_id)]
    return next((schema for schema in schemas if field_id in schema.field_ids), None)


def partition_sources(metadata: TableMetadata) -> Schema:
    """The columns by which any spec of the table partitions, with the ids and types that they have or last had.

    An older spec may partition by a column that has been dropped: files of that spec still have its values.
    """
    ids = sorted({field.source_id for spec in metadata.partition_specs for field in spec.fields})
    schemas = ((each, schema_with(metadata, each)) for each in ids)
    return Schema(
        *(
            NestedField(each, f"c{each}", schema.find_type(each), required=False)
            for each, schema in schemas
            if schema is not None
        )
    )


def to_pyiceberg(file: files.DataFile, spec: PartitionSpec, sources: Schema) -> DataFile:
    """The file as pyiceberg's ``DataFile`` for a manifest entry. Older format versions omit the last fields.

    ``sources``: has the source columns of the spec.
    """
    converted = DataFile.from_args(
        3,
        content=DataFileContent(int(file.content)),
        file_path=file.file_path,
        file_format=FileFormat(file.file_format.upper()),
        partition=to_record(file.partition, spec, sources),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        column_sizes=_plain(file.column_sizes),
        value_counts=_plain(file.value_counts),
        null_value_counts=_plain(file.null_value_counts),
        nan_value_counts=_plain(file.nan_value_counts),
        lower_bounds=_plain(file.lower_bounds),
        upper_bounds=_plain(file.upper_bounds),
        key_metadata=file.key_metadata,
        split_offsets=list(file.split_offsets) if file.split_offsets else None,
        equality_ids=list(file.equality_ids) if file.equality_ids else None,
        sort_order_id=file.sort_order_id,
        first_row_id=file.first_row_id,
        referenced_data_file=file.referenced_data_file,
        content_offset=file.content_offset,
        content_size_in_bytes=file.content_size_in_bytes,
    )
    converted.spec_id = file.spec_id
    return converted


def _plain(mapping: Mapping[int, Any] | None) -> dict[int, Any] | None:
    return dict(mapping) if mapping is not None else None
