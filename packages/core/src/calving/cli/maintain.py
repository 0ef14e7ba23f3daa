"""Maintains the tables of a sink, which may run.

``deletes`` turns equality deletes into position deletes, ``compact`` joins small files, ``manifests`` merges small
manifests, ``expire`` removes old snapshots with their files, ``orphans`` deletes files that nothing names, and
``bounds`` corrects bounds that exclude values which a file holds.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing

from pyiceberg.catalog import Catalog

from calving.catalogs.foreign import refusal
from calving.cli.compact import COMPACT, compacted
from calving.cli.expire import EXPIRE, ControlLogs, expired
from calving.cli.maintenance_step import MaintenanceStep, committing
from calving.cli.manifests import MANIFESTS, merged
from calving.cli.mend import BOUNDS, mended
from calving.cli.orphans import ORPHANS, OrphanTask
from calving.engine.interface import Engine
from calving.engine.opening import OpeningEngine
from calving.errors import CalvingError, CommandFailedError, ConfigError
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.live_files import Manifests
from calving.iceberg.maintenance import Maintenance, check_forms
from calving.iceberg.summary import engine as made_by
from calving.model.text import counted
from calving.mutations.cache import KeyCache
from calving.mutations.lookup import Tasks
from calving.runtime import components
from calving.runtime.preflight import ledger_key, own_tables, routed_tables
from calving.settings.load import Sink

log = logging.getLogger(__name__)


DELETES = "deletes"
DEFAULT = (DELETES, COMPACT, MANIFESTS, EXPIRE)
"""The tasks that are done if none is named, in their order: files with equality deletes are not compacted."""
_FOR_ALL = {BOUNDS, COMPACT, MANIFESTS, EXPIRE, ORPHANS}
"""The tasks that are also for tables to which the sink only appends."""


def maintain(
    sink: Sink,
    names: Collection[str],
    tasks: Collection[str] = DEFAULT,
    *,
    now_ms: int,
    dry_run: bool,
    other_sinks: Sequence[Sink] = (),
) -> Iterator[MaintenanceStep]:
    """Do these tasks for these tables. Without names, do them for all tables of the sink that need them.

    The command may be run at any time, several times at once, and again after an interruption. ``other_sinks``: they
    write the tables, too.

    :raises ConfigError: a table does not exist, or is only appended to and has no deletes.
    :raises CommandFailedError: others have committed too fast, or files could not be rewritten or deleted. The commits
        made so far stay.
    """
    catalog = components.catalog(sink)
    cache = KeyCache(sink.keys.key_cache_bytes)
    logs = ControlLogs((sink, *other_sinks))
    failed = 0
    search = OrphanTask(catalog, (sink, *other_sinks), now_ms, dry_run=dry_run)
    with closing(OpeningEngine(lambda: components.engine(sink), sink.patience)) as engine, closing(search):
        for name in _tables(catalog, sink, names, tasks):
            for step in _steps(
                catalog=catalog,
                sink=sink,
                name=name,
                tasks=tasks,
                now_ms=now_ms,
                cache=cache,
                engine=engine,
                logs=logs,
                search=search,
                dry_run=dry_run,
            ):
                failed += step.outcome == "failed"
                yield step
    if failed:
        raise CommandFailedError(f"{counted(failed, 'step')} failed, as said above; nothing is lost, run it again")


def _steps(
    catalog: Catalog,
    sink: Sink,
    name: str,
    tasks: Collection[str],
    now_ms: int,
    cache: KeyCache,
    engine: Engine,
    logs: ControlLogs,
    search: OrphanTask,
    *,
    dry_run: bool,
) -> Iterator[MaintenanceStep]:
    """What the tasks do with one table."""
    if (why := _refusal(catalog, name)) is not None:
        yield MaintenanceStep(name, ", ".join(tasks), "left alone", f"was left alone: {why}")
        return
    if BOUNDS in tasks:
        yield from mended(catalog, sink, name, cache, dry_run=dry_run)
    if DELETES in tasks and sink.mutations(name) is not None:
        if dry_run:
            yield _seen(catalog, sink, name)
        else:
            yield from _converted(catalog, sink, name, cache, engine)
    if COMPACT in tasks:
        yield from compacted(catalog, sink, name, now_ms, dry_run=dry_run)
    if MANIFESTS in tasks:
        yield from merged(catalog, sink, name, dry_run=dry_run)
    if EXPIRE in tasks:
        yield from expired(catalog, sink, name, now_ms, logs, dry_run=dry_run)
    if ORPHANS in tasks:
        yield from search.run(name)


def _tables(catalog: Catalog, sink: Sink, names: Collection[str], tasks: Collection[str]) -> list[str]:
    appended = not _FOR_ALL.isdisjoint(tasks)
    for name in names:
        if sink.mutations(name) is None and not appended:
            raise ConfigError(f"table {name}: this sink only appends to it, which leaves no deletes")
        if find_table(catalog, table_id(name)) is None:
            raise ConfigError(f"table {name} does not exist")
    if names:
        return list(dict.fromkeys(names))
    routed = routed_tables(catalog, sink, ())
    for error in routed.unreadable.values():
        log.warning("%s; the other tables are maintained", error)
    every = dict.fromkeys([*own_tables(sink), *routed.names])
    return [name for name in every if appended or sink.mutations(name) is not None]


def _refusal(catalog: Catalog, name: str) -> str | None:
    """Why a table cannot be maintained.

    :raises NewerVersionError: not by this version.
    """
    if (table := find_table(catalog, table_id(name))) is None:
        return None
    check_forms(name, table.metadata.properties)
    return refusal(table.metadata, rewrites=True)


def _tasks(engine: Engine) -> Tasks | None:
    """The engine; None if its tasks would run in this process, or if it does not start."""
    try:
        return engine.for_other_jobs()
    except CalvingError as error:
        log.warning("all data files are searched in this process, because the engine does not start: %s", error)
        return None


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


def _converted(catalog: Catalog, sink: Sink, name: str, cache: KeyCache, engine: Engine) -> Iterator[MaintenanceStep]:
    maintenance = Maintenance(
        catalog, table_id(name), ledger_key(sink, "", name), made_by(), cache, tasks=lambda: _tasks(engine)
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
