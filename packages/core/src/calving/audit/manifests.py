"""Manifests: read once each, however many snapshots list them, and judged against their lists.

Where lists differ about a manifest it is read once for each form: each list is judged, not the oldest alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from calving.audit.entries import (
    ADDED,
    DATA,
    DELETED,
    EQUALITY_DELETES,
    POSITION_DELETES,
    AuditedEntry,
    ListedManifest,
    file_key,
    read_entries,
)
from calving.audit.findings import AuditFinding, FindingKind
from calving.audit.metadata import SpecField, TableMetadataFile
from calving.audit.storage import AuditedStore, DamagedFileError
from calving.audit.values import from_avro, from_bound, has_order, is_nan

Report = Callable[[AuditFinding], None]
_STATUSES = ("EXISTING", "ADDED", "DELETED")


@dataclass(frozen=True, slots=True)
class PositionDelete:
    """A live position-delete file or vector. ``referenced``: the data file that its entry names, if it names one.
    ``place``: as in ``ManifestFacts.places``. ``added_by``: the snapshot that has brought it, if this is its manifest.
    """

    key: int
    path: str
    referenced: str | None
    sequence: int
    records: int
    place: int
    added_by: int | None
    is_vector: bool


@dataclass(slots=True)
class ManifestFacts:
    """What is left of a manifest once it was read: some numbers for each entry.

    ``live``, ``added`` and ``deleted`` are sums of the entries' keys: sets of files are compared by their sums.
    """

    listed: ListedManifest
    live: int = 0
    added: int = 0
    deleted: int = 0
    keys: array[int] = field(default_factory=lambda: array("Q"))
    """Of the live entries."""
    records: array[int] = field(default_factory=lambda: array("q"))
    sequences: array[int] = field(default_factory=lambda: array("q"))
    first_row_ids: array[int] = field(default_factory=lambda: array("q"))
    """-1: none."""
    places: array[int] = field(default_factory=lambda: array("Q"))
    """A number for partition spec and partition: deletes apply to the files of the same place."""
    deletes: list[PositionDelete] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Entries by status."""
    rows: list[int] = field(default_factory=lambda: [0, 0, 0])
    live_rows: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Rows of live files by content."""
    live_files: list[int] = field(default_factory=lambda: [0, 0, 0])
    changed_rows: dict[tuple[int, int], int] = field(default_factory=dict)
    """Rows by status and content, of entries that are added or deleted."""
    changed_files: dict[tuple[int, int], int] = field(default_factory=dict)

    def see(self, entry: AuditedEntry, fields: Sequence[SpecField]) -> None:
        """Count an entry. ``fields``: of its partition spec."""
        key, content = entry.key, entry.content
        self.counts[entry.status] += 1
        self.rows[entry.status] += entry.records
        if entry.status in (ADDED, DELETED):
            change = entry.status, content
            self.changed_rows[change] = self.changed_rows.get(change, 0) + entry.records
            self.changed_files[change] = self.changed_files.get(change, 0) + 1
        if entry.status == ADDED:
            self.added += key
        if entry.status == DELETED:
            self.deleted += key
            return
        self.live += key
        self.keys.append(key)
        self.records.append(entry.records)
        self.sequences.append(entry.sequence)
        self.first_row_ids.append(-1 if entry.first_row_id is None else entry.first_row_id)
        self.live_rows[content] += entry.records
        self.live_files[content] += 1
        place = place_of(entry, fields)
        self.places.append(place)
        if content == POSITION_DELETES:
            self.deletes.append(
                PositionDelete(
                    key=key,
                    path=entry.path,
                    referenced=entry.referenced,
                    sequence=entry.sequence,
                    records=entry.records,
                    place=place,
                    added_by=entry.snapshot_id if entry.status == ADDED else None,
                    is_vector=entry.file_format == "PUFFIN",
                )
            )


class ManifestReader:
    """The manifests of a table. ``see``: gets every live entry once for each manifest that names it."""

    def __init__(
        self,
        store: AuditedStore,
        metadata: TableMetadataFile,
        report: Report,
        see: Callable[[AuditedEntry], None],
    ) -> None:
        self._store, self._metadata, self._report, self._see = store, metadata, report, see
        self._known: dict[ListedManifest, ManifestFacts | None] = {}
        self._additions: dict[int, tuple[int, int | None]] = {}
        """Of each file as one snapshot has added it: its sequence number, and the id of its first row."""

    def facts(self, listed: ListedManifest) -> ManifestFacts | None:
        """The facts of a manifest; None if it cannot be read, which is reported."""
        if listed not in self._known:
            self._known[listed] = self._read(listed)
        return self._known[listed]

    def _read(self, listed: ListedManifest) -> ManifestFacts | None:
        facts = ManifestFacts(listed)
        try:
            size = self._store.size(listed.path)
            if size != listed.length:
                self._wrong(listed, f"it has {size} bytes, and its list says {listed.length}")
            for entry in read_entries(self._store, listed):
                if entry.status not in (0, ADDED, DELETED) or entry.content not in (0, 1, 2):
                    raise DamagedFileError(f"an entry has status {entry.status} and content {entry.content}")
                facts.see(entry, self._metadata.specs.get(listed.spec_id, ()))
                for text in self._judged(entry, listed):
                    self._wrong(listed, f"{_STATUSES[entry.status]} {entry.path}: {text}")
                if entry.is_live:
                    self._see(entry)
        except FileNotFoundError:
            self._wrong(listed, "it is missing")
            return None
        except DamagedFileError as error:
            self._wrong(listed, str(error))
            return None
        self._judge_counts(listed, facts)
        return facts

    def _judge_counts(self, listed: ListedManifest, facts: ManifestFacts) -> None:
        by_status = (ADDED, 0, DELETED)
        for what, said, found in (("files", listed.files, facts.counts), ("rows", listed.rows, facts.rows)):
            for status, number in zip(by_status, said, strict=True):
                if number is not None and number != found[status]:
                    text = f"it has {found[status]} {_STATUSES[status]} {what}, and its list says {number}"
                    self._wrong(listed, text)

    def _judged(self, entry: AuditedEntry, listed: ListedManifest) -> Iterator[str]:
        yield from self._judged_inheritance(entry, listed)
        if entry.is_live:
            yield from self._judged_copy(entry)
        if (entry.content == DATA) != (listed.content == DATA):
            yield f"it has content {entry.content}, in a manifest of content {listed.content}"
        if entry.records < 0 or entry.size <= 0:
            yield f"it has {entry.records} rows and {entry.size} bytes"
        yield from self._judged_delete(entry)
        fields = self._metadata.specs.get(listed.spec_id)
        if fields is None:
            yield f"the table has no partition spec {listed.spec_id}"
        elif len(fields) != len(entry.partition):
            yield f"it has {len(entry.partition)} partition values, and spec {listed.spec_id} has {len(fields)} fields"
        else:
            yield from _outside(entry, listed, fields)

    def _judged_delete(self, entry: AuditedEntry) -> Iterator[str]:
        if entry.content == EQUALITY_DELETES:
            unknown = [each for each in entry.equality_ids if each not in self._metadata.columns]
            if unknown or not entry.equality_ids:
                yield f"it deletes by columns {list(entry.equality_ids)}, and the table lacks {unknown or 'none'}"
        if entry.file_format == "PUFFIN":
            if None in (entry.referenced, entry.offset, entry.blob_size):
                yield "the vector names no data file, or no place in its file"
            if self._metadata.version < 3:
                yield f"a table of version {self._metadata.version} has no deletion vectors"

    def _judged_inheritance(self, entry: AuditedEntry, listed: ListedManifest) -> Iterator[str]:
        if entry.status == ADDED and entry.own_snapshot_id not in (None, listed.snapshot_id):
            yield f"it was added by snapshot {entry.own_snapshot_id}, in a manifest of {listed.snapshot_id}"
        if entry.status == DELETED and entry.snapshot_id != listed.snapshot_id:
            yield f"it was deleted by snapshot {entry.snapshot_id}, in a manifest of {listed.snapshot_id}"
        if self._metadata.version < 2 or not listed.sequence:
            return
        if entry.status != ADDED and entry.own_sequences[0] is None:
            yield "it is not new, and has no sequence number of its own"
        of_file = listed.sequence if entry.file_sequence is None else entry.file_sequence
        if not entry.sequence <= of_file <= listed.sequence:
            yield (
                f"its sequence numbers are {entry.sequence} and {entry.file_sequence},"
                f" in a manifest with {listed.sequence}"
            )
        if entry.is_live and entry.sequence < listed.min_sequence:
            yield f"it has sequence number {entry.sequence}, and its list says that {listed.min_sequence} is the lowest"

    def _judged_copy(self, entry: AuditedEntry) -> Iterator[str]:
        """Whether a file keeps, in every manifest, what it has inherited when it was added."""
        now = entry.sequence, entry.first_row_id
        before = self._additions.get(entry.addition, now)
        for what, one, other in zip(("sequence number", "first row id"), before, now, strict=True):
            if None not in (one, other) and one != other:
                yield f"it has {what} {other}, and {one} in another manifest"
        self._additions[entry.addition] = before if before[1] is not None else now

    def _wrong(self, listed: ListedManifest, text: str) -> None:
        self._report(AuditFinding(FindingKind.MANIFEST, listed.path, text))


def place_of(entry: AuditedEntry, fields: Sequence[SpecField]) -> int:
    """A number for the partition spec and the partition of a file. ``fields``: of its spec."""
    kinds = [field.kind for field in fields] if len(fields) == len(entry.partition) else [""] * len(entry.partition)
    values = [from_avro(kind, raw) for kind, raw in zip(kinds, entry.partition, strict=True)]
    return file_key(repr((entry.spec_id, values)))


def _outside(entry: AuditedEntry, listed: ListedManifest, fields: Sequence[SpecField]) -> Iterator[str]:
    """Whether the list's partition bounds hide the entry."""
    if not listed.partitions or len(listed.partitions) != len(fields):
        return
    for spec, raw, (has_null, has_nan, low, high) in zip(fields, entry.partition, listed.partitions, strict=True):
        value = from_avro(spec.kind, raw)
        if value is None:
            if not has_null:
                yield f"its {spec.name} is null, and the list says that no partition is"
        elif is_nan(value):
            if has_nan is False:
                yield f"its {spec.name} is no number, and the list says that none is so"
        elif has_order(spec.kind) and (
            (low is not None and value < from_bound(spec.kind, low))  # type: ignore[operator]
            or (high is not None and value > from_bound(spec.kind, high))  # type: ignore[operator]
        ):
            yield f"its {spec.name} is outside of the bounds in the list"
