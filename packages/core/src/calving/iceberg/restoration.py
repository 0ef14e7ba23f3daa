"""Finds the files to restore after a rollback, and refuses files that must not be restored (R10)."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate

from calving.errors import ConfigError
from calving.iceberg.history import ancestors, place_of, summary_of, taken_over
from calving.iceberg.locations import OWN_LOCATIONS, FileRules
from calving.iceberg.manifests import FIRST_ROW_ID, read_all_entries, read_entries, read_manifest_list
from calving.iceberg.schemas import unreadable
from calving.model.offsets import Coverage, text_of
from calving.model.text import counted
from calving.protocol.answers import AbandonedCommits, abandoned, way_forward
from calving.protocol.ledger import Ledger
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.recovery import has_later
from calving.protocol.replacement import restorable
from calving.protocol.restored import restored_entry
from calving.protocol.rollback import Ancestor, Line, source_of

_TOGETHER = 8
"""How many files are looked for at the same time: a storage may answer slowly."""


@dataclass(frozen=True, slots=True)
class Restoration:
    """What brings the records back: the branch goes ``forward`` to an abandoned snapshot, or gets the ``files`` of the
    abandoned ``commits`` again.

    ``taken_over``: the abandoned snapshots that have added these files. They leave the metadata in the same commit:
    when they expire, Iceberg before 1.10 deletes the files that they have added, although the head has them.
    """

    forward: Ancestor | None = None
    commits: AbandonedCommits = field(default_factory=AbandonedCommits)
    files: tuple[DataFile, ...] = ()
    taken_over: tuple[Ancestor, ...] = ()
    discarded: Coverage = field(default_factory=dict)
    """Offsets that stay away, because a replacement of the table has discarded their snapshots."""

    @property
    def summary(self) -> dict[str, str]:
        """The entry with which the snapshot that adds the files names those that it takes over."""
        return restored_entry(self.taken_over)

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """What the commit changes besides."""
        ids = [each.place.id for each in self.taken_over]
        return (RemoveSnapshotsUpdate(snapshot_ids=ids),) if ids else ()

    @property
    def rows(self) -> int:
        """The number of rows in the files."""
        return sum(file.record_count for file in self.files)


class Abandoned:
    """The snapshots of a table that a branch does not have, if ``target`` is its head."""

    def __init__(
        self, table: Table, key: LedgerKey, line: Line, target: Snapshot | None, rules: FileRules = OWN_LOCATIONS
    ) -> None:
        """``line``: the branch from ``target`` on. ``rules``: where files of the table may be."""
        self._table, self._key, self._line, self._target, self._rules = table, key, line, target, rules
        self._name = ".".join(table.name())

    def restoration(self, ledger: Ledger, *, changes_rows: bool) -> Restoration:
        """What brings back the records that the ``ledger`` lacks. ``changes_rows``: the sink updates or deletes rows of
        the table, so the removed changes cannot come after others.

        :raises ConfigError: they cannot come back; the text says why, and what is left to do.
        """
        self._mind_branch()
        ledger, discarded = restorable(self._key, self._table.metadata.properties, ledger)
        if discarded and not ledger.unanswered:
            raise ConfigError(
                f"table {self._name}: the table was replaced (CREATE OR REPLACE TABLE), and that has discarded the"
                f" snapshots with {text_of(discarded)}, so nobody knows their files; what is left is `reread` or"
                " `forget`"
            )
        way = way_forward(self._key, self._line, self._snapshots, ledger, self._table.metadata.properties)
        if way and (changes_rows or all(self._key.own((each,)) is not None for each in way)):
            apart = list(self._only_in(way[0]))
            self._mind_places(apart)
            self._mind_schemas(way)
            self._mind_other_writers(way, {file.file_path for file in apart} - self._live(), forward=True)
            return Restoration(forward=way[0], discarded=discarded)
        if changes_rows:
            raise ConfigError(
                f"table {self._name} has snapshots from after the rollback, or those from before it have expired: the"
                " removed changes cannot be put beneath later ones; what is left is"
                f" {'`forget`' if has_later(ledger) else '`reread` or `forget`'}"
            )
        commits = abandoned(self._key, self._line, self._snapshots, ledger)
        if commits.left:
            raise ConfigError(
                f"table {self._name}: snapshots of this sink have expired, so nobody knows the files of"
                f" {text_of(commits.left)}; what is left is `reread` or `forget`"
            )
        self._mind_operations(commits.snapshots)
        self._mind_schemas(commits.snapshots)
        files = self._added_by(commits)
        self._mind_places(files)
        self._mind_other_writers(commits.snapshots, {file.file_path for file in files})
        self._mind_files(files)
        adders = tuple(self._adders({file.file_path for file in files}))
        return Restoration(commits=commits, files=files, taken_over=adders, discarded=discarded)

    def _mind_branch(self) -> None:
        """:raises ConfigError: somebody has dropped the branch. Only whoever did so knows on what it is to be built."""
        metadata, branch = self._table.metadata, self._key.branch
        if branch in metadata.refs or branch == MAIN_BRANCH:
            return
        last = self._key.last_commit(metadata.properties)
        at = f"snapshot {last.id}" if last is not None else "the snapshot that it had last"
        raise ConfigError(
            f"table {self._name} has no branch {branch}: to have all that was in it, create it again at {at}; what is"
            " left is `reread` or `forget`"
        )

    @cached_property
    def _snapshots(self) -> Sequence[Ancestor]:
        """Oldest first."""
        kept = {each.place.id for each in self._line.snapshots}
        apart = [each for each in self._table.metadata.snapshots if each.snapshot_id not in kept]
        apart.sort(key=lambda each: (each.sequence_number or 0, each.timestamp_ms))
        return [Ancestor(place_of(each), each.parent_snapshot_id, summary_of(each)) for each in apart]

    def _added_by(self, commits: AbandonedCommits) -> tuple[DataFile, ...]:
        files = {}
        for snapshot in commits.snapshots:
            for added in self._files_of(snapshot, ManifestEntryStatus.ADDED):
                file = copy.deepcopy(added)
                if len(file._data) > FIRST_ROW_ID:
                    file._data[FIRST_ROW_ID] = None  # its rows get new ids
                files[file.file_path] = file
        return tuple(files.values())

    def _adders(self, paths: Set[str]) -> Iterator[Ancestor]:
        """The abandoned snapshots that have added one of these files, except those that another branch or a tag has."""
        metadata, branch = self._table.metadata, self._key.branch
        kept = {each.snapshot_id for name in metadata.refs if name != branch for each in ancestors(metadata, name)}
        for snapshot in self._snapshots:
            is_pick = source_of(snapshot) is not None
            if snapshot.place.id not in kept and (is_pick or self._key.own((snapshot,)) is not None):
                added = (file.file_path for file in self._files_of(snapshot, ManifestEntryStatus.ADDED))
                if not paths.isdisjoint(added):
                    yield snapshot

    def _mind_places(self, files: Iterable[DataFile]) -> None:
        """:raises ConfigError: a file is not the table's: whoever may add a snapshot may name any file in it."""
        files, specs = list(files), self._table.metadata.specs()
        outside = self._rules.outside(self._table, (file.file_path for file in files))
        outside += [file.file_path for file in files if file.spec_id not in specs]
        if outside:
            raise ConfigError(
                f"table {self._name}: the abandoned snapshots name {counted(len(outside), 'file')} outside the table's"
                f" location, or of a partition spec that it does not have, such as {outside[0]}: they must not come"
                " back; what is left is `reread` or `forget`"
            )

    def _mind_operations(self, restored: Iterable[Ancestor]) -> None:
        """:raises ConfigError: the sink changed rows at that time, as other settings told it to: files alone would
        bring back rows that it had replaced.
        """
        for snapshot in restored:
            if self._operation(snapshot) is not Operation.APPEND:
                raise ConfigError(
                    f"table {self._name}: snapshot {snapshot.place.id} of this sink did not only append, so its files"
                    " must not come back alone; what is left is `reread` or `forget`"
                )

    def _mind_schemas(self, restored: Iterable[Ancestor]) -> None:
        """:raises ConfigError: nobody could read the table, because the schema of the snapshots does not fit that of
        now: CREATE OR REPLACE TABLE gives a column of the same name the same id, whatever its type.
        """
        metadata, now = self._table.metadata, self._table.schema()
        known = {schema.schema_id: schema for schema in metadata.schemas}
        for snapshot in restored:
            found = metadata.snapshot_by_id(snapshot.place.id)
            then = known.get(found.schema_id) if found is not None and found.schema_id is not None else None
            if then is not None and (column := unreadable(then, now)) is not None:
                raise ConfigError(
                    f"table {self._name}: snapshot {snapshot.place.id} has files without column {column} as it is now,"
                    " so nobody could read the table with them; what is left is `reread` or `forget`"
                )

    def _only_in(self, snapshot: Ancestor) -> Iterator[DataFile]:
        """The files, also of deletes, of a snapshot that the branch does not share with it."""
        found = self._table.metadata.snapshot_by_id(snapshot.place.id)
        io, target = self._table.io, self._target
        shared = (
            {m.manifest_path for m in read_manifest_list(io, target.manifest_list)} if target is not None else set()
        )
        for manifest in read_manifest_list(io, found.manifest_list) if found is not None else ():
            if manifest.manifest_path not in shared:
                for entry in read_entries(io, manifest):
                    yield entry.data_file

    def _mind_other_writers(self, restored: Collection[Ancestor], paths: set[str], *, forward: bool = False) -> None:
        """``paths``: of the files that the ``restored`` snapshots have added. ``forward``: the branch goes forward to
        the newest of them, so a compaction above it, which changes no row, does no harm.

        :raises ConfigError: another writer has deleted rows of the files, or replaced them, or may have.
        """
        paths = set(paths)
        for snapshot in self._built_on(restored):
            if self._key.own((snapshot,)) is not None:
                continue
            removed = {file.file_path for file in self._files_of(snapshot, ManifestEntryStatus.DELETED)} & paths
            if forward and self._operation(snapshot) is Operation.REPLACE:
                if removed:  # their rows are in these files now
                    paths |= {file.file_path for file in self._files_of(snapshot, ManifestEntryStatus.ADDED)}
                continue
            why = ""
            if any(manifest.content == ManifestContent.DELETES for manifest in self._manifests_of(snapshot)):
                why = "has deleted rows after them"
            if removed:
                why = f"has deleted or replaced {len(removed)} of these files"
            if why:
                raise ConfigError(
                    f"table {self._name}: snapshot {snapshot.place.id}, of another writer, {why}, so they must not come"
                    " back; what is left is `reread` or `forget`"
                )
        self._mind_expired(restored)

    def _mind_expired(self, restored: Collection[Ancestor]) -> None:
        """:raises ConfigError: a snapshot that came after the oldest of these has expired: its sequence number is
        missing. Nobody knows what it did. Format version 1 has no such numbers.
        """
        metadata, oldest = self._table.metadata, min(restored, key=lambda each: each.place.number, default=None)
        if metadata.format_version == 1 or oldest is None:
            return
        there = {each.sequence_number for each in metadata.snapshots}
        there |= {each.place.number for each in taken_over(metadata)}
        missing = sum(n not in there for n in range(oldest.place.number + 1, metadata.last_sequence_number + 1))
        if missing:
            raise ConfigError(
                f"table {self._name}: {counted(missing, 'snapshot has', 'snapshots have')} expired that came after"
                f" snapshot {oldest.place.id}, and may have deleted rows of its files, so they must not come back; what"
                " is left is `reread` or `forget`"
            )

    def _built_on(self, restored: Collection[Ancestor]) -> Iterator[Ancestor]:
        """The abandoned snapshots above these, each after the one below it, whatever the clocks of their writers say.
        One whose parent has expired may be built on any of these.
        """
        known = {each.place.id for each in (*self._snapshots, *self._line.snapshots)}
        seen = {each.place.id for each in restored}
        above: dict[int, list[Ancestor]] = {}
        left = deque[Ancestor]()
        for each in self._snapshots:
            if each.parent in known:
                above.setdefault(each.parent, []).append(each)
            else:
                left.append(each)
        left.extend(each for parent in seen for each in above.get(parent, ()))
        while left:
            snapshot = left.popleft()
            if snapshot.place.id not in seen:
                seen.add(snapshot.place.id)
                yield snapshot
                left.extend(above.get(snapshot.place.id, ()))

    def _operation(self, snapshot: Ancestor) -> Operation | None:
        found = self._table.metadata.snapshot_by_id(snapshot.place.id)
        return found.summary.operation if found is not None and found.summary is not None else None

    def _mind_files(self, files: Sequence[DataFile]) -> None:
        """:raises ConfigError: a file is in the table, or not in the storage."""
        if there := {file.file_path for file in files} & self._live():
            raise ConfigError(
                f"table {self._name} has {counted(len(there), 'of these files', 'of these files')} already, such as"
                f" {min(there)}; what is left is `forget`"
            )
        io = self._table.io
        with ThreadPoolExecutor(_TOGETHER) as pool:
            exist = list(pool.map(lambda file: io.new_input(file.file_path).exists(), files))
        missing = sorted(file.file_path for file, is_there in zip(files, exist, strict=True) if not is_there)
        if missing:
            raise ConfigError(
                f"table {self._name}: {len(missing)} of {counted(len(files), 'file')} are gone from storage, such as"
                f" {missing[0]}; what is left is `reread` or `forget`"
            )

    def _manifests_of(self, snapshot: Ancestor) -> list[ManifestFile]:
        """The manifests that a snapshot has made."""
        found = self._table.metadata.snapshot_by_id(snapshot.place.id)
        every = read_manifest_list(self._table.io, found.manifest_list) if found is not None else []
        return [manifest for manifest in every if manifest.added_snapshot_id == snapshot.place.id]

    def _files_of(self, snapshot: Ancestor, status: ManifestEntryStatus) -> Iterator[DataFile]:
        """The data files that a snapshot has added or deleted."""
        for manifest in self._manifests_of(snapshot):
            if manifest.content == ManifestContent.DATA:
                for entry in read_all_entries(self._table.io, manifest):
                    if entry.status is status and entry.snapshot_id == snapshot.place.id:
                        yield entry.data_file

    def _live(self) -> set[str]:
        """The paths of the files that the branch has."""
        target, io = self._target, self._table.io
        manifests = read_manifest_list(io, target.manifest_list) if target is not None else []
        with ThreadPoolExecutor(_TOGETHER) as pool:
            every = pool.map(lambda manifest: read_entries(io, manifest), manifests)
            return {entry.data_file.file_path for entries in every for entry in entries}
