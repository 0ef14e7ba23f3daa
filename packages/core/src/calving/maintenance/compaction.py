"""The commit of rewritten files, beside commits that delete rows of the files that they replace (K2 to K7, K14)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, takewhile

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyroaring import BitMap64

from calving.iceberg.delete_files import Deleted, DeleteFiles, Deletions, KnownPositions
from calving.iceberg.equality import EqualitySearch, Scope, place_of, scope_of
from calving.iceberg.history import ancestors, summary_of
from calving.iceberg.live_files import LiveData, LiveDelete, LiveFiles, Manifests
from calving.iceberg.manifests import FileKey, key_of, partition_sources, read_all_entries, read_manifest_list
from calving.iceberg.snapshot import SinkSnapshot
from calving.maintenance.permutation import places
from calving.maintenance.rewrite import RewrittenRows
from calving.model import files
from calving.mutations.candidates import Candidate, new_files
from calving.protocol.ledger_key import COMMIT_ID, LedgerKey


@dataclass(frozen=True, slots=True)
class FileReplacement:
    """The changes of one commit: data files that replace others. ``sequence``: their data sequence number.
    ``translated``: how many of their rows were deleted while they were written.
    """

    outputs: tuple[files.DataFile, ...]
    deletes: tuple[DataFile, ...]
    removed: frozenset[FileKey]
    manifests: frozenset[str]
    """Manifests that name removed files."""
    sequence: int | None
    translated: int

    @property
    def added(self) -> frozenset[str]:
        """The paths of the new files."""
        outputs, deletes = (file.file_path for file in self.outputs), (file.file_path for file in self.deletes)
        return frozenset((*outputs, *deletes))

    def put_into(self, snapshot: SinkSnapshot) -> None:
        """Make the changes part of a snapshot."""
        snapshot.replace(self.outputs, self.sequence)
        snapshot.add_deletes(self.deletes, ())
        snapshot.remove(self.removed, self.manifests, {})


class Compaction:
    """The replacement of one group of files, kept until its commit: only positions are translated again."""

    def __init__(
        self,
        key: LedgerKey,
        table: Table,
        inputs: Mapping[str, LiveData],
        rewritten: RewrittenRows,
        search: Callable[[], EqualitySearch] = EqualitySearch,
    ) -> None:
        """``table``: as it was when ``inputs`` were ``rewritten``. ``key``: of the sink that writes the table.
        ``search``: makes the search for rows that keys delete.
        """
        self._key, self._uuid = key, table.metadata.table_uuid
        self._inputs, self._rewritten = inputs, rewritten
        snapshot = table.metadata.snapshot_by_name(key.branch)
        self._planned = snapshot.snapshot_id if snapshot is not None else None
        self._sequence = (snapshot.sequence_number or 0) if snapshot is not None else 0
        self._specs = {spec_id: table.specs()[spec_id] for spec_id in {each.spec_id for each in rewritten.outputs}}
        self._manifests, self._known = Manifests(()), KnownPositions()
        self._new_search = search
        self._searched: frozenset[FileKey] = frozenset()
        self._hits: dict[str, BitMap64] = {path: BitMap64() for path in inputs}
        self._deletes = DeleteFiles()
        self._written = [output.file_path for output in rewritten.outputs]
        if rewritten.places.permutation is not None:
            self._written.append(rewritten.places.permutation)
        self.dropped: str | None = None
        """Why the group cannot be committed any more."""
        self.is_offered = False
        """Whether there was a change to commit."""

    def of(self, table: Table, branch: str) -> FileReplacement | None:
        """The changes of the commit on this head of the branch; None if the group has to be ``dropped``.

        :raises TableTroubleError: delete files of the table cannot be read.
        """
        head = table.metadata.snapshot_by_name(branch)
        self.dropped = self._left(table, branch)
        if self.dropped is not None or head is None:
            return None
        live = self._manifests.live(table.io, head.manifest_list)
        deletions = Deletions(table, live, self._known)
        settles = self._settles(table, live)
        since = self._deleted_since(table, branch, live, deletions, settles=settles)
        if since is None:
            return None
        dead = self._rewritten.places.of(chain.from_iterable(since), partial(places, table.io))
        if dead is None:
            self.dropped = "rows were deleted meanwhile, and nothing tells where they are in the new files"
            return None
        self.is_offered = True
        return self._replacement(table, live, dead, (head.sequence_number or 0) if settles else self._sequence)

    def unused(self, used: Collection[str]) -> list[str]:
        """The paths of the files that were written and are not among the ``used`` ones."""
        return [path for path in (*self._written, *self._deletes.written) if path not in used]

    def _left(self, table: Table, branch: str) -> str | None:
        """Why this is no later state of the table whose files were rewritten; None if it is one."""
        metadata = table.metadata
        if metadata.table_uuid != self._uuid:
            return "the table was dropped and created again"
        line = {snapshot.snapshot_id for snapshot in ancestors(metadata, branch)}
        if not line or (self._planned not in line and metadata.snapshot_by_id(self._planned or 0) is not None):
            return "the table was rolled back"
        specs = metadata.specs()
        if any(specs.get(spec_id) != spec for spec_id, spec in self._specs.items()):  # its number may be another's now
            return "the partition spec of the new files was removed"
        return None

    def _deleted_since(
        self, table: Table, branch: str, live: LiveFiles, deletions: Deletions, *, settles: bool
    ) -> list[list[int]] | None:
        """The rows that were taken and have been deleted since, by input; None if the group is dropped. ``settles``:
        also those that keys delete.
        """
        missing = [path for path, data in self._inputs.items() if not _is_same(live.data.get(path), data)]
        by_sink = self._removed_by_sink(table, branch) if missing else frozenset()
        strangers = [path for path in missing if path not in by_sink or path in live.data]
        if strangers:
            self.dropped = f"{len(strangers)} {'was' if len(strangers) == 1 else 'were'} removed by someone else"
            return None
        if settles:
            self._look_for_keys(table, live)
        rows = []
        for path, taken in self._rewritten.inputs.items():
            deleted = BitMap64(range(taken.records)) if path in by_sink else deletions.before(path)
            if taken.deleted - deleted:
                self.dropped = "rows that had been deleted are back"
                return None
            by_key = self._hits[path] if settles else BitMap64()
            rows.append(taken.taken((deleted | by_key) - taken.deleted))
        return rows

    def _removed_by_sink(self, table: Table, branch: str) -> frozenset[str]:
        """The data files that commits of this sink have removed since: all their rows were deleted (P6)."""
        removed: dict[str, bool] = {}
        line = takewhile(lambda each: each.snapshot_id != self._planned, ancestors(table.metadata, branch))
        for snapshot in line:
            summary = summary_of(snapshot)
            is_own = COMMIT_ID in summary and self._key.offsets in summary
            for path in _removed_by(table, snapshot):
                removed.setdefault(path, is_own)
        return frozenset(path for path, is_own in removed.items() if is_own and path in self._inputs)

    def _settles(self, table: Table, live: LiveFiles) -> bool:
        """Whether equality deletes of the head become positions in this commit. The new files then have the head's
        sequence number, so that none of its equality deletes applies to them. Otherwise those that came since apply
        to them as they did to the inputs. That is not so if one is about a partition that rows leave or enter, or
        came before the inputs were read.
        """
        before, after = self._scopes(table)
        moves = before | after if before != after else frozenset()
        inputs = [data for path, data in self._inputs.items() if path in live.data]
        for delete in live.equality:
            scope = scope_of(table, delete.file)
            if delete.sequence > self._sequence:
                if scope in moves:
                    return True
            elif any(data.sequence < delete.sequence and scope in (None, place_of(data.candidate)) for data in inputs):
                return True
        return False

    def _scopes(self, table: Table) -> tuple[set[Scope], set[Scope]]:
        """The partitions of the inputs, and those of the outputs."""
        inputs = {place_of(data.candidate) for data in self._inputs.values()}
        return inputs, {place_of(candidate) for candidate in self._candidates(table).values()}

    @cached_property
    def _search(self) -> EqualitySearch:
        return self._new_search()

    def _look_for_keys(self, table: Table, live: LiveFiles) -> None:
        """Find the rows of the inputs that keys delete. Only deletes that are new are searched for."""
        keys = {key_of(delete.file): delete for delete in live.equality}
        if not self._searched <= keys.keys():  # rows of a delete that is gone may be back
            self._searched, self._hits = frozenset(), {path: BitMap64() for path in self._inputs}
        new = [delete for key, delete in keys.items() if key not in self._searched]
        inputs = [live.data[path] for path in self._inputs if path in live.data]
        for path, rows in self._search.rows(table, live.data, new, inputs).items():
            self._hits[path] |= rows
        self._searched = frozenset(keys)

    def _candidates(self, table: Table) -> Mapping[str, Candidate]:
        metadata = table.metadata
        return new_files([self._rewritten.outputs], metadata.specs(), partition_sources(metadata))

    def _replacement(
        self, table: Table, live: LiveFiles, dead: Mapping[str, BitMap64], sequence: int
    ) -> FileReplacement:
        candidates = self._candidates(table)
        outputs = [
            output for output in self._rewritten.outputs if len(dead.get(output.file_path, ())) < output.record_count
        ]
        deleted = [
            Deleted(candidates[output.file_path], dead[output.file_path])
            for output in outputs
            if output.file_path in dead
        ]
        gone = [live.data[path] for path in self._inputs if path in live.data]
        left = [data for data in live.data.values() if data.candidate.path not in self._inputs]
        added = [LiveData(candidates[output.file_path], sequence, "") for output in outputs]
        obsolete = list(_obsolete(table, live, [*left, *added]))
        return FileReplacement(
            tuple(outputs),
            self._deletes.of(table, deleted),
            frozenset((*((data.candidate.path, None) for data in gone), *(key_of(d.file) for d in obsolete))),
            frozenset((*(data.manifest for data in gone), *(delete.manifest for delete in obsolete))),
            sequence if table.metadata.format_version > 1 else None,
            sum(map(len, dead.values())),
        )


def _is_same(now: LiveData | None, then: LiveData) -> bool:
    """Whether a file is live as it was: with the same rows, and the same row ids."""
    return now is not None and (now.sequence, now.first_row_id) == (then.sequence, then.first_row_id)


def _removed_by(table: Table, snapshot: Snapshot) -> Iterator[str]:
    """The paths of the data files that a snapshot removed."""
    for manifest in read_manifest_list(table.io, snapshot.manifest_list):
        if manifest.added_snapshot_id != snapshot.snapshot_id or manifest.deleted_files_count == 0:
            continue
        for entry in read_all_entries(table.io, manifest):
            is_gone = entry.status is ManifestEntryStatus.DELETED and entry.snapshot_id == snapshot.snapshot_id
            if is_gone and entry.data_file.content == DataFileContent.DATA:
                yield entry.data_file.file_path


def _obsolete(table: Table, live: LiveFiles, data: Iterable[LiveData]) -> Iterator[LiveDelete]:
    """K5: the delete files that apply to none of the data files."""
    paths: set[str] = set()
    oldest: dict[Scope, int] = {}
    for each in data:
        paths.add(each.candidate.path)
        for scope in (None, place_of(each.candidate)):
            oldest[scope] = min(each.sequence, oldest.get(scope, each.sequence))
    for path, deletes in live.scoped.items():
        if path not in paths:
            yield from deletes
    for delete in live.equality:
        scope = scope_of(table, delete.file)
        if scope not in oldest or oldest[scope] >= delete.sequence:
            yield delete
    for delete in live.wide:
        scope = delete.partition
        if scope not in oldest or oldest[scope] > delete.sequence:
            yield delete
