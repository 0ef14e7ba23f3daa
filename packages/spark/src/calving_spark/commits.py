"""Commits what tasks have written: one snapshot for a batch. Runs beside the driver, where the catalog is."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyiceberg.io import FileIO
from pyspark.sql.datasource import WriterCommitMessage

from calving.errors import ProtocolError, TableTroubleError
from calving.iceberg.batches import BatchCommitter, BatchFiles
from calving.iceberg.catalog import find_table, table_id
from calving.model.text import counted
from calving.protocol.batch_ledger import BatchEntry, OneWrite, StreamBatch
from calving_spark.messages import WrittenFiles, of_one_batch, unpacked
from calving_spark.options import WriteOptions
from calving_spark.planning import catalog_of

log = logging.getLogger(__name__)

_TOLD: set[str] = set()
"""The queries without a name of which this process has warned."""


def commit_batch(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit a batch write. With a ``write-id``, a write that the table holds adds nothing (S10).

    :raises CalvingError: see ``BatchCommitter.commit``.
    """
    keys = options.keys
    what = f"write {keys.write_id}" if keys.write_id else "the write"
    found = of_one_batch(messages, f"table {keys.table}: {what}")
    entry = OneWrite(keys.write_id, keys.branch) if keys.write_id else None
    _commit(options, found, what, entry)


def commit_stream(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], batch: int, query: str | None = None
) -> None:
    """Commit a micro-batch, unless the table holds it (S5). A batch without tasks has nothing to commit (S7).
    ``query``: the query's id, if its tasks do not know it.

    :raises CalvingError: see ``BatchCommitter.commit``.
    """
    if not messages:
        return
    keys, what = options.keys, f"batch {batch}"
    found = of_one_batch(messages, f"table {keys.table}: {what}")
    query = query or found[0].query
    if query is None or found[0].batch not in (None, str(batch)):
        raise ProtocolError(
            f"table {keys.table}: the tasks of {what} name query {query} and batch {found[0].batch}: nothing was"
            " committed; report this as a bug in calving"
        )
    sink = options.sink
    if sink is None and query not in _TOLD:
        _TOLD.add(query)
        log.warning(
            "table %s: query %s has no name, so nobody would notice if its checkpoint was deleted, and its records came"
            " twice: set queryName, or the option sink",
            keys.table,
            query,
        )
    entry = StreamBatch(
        table=keys.table,
        sink=sink or query,
        query=query,
        batch=batch,
        branch=keys.branch,
        continues=keys.on_new_checkpoint == "continue",
    )
    _commit(options, found, what, entry)


def _commit(options: WriteOptions, messages: Sequence[WrittenFiles], what: str, entry: BatchEntry | None) -> None:
    name = options.keys.table
    if not any(message.rows for message in messages):
        return
    catalog = catalog_of(options)
    io = _io(options) if any(message.path for message in messages) else None
    files = [file for message in messages for file in unpacked(message, name, io)]
    batch = BatchFiles(messages[0].uuid, files, what, [m.path for m in messages if m.path is not None])
    made = BatchCommitter(catalog, table_id(name), options.keys.branch).commit(batch, entry)
    if made is not None:
        log.info("table %s: %s is in snapshot %d, with %s", name, what, made, counted(len(files), "file"))


def _io(options: WriteOptions) -> FileIO:
    table = find_table(catalog_of(options), table_id(options.keys.table))
    if table is None:
        raise TableTroubleError(f"table {options.keys.table} does not exist any more: nothing was committed")
    return table.io
