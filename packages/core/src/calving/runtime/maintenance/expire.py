"""Expires the snapshots of a sink's tables, and deletes the files that only they named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from uuid import uuid4

from pyiceberg.table.metadata import TableMetadata

from calving.backend.interface import Session
from calving.backend.sessions import read_to_end
from calving.errors import CalvingError, ConfigError, TableTroubleError
from calving.iceberg.catalog import table_id
from calving.iceberg.parking import CatalogStorage, Parking
from calving.maintenance.expirer import ExpiredSnapshots, Expirer, FileDeletion
from calving.maintenance.orphans import owners
from calving.model.events import DataWritten, Envelope
from calving.model.files import one_name
from calving.model.text import bytes_text, counted, listed
from calving.protocol.buffer import Buffer
from calving.runtime import components
from calving.runtime.maintenance.means import Means
from calving.runtime.maintenance.step import MaintenanceStep, committing
from calving.runtime.preflight import file_rules, ledger_key, owner_of
from calving.settings.backfills import backfills_among
from calving.settings.load import Sink

EXPIRE = "expire"


class ControlLogs:
    """The files that the control logs of some sinks name. The logs are read once, when a file may be deleted."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._files: frozenset[str] | None = None
        self._of_backfills: dict[str, frozenset[str]] = {}

    def files(self, metadata: TableMetadata) -> frozenset[str]:
        """The files that no task may delete, as ``one_name``.

        :raises ConfigError: another sink writes the table, too.
        :raises CalvingError: a control log cannot be read.
        """
        every = owners(metadata)
        backfills = {owner_of(sink): sink for sink in backfills_among(self._sinks, every)}
        others = every - {owner_of(sink) for sink in self._sinks} - backfills.keys()
        if others:
            raise ConfigError(
                f"the table is also written by sink {listed(sorted(others))}, whose buffered files only its control"
                " log names: give its file with --other-sink"
            )
        if self._files is None:
            self._files = frozenset().union(*map(_files_of_log, self._sinks))
        for owner in backfills.keys() - self._of_backfills.keys():
            self._of_backfills[owner] = _files_of_log(backfills[owner])
        return self._files.union(*(self._of_backfills[owner] for owner in backfills))


def _files_of_log(sink: Sink) -> frozenset[str]:
    parking = Parking(CatalogStorage(components.catalog(sink), file_rules(sink)))
    with closing(components.backend(sink).open(str(uuid4()))) as session:
        return files_of_log(session, parking)


def expired(
    means: Means, sink: Sink, name: str, now_ms: int, logs: ControlLogs, *, dry_run: bool
) -> Iterator[MaintenanceStep]:
    """Delete the files of one table whose grace is over, and expire the snapshots that are due; yields what was done.

    :raises CommandFailedError: others have committed too fast.
    """
    key = ledger_key(sink, "", name)
    expirer = Expirer(
        catalog=means.catalog,
        table=table_id(name),
        key=key,
        grace_ms=int(sink.maintenance(name, "grace_ms")),
        rules=file_rules(sink),
        turn=means.turn(table_id(name)),
    )
    if (table := expirer.load()) is None:
        yield _step(name, "nothing", "no snapshots to expire")
        return
    if (why := expirer.refusal(table)) is not None:
        yield _step(name, "left alone", f"no snapshot expires: {why}")
        return
    if dry_run:
        plan = expirer.plan(table, now_ms)
        snapshots = plan.snapshots if plan is not None else ()
        kept = len(table.metadata.snapshots) - len(snapshots)
        gone = ExpiredSnapshots(snapshots, kept, plan.unnamed.left) if plan is not None else None
    else:
        with committing(name):
            gone = expirer.expire(now_ms)
    yield _of_snapshots(name, gone, now_ms + int(sink.maintenance(name, "grace_ms")), dry_run=dry_run)
    yield from _deletion(name, expirer, now_ms, logs, dry_run=dry_run)


def _of_snapshots(name: str, gone: ExpiredSnapshots | None, until_ms: int, *, dry_run: bool) -> MaintenanceStep:
    if gone is None:
        return _step(name, "nothing", "no snapshots to expire")
    size = sum(gone.files.values())
    newest = max(snapshot.timestamp_ms for snapshot in gone.snapshots)
    many, stay = counted(len(gone.snapshots), "snapshot"), counted(gone.kept, "other")
    text = f"{many} up to {_time(newest)} {'would expire' if dry_run else 'expired'}, {stay} stay"
    if gone.files:
        text += f"; {counted(len(gone.files), 'file')} ({bytes_text(size)}) that only they name"
        text += f" {'would' if dry_run else 'will'} be deleted after {_time(until_ms)}"
    numbers = {
        "snapshots": len(gone.snapshots),
        "snapshots_left": gone.kept,
        "files": len(gone.files),
        "bytes": size,
        "delete_after_ms": until_ms,
    }
    return _step(name, "planned" if dry_run else "done", text, **numbers)


def _deletion(
    name: str, expirer: Expirer, now_ms: int, logs: ControlLogs, *, dry_run: bool
) -> Iterator[MaintenanceStep]:
    try:
        done = expirer.delete(now_ms, logs.files, dry_run=dry_run)
    except CalvingError as error:
        yield _step(name, "failed", f"no file of an expired snapshot is deleted: {error}")
        return
    if done is not None:
        yield from _of_files(name, done, dry_run=dry_run)


def _of_files(name: str, done: FileDeletion, *, dry_run: bool) -> Iterator[MaintenanceStep]:
    size = sum(done.deleted.values())
    numbers = {"files": len(done.deleted), "bytes": size}
    verb = "would be deleted" if dry_run else "deleted"
    if done.deleted:
        text = f"{counted(len(done.deleted), 'file')} ({bytes_text(size)}) of expired snapshots {verb}"
        yield _step(name, "planned" if dry_run else "done", text, **numbers)
    if done.held:
        them = "it" if len(done.held) == 1 else "them"
        text = f"{counted(len(done.held), 'file')} of expired snapshots kept: the control log names {them}"
        yield _step(name, "nothing", text, files=len(done.held))
    if done.outside:
        what = counted(len(done.outside), "file")
        text = f"{what} of expired snapshots kept, outside the table's folders: {listed(done.outside)}"
        yield _step(name, "left alone", text, files=len(done.outside))
    if done.failed:
        path, why = done.failed[0]
        text = f"{counted(len(done.failed), 'file')} of expired snapshots could not be deleted: {path}: {why}"
        yield _step(name, "failed", text, files=len(done.failed))
    if done.next_ms is not None and not done.deleted:
        text = f"{counted(done.waiting, 'file')} of expired snapshots wait until {_time(done.next_ms)} or later"
        yield _step(name, "nothing", text, files=done.waiting, delete_after_ms=done.next_ms)


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _step(name: str, outcome: str, text: str, **numbers: object) -> MaintenanceStep:
    return MaintenanceStep(name, EXPIRE, outcome, text, numbers)


def files_of_log(session: Session, parking: Parking) -> frozenset[str]:
    """The files that a control log names from the saved position to its end, each as ``one_name``. Those of
    publications that have not ended are among them, and those of parked commits, and these files themselves.

    :raises UnavailableError: the store gives no answer.
    :raises TableTroubleError: an entry or a parked commit cannot be read, so it is unknown what it names.
    """
    with closing(session.watch()) as cursor:
        start, files = cursor.log.start, set[str]()
        buffer = Buffer(start)
        for entry in read_to_end(cursor):
            if entry.offset >= start.get(entry.partition, 0):
                files |= _files_of(entry)
                buffer.hear(entry)
        if cursor.unreadable:
            raise TableTroubleError(cursor.unreadable[-1])
    for table, parked in buffer.parked.items():
        for commit in parking.commits(table, parked):
            files |= {one_name(location) for location in commit.files}
            files = files.union(*map(_files_of, commit.entries))
    return frozenset(files)


def _files_of(entry: Envelope) -> set[str]:
    event = entry.event
    return {one_name(file.file_path) for file in event.files} if isinstance(event, DataWritten) else set()
