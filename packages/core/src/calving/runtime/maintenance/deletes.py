"""Turns the equality deletes of a sink's tables into position deletes, and merges position deletes (E3, K19)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyiceberg.table import Table

from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.delete_merge import due
from calving.iceberg.live_files import LiveDelete, LiveFiles, data_of, deletes_of
from calving.iceberg.maintenance import Maintenance, rolled_back
from calving.iceberg.summary import engine
from calving.model.text import counted
from calving.protocol.ledger_key import LedgerKey
from calving.runtime.maintenance.means import Means
from calving.runtime.maintenance.step import MaintenanceStep, committing
from calving.runtime.preflight import ledger_key
from calving.settings.load import Sink

DELETES = "deletes"
_NOTHING = "no deletes to convert or to merge"


def converted(means: Means, sink: Sink, name: str, *, dry_run: bool, is_all: bool) -> Iterator[MaintenanceStep]:
    """Convert the equality deletes of one table, then merge its position deletes; yields each commit. ``is_all``:
    whether this is the only task. Otherwise nothing is said of a table without deletes to which the sink only appends.

    :raises CommandFailedError: others have committed too fast.
    """
    table, key = find_table(means.catalog, table_id(name)), ledger_key(sink, "", name)
    if table is None or (found := _found(table, key)) is None:
        if is_all or sink.mutations(name) is not None:
            yield MaintenanceStep(name, DELETES, "nothing", _NOTHING)
        return
    deletes, merged = found
    if (why := rolled_back(table, key)) is not None:
        yield MaintenanceStep(name, DELETES, "left alone", f"no deletes are converted or merged: {why}")
        return
    if dry_run:
        yield from _planned(table, name, key, deletes, merged)
        return
    maintenance = Maintenance(
        catalog=means.catalog,
        table=table_id(name),
        key=key,
        about=engine(),
        cache=means.cache(),
        tasks=means.tasks,
        turn=means.turn(table_id(name)),
    )
    with committing(name):
        if deletes.equality:
            yield from _conversions(name, maintenance)
        if merged:
            yield from _merges(name, maintenance)


def _found(table: Table, key: LedgerKey) -> tuple[LiveFiles, list[LiveDelete]] | None:
    """The deletes of the head, and those that are to be merged; None if there is nothing to do. Most tables have no
    deletes: only the manifests of these are read to see that.
    """
    head = table.metadata.snapshot_by_name(key.branch)
    deletes = deletes_of(table.io, head.manifest_list) if head is not None else LiveFiles()
    merged = due(deletes, table.metadata.format_version)
    return (deletes, merged) if deletes.equality or merged else None


def is_conversion(step: MaintenanceStep) -> bool:
    """Whether the step has turned equality deletes into positions."""
    return step.task == DELETES and "keys" in step.numbers


def _conversions(name: str, maintenance: Maintenance) -> Iterator[MaintenanceStep]:
    for done in maintenance.convert():
        text = (
            f"{counted(done.files, 'equality-delete file')} with {counted(done.keys, 'key')} became"
            f" {counted(done.rows, 'position')} in {counted(len(done.deletes), 'delete file')}"
        )
        numbers = {"files": done.files, "keys": done.keys, "positions": done.rows}
        yield MaintenanceStep(name, DELETES, "done", text, numbers)


def _merges(name: str, maintenance: Maintenance) -> Iterator[MaintenanceStep]:
    for done in maintenance.merge():
        made = {file.file_path for file in done.deletes}
        text = f"{counted(done.files, 'position-delete file')} became {counted(len(made), 'position-delete file')}"
        yield MaintenanceStep(name, DELETES, "done", text, {"files": done.files, "outputs": len(made)})


def _planned(
    table: Table, name: str, key: LedgerKey, deletes: LiveFiles, merged: Sequence[LiveDelete]
) -> Iterator[MaintenanceStep]:
    if deletes.equality:
        newest = max(delete.sequence for delete in deletes.equality)
        head = table.metadata.snapshot_by_name(key.branch)
        files = sum(data.sequence < newest for data in data_of(table.io, head.manifest_list if head else None))
        keys = sum(delete.file.record_count for delete in deletes.equality)
        text = (
            f"{counted(len(deletes.equality), 'equality-delete file')} with {counted(keys, 'key')}, for at most"
            f" {counted(files, 'data file')}"
        )
        yield MaintenanceStep(name, DELETES, "planned", text, {"files": len(deletes.equality), "keys": keys})
    if merged:
        count = len({delete.file.file_path for delete in merged})
        text = f"{counted(count, 'position-delete file')} would be merged"
        yield MaintenanceStep(name, DELETES, "planned", text, {"files": count})
