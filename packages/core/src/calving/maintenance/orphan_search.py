"""Searches a table's folders for orphan files, and deletes them (K16, K17).

The order makes it safe beside running sinks: first a part of the files is listed; then the control logs are read to
their ends; then the table is loaded. A file that a log named and a commit has taken since is in the table by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from calving.backend.interface import Session
from calving.backend.sessions import read_to_end
from calving.errors import CalvingError, TableTroubleError
from calving.iceberg.catalog import find_table
from calving.iceberg.locations import FileRules
from calving.iceberg.manifests import read_all_entries, read_manifest_list
from calving.iceberg.parking import CatalogStorage, Parking
from calving.maintenance.expired_files import EXPIRED_FILES, lists
from calving.maintenance.listing import modified_ms, stored_files
from calving.maintenance.orphans import HOUR_MS, NamedFiles, OrphanRule, StoredFile, folders, unread_names
from calving.model.events import DataWritten, Envelope, Parked, TableId
from calving.model.files import is_below_any
from calving.model.text import counted
from calving.protocol.buffer import Buffer
from calving.storage_errors import described

T = TypeVar("T")
AT_ONCE = 100_000
"""How many possible orphan files are kept in memory: after so many the logs and the table are read again."""
_TRIES = 3
_TOGETHER = 16
"""How many files are read, or deleted, in parallel."""


@dataclass(frozen=True, slots=True)
class DeletedFiles:
    """What became of orphan files. ``failure``: the first error of those that could not be deleted."""

    count: int
    size: int
    failed: int
    failure: str = ""


class OrphanSearch:
    """The search in one table. It looks at each file once."""

    def __init__(
        self,
        catalog: Catalog,
        table: TableId,
        rules: FileRules,
        sessions: Mapping[str, Session],
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
        at_once: int = AT_ONCE,
    ) -> None:
        """``sessions``: one for the control log of each sink that writes the table, by ``<control topic>.<group>``.
        ``clock``: the time in milliseconds since the epoch.
        """
        self._catalog, self._table, self._rules, self._sessions = catalog, table, rules, sessions
        self._clock, self._at_once = clock, at_once
        self._named = NamedFiles()
        self._read: set[str] = set()
        self.looked_at = 0
        """How many files were listed."""

    def check_clock(self, table: Table) -> None:
        """Write a file, and delete it again, to compare the storage's clock with this machine's.

        :raises TableTroubleError: they differ by more than an hour.
        """
        path = table.location_provider().new_metadata_location(f"calving-clock-{uuid4().hex}")
        try:
            with table.io.new_output(path).create() as out:
                out.write(b"clock")
            told = modified_ms(table.io, path)
        finally:
            with suppress(Exception):  # it is an orphan file then
                table.io.delete(path)
        if told is not None and abs(told - self._clock()) > HOUR_MS:
            minutes = abs(told - self._clock()) // 60_000
            raise TableTroubleError(
                f"the clocks of its storage and of this machine differ by {counted(minutes, 'minute')}, so the age of"
                " files is unknown: correct the clock that is wrong"
            )

    def orphans(self, older_than_ms: int, now_ms: int) -> Iterator[list[StoredFile]]:
        """The orphan files that were changed so many milliseconds before ``now_ms``, in parts. Each part may be deleted
        as soon as it comes.

        :raises TableTroubleError: not everything that may name files can be read.
        :raises CalvingError: a control log, or the catalog, cannot be read.
        """
        table = self._load()
        self._note(table)
        rule = OrphanRule.of(table.metadata, now_ms, older_than_ms)
        for part in _parts(self._possible(table, rule), self._at_once):
            self._note_logs(table.metadata)
            yield [file for file in part if file.path not in self._named]

    def _possible(self, table: Table, rule: OrphanRule) -> Iterator[StoredFile]:
        for folder in folders(table.metadata, self._rules):
            try:
                for file in stored_files(table.io, folder):
                    self.looked_at += 1
                    if rule.holds(file, folder, self._named):
                        yield file
            except CalvingError:
                raise
            except Exception as error:  # a storage may raise anything
                raise TableTroubleError(f"its folder {folder} cannot be listed: {described(error)}") from error

    def _note_logs(self, metadata: TableMetadata) -> None:
        """Note what the control logs name, and then what the table names now."""
        where, logs = folders(metadata, self._rules), {}
        for owner, session in self._sessions.items():
            for is_last in (number == _TRIES - 1 for number in range(_TRIES)):
                try:
                    logs[owner] = self._note_log(session, where)
                    break
                except TableTroubleError:  # parked commits may have landed since the log was read
                    if is_last:
                        raise
        table = self._load()
        self._note(table)
        if (why := unread_names(table.metadata, logs)) is not None:
            raise TableTroubleError(why)

    def _note_log(self, session: Session, where: Collection[str]) -> str:
        """Note the files that a control log names, for whatever table: one may have been renamed. Returns the log's
        identity.
        """
        with closing(session.watch()) as cursor:
            buffer = Buffer(cursor.log.start)
            for entry in read_to_end(cursor):
                self._named.add(_files_of([entry]))
                if entry.offset >= cursor.log.start.get(entry.partition, 0):
                    buffer.hear(entry)
            if unread := (*cursor.unreadable, *filter(None, [cursor.unsigned])):
                raise TableTroubleError(f"it is unknown which files an entry of the control log names: {unread[0]}")
        for identifier, parked in buffer.parked.items():
            if identifier == self._table or is_below_any(parked.last, where):
                self._note_parked(identifier, parked)
        return cursor.log.identity

    def _note_parked(self, table: TableId, parked: Parked) -> None:
        """Note the files of parked commits, and the files that these name."""
        try:
            for commit in Parking(CatalogStorage(self._catalog, self._rules)).commits(table, parked):
                self._named.add(commit.files)
                self._named.add(_files_of(commit.entries))
        except CalvingError:
            raise
        except Exception as error:  # a storage may raise anything
            raise TableTroubleError(
                f"it is unknown which files its parked commits name, because {parked.last}, or a file before it, cannot"
                f" be read: {described(error)}"
            ) from error

    def _load(self) -> Table:
        table = find_table(self._catalog, self._table)
        if table is None:
            raise TableTroubleError("it was dropped meanwhile")
        return table

    def _note(self, table: Table) -> None:
        """Note the files that the table names. Manifests never change, so each is read once."""
        for _ in range(_TRIES):
            try:
                self._note_metadata(table.io, table.metadata_location, table.metadata)
                self._note_lists(table)
                return
            except TableTroubleError:
                # Snapshots may have expired meanwhile, and their files were deleted.
                before, table = table, self._load()
                if table.metadata_location == before.metadata_location:
                    raise
        raise TableTroubleError("its snapshots expire faster than they can be read: run the task again")

    def _note_metadata(self, io: FileIO, location: str, metadata: TableMetadata) -> None:
        self._named.add([location, *(entry.metadata_file for entry in metadata.metadata_log)])
        statistics = (*metadata.statistics, *metadata.partition_statistics)
        self._named.add(file.statistics_path for file in statistics)
        new = [snapshot.manifest_list for snapshot in metadata.snapshots if snapshot.manifest_list not in self._read]
        with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="calving-orphans") as pool:
            manifests: dict[str, ManifestFile] = {}
            for manifest_list, listed in zip(new, pool.map(lambda path: _listed(io, path), new), strict=True):
                self._named.add([manifest_list])
                manifests |= {each.manifest_path: each for each in listed if each.manifest_path not in self._read}
            for together in _parts(manifests.values(), _TOGETHER):
                for paths in pool.map(lambda manifest: _entries(io, manifest), together):
                    self._named.add(paths)
        self._named.add(manifests)
        self._read.update(manifests, new)

    def _note_lists(self, table: Table) -> None:
        """Note the files that readers of expired snapshots may need, and the lists of them (K15)."""
        for name in table.metadata.properties:
            if name.startswith(f"{EXPIRED_FILES}."):
                for expired in lists(table, name, self._rules):
                    self._named.add([expired.location, *expired.files])


def _parts(items: Iterable[T], count: int) -> Iterator[list[T]]:
    left = iter(items)
    while part := list(islice(left, count)):
        yield part


def _listed(io: FileIO, path: str) -> list[ManifestFile]:
    try:
        return read_manifest_list(io, path)
    except Exception as error:  # a storage may raise anything
        raise _unreadable("manifest list", path, error) from error


def _entries(io: FileIO, manifest: ManifestFile) -> list[str]:
    """The files of a manifest. Those that its snapshot removed count, too: who reads the changes of a snapshot reads
    them.
    """
    try:
        return [entry.data_file.file_path for entry in read_all_entries(io, manifest)]
    except Exception as error:  # a storage may raise anything
        raise _unreadable("manifest", manifest.manifest_path, error) from error


def _unreadable(kind: str, path: str, error: Exception) -> TableTroubleError:
    return TableTroubleError(
        f"it is unknown which files its {kind} {path} names, because it cannot be read: {described(error)}"
    )


def _files_of(entries: Iterable[Envelope]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry.event, DataWritten):
            yield from (file.file_path for file in entry.event.files)


def delete(io: FileIO, files: Collection[StoredFile]) -> DeletedFiles:
    """Delete orphan files."""

    def error_of(file: StoredFile) -> Exception | None:
        try:
            io.delete(file.path)
        except FileNotFoundError:  # somebody else was faster
            return None
        except Exception as error:  # a storage may raise anything
            return error
        return None

    with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="calving-orphans") as pool:
        errors = list(pool.map(error_of, files))
    failures = [error for error in errors if error is not None]
    size = sum(file.size for file, error in zip(files, errors, strict=True) if error is None)
    failure = described(failures[0]) if failures else ""
    return DeletedFiles(len(errors) - len(failures), size, len(failures), failure)
