"""Snapshots: each is its parent with what it has added and without what it has deleted, and its summary counts so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from calving.audit.entries import ADDED, DATA, DELETED, EQUALITY_DELETES, POSITION_DELETES, read_list
from calving.audit.findings import AuditFinding, FindingKind
from calving.audit.manifests import ManifestFacts, ManifestReader, PositionDelete
from calving.audit.metadata import SnapshotState, TableMetadataFile
from calving.audit.storage import AuditedStore, DamagedFileError

_NO_PARENT = (None, "null")


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """A snapshot that could be read as a whole. ``begins``: whether nothing was before it; None if nobody knows."""

    snapshot: SnapshotState
    manifests: Sequence[ManifestFacts]
    begins: bool | None

    def total(self, numbers: Callable[[ManifestFacts], int]) -> int:
        """The sum over all manifests."""
        return sum(map(numbers, self.manifests))

    @property
    def own(self) -> Sequence[ManifestFacts]:
        """The manifests that this snapshot has made."""
        return [facts for facts in self.manifests if facts.listed.snapshot_id == self.snapshot.id]

    def changed(self, of: str, status: int, *contents: int) -> int:
        """How many ``files`` or ``rows`` of these contents the snapshot has added or deleted."""
        counts: list[Mapping[tuple[int, int], int]] = [
            facts.changed_files if of == "files" else facts.changed_rows for facts in self.own
        ]
        return sum(each.get((status, content), 0) for each in counts for content in contents)

    @property
    def rows(self) -> int:
        """The rows of live data files, also those that are deleted."""
        return self.total(lambda facts: facts.live_rows[DATA])


def read_snapshot(
    store: AuditedStore, reader: ManifestReader, snapshot: SnapshotState
) -> Iterator[SnapshotFacts | AuditFinding]:
    """The facts of a snapshot, or why there are none."""
    if snapshot.manifest_list is None:
        return  # version 1 may name manifests in the metadata; nobody has written that for years
    try:
        listed = read_list(store, snapshot.manifest_list)
    except FileNotFoundError:
        yield AuditFinding(FindingKind.MANIFEST, snapshot.manifest_list, f"it is missing, and {snapshot.name} names it")
        return
    except DamagedFileError as error:
        yield AuditFinding(FindingKind.MANIFEST, snapshot.manifest_list, str(error))
        return
    parent = snapshot.parent
    if parent is not None and listed.parent is not None and listed.parent != str(parent):
        text = f"its parent is {parent}, and its manifest list was made for parent {listed.parent}"
        yield AuditFinding(FindingKind.SNAPSHOT, snapshot.name, text)
    paths = [manifest.path for manifest in listed.manifests]
    if len(set(paths)) != len(paths):
        yield AuditFinding(FindingKind.MANIFEST, snapshot.manifest_list, "it names a manifest twice")
    manifests = [reader.facts(manifest) for manifest in listed.manifests]
    present = [each for each in manifests if each is not None]
    begins = None
    if snapshot.parent is None and listed.parent is not None:
        begins = listed.parent in _NO_PARENT
    if len(present) == len(manifests):
        yield SnapshotFacts(snapshot, present, begins)


class SnapshotJudge:
    """Judges snapshots; parents come before their children."""

    def __init__(self, metadata: TableMetadataFile) -> None:
        self._metadata = metadata
        self._live: dict[int, tuple[int, int]] = {}
        """Of each snapshot, the sum of the keys of its live files, and their number."""

    def judge(self, facts: SnapshotFacts) -> Iterator[AuditFinding]:
        """What is wrong with a snapshot, beyond each of its manifests."""
        live = facts.total(lambda each: each.live)
        count = facts.total(lambda each: len(each.keys))
        self._live[facts.snapshot.id] = live, count
        texts = chain(self._against_parent(facts, live), self._against_summary(facts), self._sequences(facts))
        yield from (AuditFinding(FindingKind.SNAPSHOT, facts.snapshot.name, text) for text in texts)
        keys = pa.chunked_array([pa.array(each.keys, pa.uint64()) for each in facts.manifests], pa.uint64())
        if (twice := count - pc.count_distinct(keys).as_py()) > 0:
            yield AuditFinding(FindingKind.SNAPSHOT, facts.snapshot.name, f"files are in it twice: {twice}")

    def _against_parent(self, facts: SnapshotFacts, live: int) -> Iterator[str]:
        parent = facts.snapshot.parent
        of_beginning = (0, 0) if facts.begins else None
        before = self._live.get(parent) if parent is not None else of_beginning
        if before is None:
            return
        added = sum(each.added for each in facts.own)
        deleted = sum(each.deleted for each in facts.own)
        if live != before[0] + added - deleted:
            adds, deletes = facts.changed("files", ADDED, 0, 1, 2), facts.changed("files", DELETED, 0, 1, 2)
            count = facts.total(lambda each: len(each.keys))
            yield (
                f"it has {count} files; its parent had {before[1]}, and it says that it has added {adds} and deleted"
                f" {deletes}: they are not the same files"
            )

    def _against_summary(self, facts: SnapshotFacts) -> Iterator[str]:
        deletes = (POSITION_DELETES, EQUALITY_DELETES)
        found = {
            "total-data-files": facts.total(lambda each: each.live_files[DATA]),
            "total-records": facts.rows,
            "total-delete-files": facts.total(lambda each: sum(each.live_files[1:])),
            "total-position-deletes": facts.total(lambda each: each.live_rows[POSITION_DELETES]),
            "total-equality-deletes": facts.total(lambda each: each.live_rows[EQUALITY_DELETES]),
            "added-data-files": facts.changed("files", ADDED, DATA),
            "added-records": facts.changed("rows", ADDED, DATA),
            "added-delete-files": facts.changed("files", ADDED, *deletes),
            "deleted-data-files": facts.changed("files", DELETED, DATA),
            "deleted-records": facts.changed("rows", DELETED, DATA),
            "removed-delete-files": facts.changed("files", DELETED, *deletes),
        }
        for name, number in found.items():
            said = facts.snapshot.summary.get(name)
            if said is not None and said != str(number):
                yield f"its summary says {name} = {said}, and there are {number}"

    def _sequences(self, facts: SnapshotFacts) -> Iterator[str]:
        if self._metadata.version < 2:
            return
        own = facts.snapshot.sequence
        for each in facts.manifests:
            listed = each.listed
            is_own = listed.snapshot_id == facts.snapshot.id
            if listed.sequence > own or (is_own and listed.sequence != own):
                yield f"it has sequence number {own}, and its manifest {listed.path} has {listed.sequence}"


def judge_row_ids(facts: SnapshotFacts, next_row_id: int | None) -> Iterator[AuditFinding]:
    """Whether the rows of a snapshot's files have ids of their own."""
    pairs = sorted(
        (first, first + count)
        for each in facts.manifests
        if each.listed.content == DATA
        for first, count in zip(each.first_row_ids, each.records, strict=True)
        if first >= 0
    )
    for (_, end), (first, _) in pairwise(pairs):
        if first < end:
            text = f"two files have row ids from {first} on"
            yield AuditFinding(FindingKind.ROW_IDS, facts.snapshot.name, text)
    last = max((end for _, end in pairs), default=0)
    if pairs and (next_row_id is None or last > next_row_id):
        text = f"its files have row ids up to {last}, and the table's next one is {next_row_id}"
        yield AuditFinding(FindingKind.ROW_IDS, facts.snapshot.name, text)


class DeleteApplication:
    """Whether the position deletes of one snapshot apply to its data files. ``reaches``: by the key of a delete, the
    highest position in each data file that it names, by ``file_key``.
    """

    def __init__(self, facts: SnapshotFacts, reaches: Mapping[int, Mapping[int, int]]) -> None:
        self._facts, self._reaches = facts, reaches

    def judge(self) -> Iterator[AuditFinding]:
        """All live deletes. One that names no live file may have outlived it."""
        known = {
            key: (records, sequence, place)
            for each in self._facts.manifests
            if each.listed.content == DATA
            for key, records, sequence, place in zip(each.keys, each.records, each.sequences, each.places, strict=True)
        }
        vectors: set[str] = set()
        for delete in (each for manifest in self._facts.manifests for each in manifest.deletes):
            if delete.is_vector and delete.referenced is not None:
                if delete.referenced in vectors:
                    yield _of(delete, "the file has several deletion vectors")
                vectors.add(delete.referenced)
            for of, reach in self._reaches.get(delete.key, {}).items():
                if (found := known.get(of)) is not None and (text := _misfit(delete, reach, *found)):
                    yield _of(delete, text)

    def judge_added(self) -> Iterator[AuditFinding]:
        """Those that this snapshot has added: each deletes rows of files that it has."""
        added = [each for manifest in self._facts.own for each in manifest.deletes if each.added_by is not None]
        named = {of: delete for delete in added for of in self._reaches.get(delete.key, ())}
        if not named:
            return
        keys = [pa.array(each.keys, pa.uint64()) for each in self._facts.manifests if each.listed.content == DATA]
        wanted = pa.array(list(named), pa.uint64())
        there = pc.is_in(wanted, value_set=pa.chunked_array(keys, pa.uint64())).to_pylist()
        for delete, is_there in zip(named.values(), there, strict=True):
            if not is_there:
                text = f"{self._facts.snapshot.name} has added it, and it deletes rows of a file that is not in there"
                yield _of(delete, text)


def _misfit(delete: PositionDelete, reach: int, records: int, sequence: int, place: int) -> str | None:
    """Why a delete does not apply to a data file, which it names."""
    if reach >= records:
        return f"a delete of row {reach} is in it, and the data file has {records} rows"
    if delete.referenced is not None and delete.records > records:
        return f"{delete.records} rows are deleted of {records}"
    if delete.sequence < sequence:
        return f"a delete of sequence number {delete.sequence} is about a file of {sequence}"
    return "it is in another partition than the file whose rows it deletes" if delete.place != place else None


def _of(delete: PositionDelete, text: str) -> AuditFinding:
    return AuditFinding(
        FindingKind.DELETES, delete.path, text if delete.referenced is None else f"{text} ({delete.referenced})"
    )
