"""Lets go of files that a table can never take, as after it was dropped and made anew (rule C4)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from calving.backend.interface import Cursor
from calving.cli.inspect import read_to_end
from calving.errors import CalvingError
from calving.iceberg.catalog import find_table, open_catalog, table_id
from calving.model.events import DataWritten, Envelope, TableId
from calving.protocol.ledger import NOWHERE, Buffer, admit
from calving.runtime.guards import commit_style, ledger_of
from calving.settings.load import Sink


def release(sink: Sink, name: str, record: Path) -> Iterator[str]:
    """Let go of what is buffered for table ``name``, and write to ``record`` what that was.

    A running coordinator steps down and starts again. The files themselves stay where they are.

    :raises CalvingError: nothing is buffered for the table, or other tables have files that are not committed yet.
    """
    backend = sink.backend(sink.identity, sink.backend_settings)
    session = backend.open(str(uuid4()))
    try:
        cursor = session.follow(replay=True)
        try:
            yield from _release(sink, name, record, cursor)
        finally:
            cursor.close()
    finally:
        session.close()


def _release(sink: Sink, name: str, record: Path, cursor: Cursor) -> Iterator[str]:
    buffer = Buffer()
    for entry in read_to_end(cursor):
        buffer.hear(entry)
    buffered = buffer.tables()
    found = buffered.pop(table_id(name), ())
    if not found:
        raise CalvingError(f"nothing is buffered for table {name}")
    waiting = [".".join(table) for table, entries in buffered.items() if _pending(sink, table, entries, cursor)]
    if waiting:
        raise CalvingError(
            f"tables {', '.join(waiting)} have files that are not committed yet: let the sink run until they are, then"
            " try again"
        )
    files = [f for e in found if isinstance(e.event, DataWritten) for f in (*e.event.data_files, *e.event.delete_files)]
    rows = sum(file.record_count for file in files)
    released = {
        "table": name,
        "released_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rows": rows,
        "files": [file.file_path for file in files],
        "control_entries": [[e.partition, e.offset] for e in found],
    }
    record.write_text(json.dumps(released, indent=1))
    cursor.acknowledge(buffer.read, ())
    yield f"let go of {len(files)} files with {rows} rows of table {name}; they are listed in {record}"


def _pending(sink: Sink, table: TableId, entries: tuple[Envelope, ...], cursor: Cursor) -> bool:
    found = find_table(open_catalog(sink.keys.catalog_name, sink.catalog), table)
    if found is None:
        return True
    return bool(admit(entries, {}, NOWHERE, ledger_of(commit_style(sink, cursor.log.identity).key(table), found)))
