"""Discards files that tables can never take, for example after a table was dropped or recreated (rule C4), or because
they are outside the table's location.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from uuid import UUID, uuid4

from pyiceberg.catalog import Catalog

from calving.backend.interface import Cursor, Session
from calving.errors import CommandFailedError, FencedError, OutcomeUnknownError
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.locations import FileRules
from calving.iceberg.parking import CatalogStorage, Parking
from calving.model.events import DataWritten, Envelope, Place, TableId
from calving.model.text import counted
from calving.protocol.buffer import Buffer
from calving.runtime import components
from calving.runtime.log_view import Replay
from calving.runtime.preflight import file_rules
from calving.settings.load import Sink

_TRIES = 8

Stale = Mapping[TableId, tuple[Envelope, ...]]


def release(sink: Sink, names: Collection[str], record: Path) -> Iterator[str]:
    """Discard the entries buffered for the former tables ``names``, and those with files outside a table's location.
    List their files in ``record``.

    Other entries for the present tables of these names, and for other tables, stay buffered, and the sink commits
    them. The sink may run: its coordinator steps down, and starts again later. The files themselves are not deleted.

    :raises CommandFailedError: there is no such entry, ``record`` exists already, or the sink's coordinator interfered
        again and again.
    """
    catalog = components.catalog(sink)
    session = components.backend(sink).open(str(uuid4()))
    try:
        released = _while_leading(catalog, session, [table_id(name) for name in names], record, file_rules(sink))
    finally:
        session.close()
    for table, entries in released.items():
        files, rows = _files(entries)
        lost = f"{counted(len(files), 'file')} with {counted(rows, 'row')}"
        yield f"discarded {lost} of table {'.'.join(table)}; {record} lists {'it' if len(files) == 1 else 'them'}"


def _while_leading(
    catalog: Catalog, session: Session, tables: Collection[TableId], record: Path, rules: FileRules
) -> Stale:
    """Run the release while no other process leads, from the first read entry to the entry of the release.

    Opening the log fences the sink's coordinator, which then pauses. If it comes back too early, it pauses longer each
    time. If it comes back while the release is written, the outcome may be unknown: the next attempt reads it from the
    log.
    """
    lists = Record(record)
    unknown: OutcomeUnknownError | None = None
    for _ in range(_TRIES):
        cursor = session.follow(replay=True)
        try:
            return discard(
                cursor=cursor,
                parking=Parking(CatalogStorage(catalog, rules)),
                tables=tables,
                commit_id=uuid4(),
                uuid_of=lambda table: _uuid(catalog, table),
                write_down=lists.write,
                outside=lambda table, paths: _outside(catalog, rules, table, paths),
                attempted=lists.entries if unknown else {},
            )
        except OutcomeUnknownError as error:
            unknown = error
        except FencedError:
            if unknown is None:
                lists.remove()
        except Exception as error:
            if unknown is None or isinstance(error, CommandFailedError):  # it lists what was not discarded
                lists.remove()
            raise
        finally:
            cursor.close()
    if unknown is not None:
        raise CommandFailedError(
            f"it is unknown whether anything was discarded ({unknown}): run it again with another record; if nothing"
            f" is buffered then, what {record} lists was discarded"
        ) from unknown
    raise CommandFailedError(
        f"nothing was discarded: the sink's coordinator came in between {_TRIES} times; stop all workers, and run it"
        " again"
    )


class Record:
    """The file that lists what one run discards. A file that is there already is neither replaced nor removed: it may
    be of another run.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._mine = path, False
        self.entries: Stale = {}

    def write(self, entries: Stale) -> None:
        """:raises CommandFailedError: the file is there already."""
        try:
            with self._path.open("w" if self._mine else "x") as file:
                file.write(json.dumps(_written_down(entries), indent=1))
        except FileExistsError as error:
            raise CommandFailedError(
                f"nothing was discarded: {self._path} is there already, and may list what was discarded before; name"
                " another file with --record"
            ) from error
        self._mine, self.entries = True, entries

    def remove(self) -> None:
        if self._mine:
            self._path.unlink(missing_ok=True)
            self._mine = False


def discard(
    cursor: Cursor,
    parking: Parking,
    tables: Collection[TableId],
    commit_id: UUID,
    uuid_of: Callable[[TableId], UUID | None],
    write_down: Callable[[Stale], object],
    outside: Callable[[TableId, Collection[str]], Collection[str]] = lambda _, paths: (),
    attempted: Stale = MappingProxyType({}),
) -> Stale:
    """Release the buffered and parked entries for former tables: those written before ``tables`` had the UUIDs
    ``uuid_of``; and those with files ``outside`` a table's location. Returns the entries.

    ``attempted``: what an attempt of unknown outcome wrote down. No commit takes entries for former tables out of the
    log, so those that are not there any more were released. They are among the returned entries.

    The release is in the log before any ledger includes the entries' offsets. A recovery before that reads their
    records again.

    :raises FencedError: another coordinator interfered; nothing was discarded.
    :raises CommandFailedError: there is nothing to discard.
    """
    replay = Replay.of(cursor)
    buffer = replay.buffer
    heard, now = buffer.tables(), {table: uuid_of(table) for table in tables}
    waiting = {table: _parked(buffer, parking, table) for table in tables}
    parked = {table: _stale(table, waiting[table], uuid, outside) for table, uuid in now.items()}
    buffered = {table: _stale(table, heard.get(table, ()), uuid, outside) for table, uuid in now.items()}
    stale = {table: (*parked[table], *buffered[table]) for table in tables}
    there = {*_places(itertools.chain(*heard.values())), *_places(itertools.chain(*waiting.values()))}
    released = {table: (*_without(attempted.get(table, ()), there), *stale[table]) for table in tables}
    if idle := [".".join(table) for table, entries in released.items() if not entries]:
        raise CommandFailedError(
            f"nothing was discarded: table {', '.join(idle)} can take all that is buffered for it; start the"
            " sink to commit it"
        )
    write_down(released)
    if not any(stale.values()):
        return released
    former = {table: buffer.parked[table] for table, entries in parked.items() if entries}
    for table, before in former.items():
        buffer.unpark(table, parking.without(table, before, _places(parked[table])))
    buffer.release(_places(itertools.chain(*buffered.values())))
    replay.complete(cursor, commit_id)
    for table, before in former.items():
        parking.served(table, before)
        parking.clear(table, buffer.parked.get(table))
    return released


def _parked(buffer: Buffer, parking: Parking, table: TableId) -> list[Envelope]:
    commits = buffer.parked.get(table)
    return [] if commits is None else [entry for commit in parking.commits(table, commits) for entry in commit.entries]


def _without(entries: Iterable[Envelope], places: Collection[Place]) -> list[Envelope]:
    return [entry for entry in entries if entry.place not in places]


def _places(entries: Iterable[Envelope]) -> set[Place]:
    return {entry.place for entry in entries}


def _uuid(catalog: Catalog, table: TableId) -> UUID | None:
    loaded = find_table(catalog, table)
    return None if loaded is None else loaded.metadata.table_uuid


def _outside(catalog: Catalog, rules: FileRules, table: TableId, paths: Collection[str]) -> Collection[str]:
    loaded = find_table(catalog, table)
    return () if loaded is None else rules.outside(loaded, paths)


def _stale(
    table: TableId,
    entries: Sequence[Envelope],
    current: UUID | None,
    outside: Callable[[TableId, Collection[str]], Collection[str]],
) -> tuple[Envelope, ...]:
    """Entries that were written for a former table, or name files outside the table; all entries if there is no table
    now.
    """
    refused = set(outside(table, _files(entries)[0]))

    def is_stale(entry: Envelope) -> bool:
        if not isinstance(entry.event, DataWritten):
            return False
        uuid = entry.event.table.table_uuid
        return current is None or (uuid is not None and uuid != current) or not refused.isdisjoint(_files([entry])[0])

    return tuple(entry for entry in entries if is_stale(entry))


def _files(entries: Collection[Envelope]) -> tuple[list[str], int]:
    files = [f for e in entries if isinstance(e.event, DataWritten) for f in e.event.files]
    return [file.file_path for file in files], sum(file.record_count for file in files)


def _written_down(released: Stale) -> dict[str, object]:
    tables = []
    for table, entries in released.items():
        files, rows = _files(entries)
        places = [e.place for e in entries]
        tables.append({"table": ".".join(table), "rows": rows, "files": files, "control_entries": places})
    return {
        "released_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rows": sum(_files(entries)[1] for entries in released.values()),
        "tables": tables,
    }
