"""Turns the equality deletes of a sink's tables into position deletes."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.live_files import Manifests
from calving.iceberg.maintenance import Maintenance
from calving.iceberg.summary import engine
from calving.model.text import counted
from calving.runtime.maintenance.means import Means
from calving.runtime.maintenance.step import MaintenanceStep, committing
from calving.runtime.preflight import ledger_key
from calving.settings.load import Sink

DELETES = "deletes"


def converted(means: Means, sink: Sink, name: str, *, dry_run: bool) -> Iterator[MaintenanceStep]:
    """Convert the equality deletes of one table; yields each commit.

    :raises CommandFailedError: others have committed too fast.
    """
    if dry_run:
        yield _seen(means.catalog, sink, name)
        return
    maintenance = Maintenance(
        catalog=means.catalog,
        table=table_id(name),
        key=ledger_key(sink, "", name),
        about=engine(),
        cache=means.cache(),
        tasks=means.tasks,
        turn=means.turn(table_id(name)),
    )
    commits = 0
    with committing(name):
        for done in maintenance.convert():
            commits += 1
            text = (
                f"{counted(done.files, 'equality-delete file')} with {counted(done.keys, 'key')} became"
                f" {counted(done.rows, 'position')} in {counted(len(done.deletes), 'delete file')}"
            )
            numbers = {"files": done.files, "keys": done.keys, "positions": done.rows}
            yield MaintenanceStep(name, DELETES, "done", text, numbers)
    if not commits:
        yield MaintenanceStep(name, DELETES, "nothing", "no equality deletes")


def _seen(catalog: Catalog, sink: Sink, name: str) -> MaintenanceStep:
    """The work that there is to do for a table."""
    table, key = find_table(catalog, table_id(name)), ledger_key(sink, "", name)
    head = table.metadata.snapshot_by_name(key.branch) if table is not None else None
    live = Manifests(()).live(table.io, head.manifest_list) if table is not None and head is not None else None
    if live is None or not live.equality:
        return MaintenanceStep(name, DELETES, "nothing", "no equality deletes")
    newest = max(delete.sequence for delete in live.equality)
    files = sum(data.sequence < newest for data in live.data.values())
    keys = sum(delete.file.record_count for delete in live.equality)
    text = (
        f"{counted(len(live.equality), 'equality-delete file')} with {counted(keys, 'key')}, for at most"
        f" {counted(files, 'data file')}"
    )
    return MaintenanceStep(name, DELETES, "planned", text, {"files": len(live.equality), "keys": keys})
