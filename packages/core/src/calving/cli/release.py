"""Discards files that tables can never take, as after they were dropped or recreated (rule C4)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from uuid import UUID, uuid4

from pyiceberg.catalog import Catalog

from calving.backend.interface import Cursor, Session
from calving.errors import CalvingError, Fenced
from calving.iceberg.attempts import Attempts
from calving.iceberg.catalog import find_table, open_catalog, table_id
from calving.iceberg.commit import IcebergCommitter
from calving.iceberg.parking import CatalogStorage, Parking
from calving.model.events import CommitComplete, DataWritten, Envelope, TableId
from calving.protocol.buffer import Buffer
from calving.protocol.coordinator import Committed
from calving.protocol.effects import CommitTables
from calving.protocol.marks import Marks
from calving.runtime.coordinator import Committer
from calving.runtime.heard import read_to_end
from calving.runtime.preflight import commit_style
from calving.settings.load import Sink

_TRIES = 8

Stale = Mapping[TableId, tuple[Envelope, ...]]


def release(sink: Sink, names: Collection[str], record: Path) -> Iterator[str]:
    """Discard what is buffered for tables ``names`` as they were before, and write to ``record`` what that was.

    What is buffered for a table as it is now, and for others, is committed first. The sink may run: its coordinator
    steps down, and starts again later. The files themselves stay where they are.

    :raises CalvingError: nothing is buffered that a table cannot take, another table cannot take its files, or the
        sink's coordinator came in between again and again.
    """
    catalog = open_catalog(sink.keys.catalog_name, sink.catalog)
    session = sink.backend(sink.identity, sink.backend_settings).open(str(uuid4()))
    try:
        released = _while_leading(sink, catalog, session, [table_id(name) for name in names], record)
    finally:
        session.close()
    for table, entries in released.items():
        files, rows = _files(entries)
        yield f"discarded {len(files)} files with {rows} rows of table {'.'.join(table)}; they are listed in {record}"


def _while_leading(sink: Sink, catalog: Catalog, session: Session, tables: Collection[TableId], record: Path) -> Stale:
    """Nobody else may have led from the first entry that was read until the position is saved.

    To open the log fences the sink's coordinator, and it pauses. Where it comes back too early, all that takes long is
    done by then, and it pauses longer each time.
    """
    for _ in range(_TRIES):
        cursor = session.follow(replay=True)
        try:
            style = commit_style(sink, cursor.log.identity)
            attempts = Attempts(sink.keys.commit_threads, sink.keys.table_timeout_ms / 1000)
            committer = IcebergCommitter(catalog, sink.keys.catalog_name, style, attempts)
            return discard(
                cursor,
                committer,
                Parking(CatalogStorage(catalog)),
                tables,
                uuid4(),
                lambda table: _uuid(catalog, table),
                lambda released: record.write_text(json.dumps(_written_down(released), indent=1)),
            )
        except Fenced:
            record.unlink(missing_ok=True)
        finally:
            cursor.close()
    raise CalvingError(
        f"nothing was discarded: the sink's coordinator came in between {_TRIES} times; stop all workers, and run it"
        " again"
    )


def discard(
    cursor: Cursor,
    committer: Committer,
    parking: Parking,
    tables: Collection[TableId],
    commit_id: UUID,
    uuid_of: Callable[[TableId], UUID | None],
    write_down: Callable[[Stale], object],
) -> Stale:
    """Commit what is buffered, but what was written for ``tables`` as they were before ``uuid_of``; the latter.

    :raises Fenced: a coordinator came in between; nothing was discarded.
    :raises CalvingError: there is nothing to discard, or something else cannot be committed; nothing was discarded.
    """
    buffer, marks = Buffer(cursor.log.start), Marks()
    for entry in read_to_end(cursor):
        buffer.hear(entry)
        for table, mark in entry.marks.items():
            marks.note(table, mark)
    parked = dict(buffer.parked)
    for table, found in parked.items():
        buffer.unpark(table, [entry for commit in parking.commits(table, found) for entry in commit.entries])
    stale = {table: _stale(entries, uuid_of(table)) for table, entries in buffer.tables().items()}
    released = {table: stale[table] for table in tables if stale.get(table)}
    if idle := [".".join(table) for table in tables if table not in released]:
        raise CalvingError(f"nothing is buffered that table {', '.join(idle)} cannot take")
    for table, entries in released.items():
        buffer.discard(table, entries)
    request = CommitTables(commit_id, buffer.tables(), buffer.whole(), buffer.reach(), None, marks.known)
    failed: dict[TableId, str] = {}
    outcomes = list(committer.commit(request))
    for table, outcome in outcomes:
        if isinstance(outcome, Committed):
            buffer.settle(table, request.read)
            if outcome.mark is not None:
                marks.note(table, outcome.mark)
        else:
            failed[table] = outcome.reason
    if failed:
        raise CalvingError(_refusal(failed, {*released, *(table for table in failed if stale.get(table))}))
    write_down(released)
    cursor.acknowledge(buffer.position(), (CommitComplete(commit_id),), buffer.settled(), marks.known)
    for table, found in parked.items():
        parking.served(table, found)
        parking.clear(table, None)
    return released


def _uuid(catalog: Catalog, table: TableId) -> UUID | None:
    found = find_table(catalog, table)
    return None if found is None else found.metadata.table_uuid


def _stale(entries: tuple[Envelope, ...], current: UUID | None) -> tuple[Envelope, ...]:
    """Entries that were written for the table as it was before; all of them if there is none."""

    def is_stale(entry: Envelope) -> bool:
        if not isinstance(entry.event, DataWritten):
            return False
        uuid = entry.event.table.table_uuid
        return current is None or (uuid is not None and uuid != current)

    return tuple(entry for entry in entries if is_stale(entry))


def _refusal(failed: Mapping[TableId, str], releasable: Collection[TableId]) -> str:
    reasons = "; ".join(f"table {'.'.join(table)}: {reason}" for table, reason in failed.items())
    options = " ".join(f"--table {'.'.join(table)}" for table in sorted(releasable))
    return (
        f"nothing was discarded, because other tables have files that cannot be committed: {reasons}; put them right,"
        f" or discard what they can never take, too: `calving release FILE {options} --record OUT`"
    )


def _files(entries: Collection[Envelope]) -> tuple[list[str], int]:
    found = [
        f for e in entries if isinstance(e.event, DataWritten) for f in (*e.event.data_files, *e.event.delete_files)
    ]
    return [file.file_path for file in found], sum(file.record_count for file in found)


def _written_down(released: Stale) -> dict[str, object]:
    tables = []
    for table, entries in released.items():
        files, rows = _files(entries)
        places = [[e.partition, e.offset] for e in entries]
        tables.append({"table": ".".join(table), "rows": rows, "files": files, "control_entries": places})
    return {
        "released_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rows": sum(_files(entries)[1] for entries in released.values()),
        "tables": tables,
    }
