"""Writers of manifests and manifest lists that pyiceberg cannot write: manifests of delete files, and both of tables of
format version 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from pydantic import PrivateAttr
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    UNASSIGNED_SEQ,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, NestedField, StringType, StructType

from calving.iceberg.manifests import LINEAGE_VERSION, LIST_FIRST_ROW_ID

_ADDED_BY = 6
"""The index of a manifest file's ``added_snapshot_id``."""
_ENTRIES_OF_BLOCK = 1_000
_DATA_FILE = 2
_EQUALITY_IDS = 135
_REFERENCED = NestedField(143, "referenced_data_file", StringType(), required=False)


class WritableSpec(PartitionSpec):
    """A spec as manifests of the table are written. pyiceberg does not know the type of a column that has been dropped,
    and makes the partition value of a required column required. But a required column within a null struct has no
    value.
    """

    _sources: Schema = PrivateAttr()

    @staticmethod
    def of(spec: PartitionSpec, sources: Schema) -> WritableSpec:
        made = WritableSpec(*spec.fields, spec_id=spec.spec_id)
        made._sources = sources
        return made

    def partition_type(self, schema: Schema) -> StructType:
        fields = super().partition_type(self._sources).fields
        return StructType(*(NestedField(f.field_id, f.name, f.field_type, required=False) for f in fields))


class DeleteManifestWriter(ManifestWriterV2):
    """Writes manifests of delete files, which pyiceberg cannot write."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    def _with_partition(self, format_version: Any) -> Schema:
        return _integer_equality_ids(super()._with_partition(format_version))

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        """Entries have the fields of version 3. Version 2 allows only one of these fields, the referenced data file."""
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=_with_field(self._with_partition(2), _REFERENCED),
            record_schema=self._with_partition(3),
            schema_name="manifest_entry",
            metadata=self._meta,
        )


class LineageManifestWriter(ManifestWriterV2):
    """Writes manifests of format version 3, with fields for row ids."""

    def __init__(self, contents: ManifestContent, *about: Any) -> None:
        """``about``: as of every writer of manifests."""
        self._contents = contents
        super().__init__(*about)

    def content(self) -> ManifestContent:
        return self._contents

    @property
    def version(self) -> int:  # type: ignore[override]
        return LINEAGE_VERSION

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes" if self._contents is ManifestContent.DELETES else "data"}

    def _with_partition(self, format_version: object) -> Schema:
        return _integer_equality_ids(super()._with_partition(LINEAGE_VERSION))

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        schema = self._with_partition(LINEAGE_VERSION)
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=schema,
            record_schema=schema,
            schema_name="manifest_entry",
            metadata=self._meta,
        )

    def to_manifest_file(self) -> ManifestFile:
        made = super().to_manifest_file()
        made._data.append(None)
        return made


def _integer_equality_ids(schema: Schema) -> Schema:
    """pyiceberg 0.12 declares ``equality_ids`` as list<long>; the spec, and Java, want list<int>."""
    ids = ListType(_EQUALITY_IDS + 1, IntegerType(), element_required=True)
    return _with_field(schema, NestedField(_EQUALITY_IDS, "equality_ids", ids, required=False))


def _with_field(schema: Schema, wanted: NestedField) -> Schema:
    """The schema of manifest entries, in which ``wanted`` replaces the field of ``data_file`` with the same id."""
    data_file = schema.find_type(_DATA_FILE)
    if not isinstance(data_file, StructType):
        raise TypeError("a manifest entry without data_file")
    fields = {field.field_id: field for field in data_file.fields} | {wanted.field_id: wanted}
    whole = NestedField(_DATA_FILE, "data_file", StructType(*fields.values()), required=True)
    return Schema(*(whole if field.field_id == _DATA_FILE else field for field in schema.fields))


def number_manifests(manifests: Sequence[ManifestFile], sequence_number: int, next_row_id: int) -> int:
    """Give sequence numbers and first row ids to the manifests that have none. Returns the next free row id."""
    for manifest in manifests:
        if manifest.sequence_number == UNASSIGNED_SEQ:
            manifest.sequence_number = sequence_number
        if manifest.min_sequence_number == UNASSIGNED_SEQ:
            manifest.min_sequence_number = sequence_number
        # Manifests from before the table's upgrade to version 3 have no row id either.
        if manifest.content == ManifestContent.DATA and manifest._data[LIST_FIRST_ROW_ID] is None:
            manifest._data[LIST_FIRST_ROW_ID] = next_row_id
            next_row_id += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
    return next_row_id


def added_by(manifest: ManifestFile, snapshot_id: int) -> ManifestFile:
    """The manifest as one that this snapshot adds."""
    made = ManifestFile(*manifest._data)
    made._data[_ADDED_BY] = snapshot_id
    return made


def write_manifest_list(output: OutputFile, manifests: Sequence[ManifestFile], about: Mapping[str, str]) -> None:
    """Write a manifest list of version 3, which pyiceberg cannot. ``about``: its metadata."""
    schema = MANIFEST_LIST_FILE_SCHEMAS[LINEAGE_VERSION]
    with AvroOutputFile[ManifestFile](
        output_file=output,
        file_schema=schema,
        record_schema=schema,
        schema_name="manifest_file",
        metadata={**about, "format-version": str(LINEAGE_VERSION)},
    ) as writer:
        writer.write_block([*manifests])


class _Block:
    """Takes the entries that a writer of manifests writes one by one."""

    def __init__(self) -> None:
        self.entries: list[ManifestEntry] = []

    def write_block(self, entries: list[ManifestEntry]) -> None:
        self.entries += entries


def write_entries(writer: ManifestWriter, entries: Iterator[ManifestEntry], most_bytes: int) -> ManifestFile:
    """Write the next entries to a manifest, in whole blocks, until it has ``most_bytes``. There is at least one.

    pyiceberg makes a block of each entry, which takes more space, and readers more time.
    """
    with writer:
        file = writer._writer
        while file.tell() < most_bytes:
            block = _Block()
            writer._writer = block  # type: ignore[assignment]
            for entry in islice(entries, _ENTRIES_OF_BLOCK):
                writer.add_entry(entry)
            if not block.entries:
                break
            file.write_block(block.entries)
        writer._writer = file
    return writer.to_manifest_file()
