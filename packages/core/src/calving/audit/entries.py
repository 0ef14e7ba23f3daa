"""Manifest lists and manifests, read as the specification defines them: fields are found by their ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from calving.audit.avro import AvroFile, AvroRecord, field_type, names_by_id
from calving.audit.storage import AuditedStore, DamagedFileError

ADDED, DELETED = 1, 2
"""Of an entry's status; 0: it existed before."""
DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ListedManifest:
    """A manifest as its list describes it. A field is None if its writer left it out."""

    path: str
    length: int
    spec_id: int
    content: int
    sequence: int
    min_sequence: int
    snapshot_id: int | None
    files: tuple[int | None, int | None, int | None]
    """Added, existing and deleted entries."""
    rows: tuple[int | None, int | None, int | None]
    partitions: tuple[tuple[bool, bool | None, bytes | None, bytes | None], ...] | None
    """Of each field: whether there are nulls, whether there are NaN, and the bounds."""
    first_row_id: int | None


@dataclass(frozen=True, slots=True)
class ManifestListFile:
    """The content of a manifest list. ``parent``: the parent that the snapshot had when it was made, as text."""

    manifests: Sequence[ListedManifest]
    parent: str | None


@dataclass(frozen=True, slots=True)
class AuditedEntry:
    """An entry of a manifest, with what it inherits. ``own_sequences``: those that it states itself."""

    status: int
    snapshot_id: int | None
    sequence: int
    file_sequence: int | None
    """None: it is not new, and its writer, Iceberg before 1.1, did not know this number."""
    own_sequences: tuple[int | None, int | None]
    own_snapshot_id: int | None
    content: int
    path: str
    file_format: str
    partition: tuple[Any, ...]
    records: int
    size: int
    value_counts: Mapping[int, int]
    null_counts: Mapping[int, int]
    nan_counts: Mapping[int, int]
    lower: Mapping[int, bytes]
    upper: Mapping[int, bytes]
    equality_ids: tuple[int, ...]
    first_row_id: int | None
    referenced: str | None
    offset: int | None
    blob_size: int | None
    spec_id: int

    @property
    def is_live(self) -> bool:
        """Whether the file belongs to the snapshot."""
        return self.status != DELETED

    @property
    def key(self) -> int:
        """A number for this file; of a deletion vector also for its place in the file."""
        return file_key(self.path, self.offset if self.file_format == "PUFFIN" else None)

    @property
    def addition(self) -> int:
        """A number for this file as one snapshot has added it: what it inherits then never changes."""
        return file_key(f"{self.key}#{self.snapshot_id}")

    @property
    def claims(self) -> int:
        """A number for all that the entry says of its file. Entries of one file in several manifests may differ."""
        counts = (self.value_counts, self.null_counts, self.nan_counts, self.lower, self.upper)
        ordered = tuple(sorted(each.items()) for each in counts)
        of_file = (self.content, self.file_format, self.spec_id, self.partition, self.records, self.size)
        of_deletes = (self.equality_ids, self.referenced, self.offset, self.blob_size)
        return file_key(repr((self.path, of_file, of_deletes, ordered)))


def file_key(path: str, offset: int | None = None) -> int:
    """64 bits of a digest: sets of them are small."""
    text = path if offset is None else f"{path}#{offset}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def read_list(store: AuditedStore, path: str) -> ManifestListFile:
    """:raises DamagedFileError: it cannot be decoded. For other errors see ``AuditedStore``."""
    with store.open(path) as stream:
        file = AvroFile(stream)
        names = names_by_id(file.schema)
        found = [_listed(record, names) for record in file.records()]
    parent = file.metadata.get("parent-snapshot-id")
    return ManifestListFile(found, parent if parent is None or isinstance(parent, str) else parent.decode())


def _listed(record: AvroRecord, names: Mapping[int, str]) -> ListedManifest:
    def said(field_id: int) -> Any:
        return record.get(names[field_id]) if field_id in names else None

    if not isinstance(said(500), str) or said(501) is None:
        raise DamagedFileError("an entry lacks the path or the length of a manifest")
    bounds = said(507)
    return ListedManifest(
        path=said(500),
        length=said(501),
        spec_id=said(502) or 0,
        content=said(517) or 0,
        sequence=said(515) or 0,
        min_sequence=said(516) or 0,
        snapshot_id=said(503),
        files=(said(504), said(505), said(506)),
        rows=(said(512), said(513), said(514)),
        partitions=None
        if bounds is None
        else tuple(
            (each["contains_null"], each.get("contains_nan"), each.get("lower_bound"), each.get("upper_bound"))
            for each in bounds
        ),
        first_row_id=said(520),
    )


def read_entries(store: AuditedStore, manifest: ListedManifest) -> Iterator[AuditedEntry]:
    """The entries of a manifest, also the deleted ones, one at a time; errors as of ``read_list``."""
    with store.open(manifest.path) as stream:
        file = AvroFile(stream)
        reader = _EntryReader(file.schema, manifest)
        for record in file.records():
            yield reader.entry(record)


class _EntryReader:
    def __init__(self, schema: Any, manifest: ListedManifest) -> None:
        self._names, self._manifest = names_by_id(schema), manifest
        if 2 not in self._names:
            raise DamagedFileError("it is no manifest: its entries have no data file")
        inner = field_type(schema, self._names[2])
        self._inner = names_by_id(inner)
        self._partition = [
            field["name"] for field in (field_type(inner, self._inner[102])["fields"] if 102 in self._inner else ())
        ]
        self._next_row_id = manifest.first_row_id

    def entry(self, record: AvroRecord) -> AuditedEntry:
        def said(field_id: int) -> Any:
            return record.get(self._names[field_id]) if field_id in self._names else None

        own, manifest = (said(3), said(4)), self._manifest
        is_new = said(0) == ADDED
        file = self._file(record[self._names[2]])
        live = said(0) != DELETED
        return AuditedEntry(
            status=said(0),
            snapshot_id=manifest.snapshot_id if said(1) is None else said(1),
            sequence=_inherited(own[0], manifest.sequence if is_new else 0),
            file_sequence=manifest.sequence if own[1] is None and is_new else own[1],
            own_sequences=own,
            own_snapshot_id=said(1),
            spec_id=manifest.spec_id,
            first_row_id=self._row_id(file, live=live),
            **{name: value for name, value in file.items() if name != "first_row_id"},
        )

    def _row_id(self, file: Mapping[str, Any], *, live: bool) -> int | None:
        """The id of the first row: its own, or the next one of the manifest."""
        own: int | None = file["first_row_id"]
        if own is not None or file["content"] != DATA or self._next_row_id is None or not live:
            return own
        first = self._next_row_id
        self._next_row_id += file["records"]
        return first

    def _file(self, file: AvroRecord) -> dict[str, Any]:
        def said(field_id: int) -> Any:
            return file.get(self._inner[field_id]) if field_id in self._inner else None

        if not isinstance(said(100), str) or said(103) is None:
            raise DamagedFileError("an entry lacks the path or the number of rows of a file")
        partition = said(102) or {}
        return {
            "content": said(134) or DATA,
            "path": said(100),
            "file_format": str(said(101)).upper(),
            "partition": tuple(partition.get(name) for name in self._partition),
            "records": said(103),
            "size": said(104) or 0,
            "value_counts": _by_column(said(109)),
            "null_counts": _by_column(said(110)),
            "nan_counts": _by_column(said(137)),
            "lower": _by_column(said(125)),
            "upper": _by_column(said(128)),
            "equality_ids": tuple(said(135) or ()),
            "first_row_id": said(142),
            "referenced": said(143),
            "offset": said(144),
            "blob_size": said(145),
        }


def _inherited(own: int | None, of_manifest: int) -> int:
    return of_manifest if own is None else own


def _by_column(pairs: Any) -> dict[int, Any]:
    if pairs is None:
        return {}
    if isinstance(pairs, Mapping):
        return {int(key): value for key, value in pairs.items()}
    return {pair["key"]: pair["value"] for pair in pairs}
