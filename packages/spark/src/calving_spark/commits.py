"""Commits what tasks have written: one snapshot for a batch. Runs beside the driver, where the catalog is."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache, lru_cache

from pyiceberg.io import FileIO
from pyspark.sql.datasource import WriterCommitMessage

from calving.errors import ProtocolError, TableTroubleError
from calving.iceberg.batches import BatchCommitter, BatchFiles
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.resolution import RowChangeResolver
from calving.model.files import DataFile, FileContent
from calving.model.record_path import Limits
from calving.model.tables import OrderType
from calving.model.text import counted
from calving.mutations.cache import KeyCache
from calving.protocol.batch_ledger import BatchEntry, OneWrite, StreamBatch
from calving.protocol.commit import Step
from calving_spark.messages import TaskFiles, WrittenFiles, of_one_batch, unpacked
from calving_spark.options import WriteOptions
from calving_spark.planning import catalog_of

log = logging.getLogger(__name__)

_CACHE_BYTES = 512 * 1024 * 1024
"""The most bytes of key columns on local disk."""
_TOLD: set[str] = set()
"""The queries without a name, and the tables with many files, of which this process has warned."""


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
    if not any(message.rows for message in found):
        BatchCommitter(catalog_of(options), table_id(keys.table), keys.branch).check(entry)
    _commit(options, found, what, entry)


def _commit(options: WriteOptions, messages: Sequence[WrittenFiles], what: str, entry: BatchEntry | None) -> None:
    name = options.keys.table
    if not any(message.rows for message in messages):
        return
    catalog = catalog_of(options)
    io = _io(options) if any(message.path for message in messages) else None
    of_tasks = [unpacked(message, name, io) for message in messages]
    files = [file for of_task in of_tasks for file in of_task.files]
    _warn_of_many(name, what, of_tasks)
    others = [file.file_path for of_task in of_tasks for file in of_task.deletes]
    resolver = _resolver(options)
    batch = BatchFiles(
        messages[0].uuid,
        files,
        what,
        [*others, *(m.path for m in messages if m.path is not None)],
        _steps(of_tasks, is_ordered=options.keys.order_field is not None) if resolver is not None else (),
    )
    committer = BatchCommitter(catalog, table_id(name), options.keys.branch, resolver=resolver)
    made = committer.commit(batch, entry)
    if made is not None:
        log.info("table %s: %s is in snapshot %d, with %s", name, what, made, counted(len(files), "file"))


def _warn_of_many(table: str, what: str, of_tasks: Sequence[TaskFiles]) -> None:
    """A source in Python cannot ask Spark to distribute rows, so the user has to (S4)."""
    most = max((of_task.files for of_task in of_tasks), key=len)
    fields = most[0].partition.fields if most else ()
    if len(most) <= Limits().open_files or not fields or table in _TOLD:
        return
    _TOLD.add(table)
    log.warning(
        "table %s: one of %s of %s has written %d files, because its rows are of many partitions (%s): repartition()"
        " the DataFrame by the columns of the partition before it is written",
        table,
        counted(len(of_tasks), "task"),
        what,
        len(most),
        ", ".join(field.name for field in fields),
    )


def _steps(of_tasks: Sequence[TaskFiles], *, is_ordered: bool) -> tuple[Step, ...]:
    """The changes of the tasks. Without an order a key comes once, and all are one step. With an order, two tasks may
    change one key, so each is a step: order values are compared between steps. A step does not know what earlier ones
    have deleted. So all deletes come again at the end: they find the rows of later tasks that are older.
    """
    files = [of_task.files for of_task in of_tasks if of_task.files]
    if not is_ordered or len(files) < 2:
        files = [[file for of_task in files for file in of_task]]
        of_tasks = ()
    steps = [Step(_of(each, data=True), _of(each, data=False)) for each in files if each]
    return (*steps, *(Step((), tuple(each.deletes)) for each in of_tasks if each.deletes))


def _of(files: Sequence[DataFile], *, data: bool) -> tuple[DataFile, ...]:
    return tuple(file for file in files if (file.content is FileContent.DATA) is data)


def _resolver(options: WriteOptions) -> RowChangeResolver | None:
    """The resolver of the table; None if rows are added. What it reads of files is kept (S14a)."""
    keys = options.keys
    if keys.mutations is None:
        return None
    where = keys.catalog, tuple(sorted(options.catalog.items()))
    return _kept(where, keys.table, keys.order_field, keys.order_type)


@lru_cache(maxsize=8)
def _kept(
    where: tuple[str, tuple[tuple[str, str], ...]], table: str, order_field: str | None, order_type: OrderType
) -> RowChangeResolver:
    return RowChangeResolver(order_field, _cache(), order_type=order_type, appends=False)


@cache
def _cache() -> KeyCache:
    """The key cache of this process, for all tables."""
    return KeyCache(_CACHE_BYTES)


def _io(options: WriteOptions) -> FileIO:
    table = find_table(catalog_of(options), table_id(options.keys.table))
    if table is None:
        raise TableTroubleError(f"table {options.keys.table} does not exist any more: nothing was committed")
    return table.io
