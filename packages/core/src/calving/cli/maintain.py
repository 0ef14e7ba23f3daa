"""Maintains the tables of a sink, which may run.

``deletes`` turns equality deletes into position deletes, ``compact`` joins small files, ``manifests`` merges small
manifests, ``expire`` removes old snapshots with their files, ``orphans`` deletes files that nothing names, and
``bounds`` corrects bounds that exclude values which a file holds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog

from calving.catalogs.foreign import refusal
from calving.cli.compact import COMPACT, compacted
from calving.cli.expire import EXPIRE, ControlLogs, expired
from calving.cli.maintenance_step import MaintenanceStep, committing, failed
from calving.cli.manifests import MANIFESTS, merged
from calving.cli.mend import BOUNDS, mended
from calving.cli.orphans import ORPHANS, OrphanTask
from calving.cli.watch import MaintenanceWatch, Run
from calving.engine.interface import Engine
from calving.engine.opening import OpeningEngine
from calving.errors import CalvingError, CommandFailedError, ConfigError
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.live_files import Manifests
from calving.iceberg.maintenance import Maintenance, check_forms
from calving.iceberg.summary import engine as made_by
from calving.maintenance.lease import Lease, TableLease, held_by_other
from calving.model.text import counted
from calving.mutations.cache import KeyCache
from calving.mutations.lookup import Tasks
from calving.retries import Retries
from calving.runtime import components
from calving.runtime.preflight import ledger_key, own_tables
from calving.runtime.routed import routed_tables
from calving.settings.load import Sink

log = logging.getLogger(__name__)


DELETES = "deletes"
DEFAULT = (DELETES, COMPACT, MANIFESTS, EXPIRE)
"""The tasks that are done if none is named, in their order: files with equality deletes are not compacted."""
_LOOK_SECONDS = 60.0
"""How often a watch looks for new tables."""
_FOR_ALL = {BOUNDS, COMPACT, MANIFESTS, EXPIRE, ORPHANS}
"""The tasks that are also for tables to which the sink only appends."""


@dataclass(frozen=True, slots=True)
class MaintenanceOrder:
    """What ``calving maintain`` is asked to do. ``names``: the tables; none stands for all that need it.
    ``other_sinks``: they write the tables, too. ``beside_others``: also where somebody else has the table's lease.
    """

    names: Sequence[str] = ()
    tasks: Collection[str] = DEFAULT
    other_sinks: Sequence[Sink] = ()
    dry_run: bool = False
    beside_others: bool = False


class Maintainer:
    """Does the tasks of an order for tables of one sink, in this process. ``close`` it at the end."""

    def __init__(self, sink: Sink, order: MaintenanceOrder, holder: str) -> None:
        """``holder``: names this process in leases."""
        self.catalog = components.catalog(sink)
        self._sink, self._order, self._holder = sink, order, holder
        self._cache = KeyCache(sink.keys.key_cache_bytes)
        self._engine = OpeningEngine(lambda: components.engine(sink), sink.patience)

    def close(self) -> None:
        self._engine.close()

    def tables(self) -> list[str]:
        """The tables to maintain.

        :raises ConfigError: a table does not exist, or is only appended to and has no deletes.
        """
        return _tables(self.catalog, self._sink, self._order.names, self._order.tasks)

    def held_by(self, name: str, now_ms: int) -> MaintenanceStep | None:
        """A step that says that somebody else has the lease of a table; None if nobody has."""
        table = None if self._order.beside_others or self._order.dry_run else find_table(self.catalog, table_id(name))
        branch = ledger_key(self._sink, "", name).branch
        lease = None if table is None else held_by_other(table.metadata.properties, branch, self._holder, now_ms)
        return None if lease is None else self.held(name, lease)

    def held(self, name: str, lease: Lease) -> MaintenanceStep:
        """A step that says who has the lease of a table."""
        until = datetime.fromtimestamp(lease.until_ms / 1000, UTC)
        text = f"{lease.holder} maintains it until {until:%H:%M} UTC; to run beside that, add --anyway"
        return MaintenanceStep(name, ", ".join(self._order.tasks), "left alone", text)

    def lease(self, name: str, clock: Callable[[], int]) -> TableLease:
        """The lease of a table. ``clock``: tells the milliseconds since 1970."""
        branch = ledger_key(self._sink, "", name).branch
        return TableLease(self.catalog, table_id(name), branch, self._holder, clock)

    @contextmanager
    def round(self, now_ms: int) -> Iterator[Run]:
        """Does the tasks for one table after the other. The control logs are read once, if a file may be deleted."""
        sinks = (self._sink, *self._order.other_sinks)
        logs = ControlLogs(sinks)
        with closing(OrphanTask(self.catalog, sinks, now_ms, dry_run=self._order.dry_run)) as search:
            yield lambda name: self._steps(name, now_ms, logs, search)

    def _steps(self, name: str, now_ms: int, logs: ControlLogs, search: OrphanTask) -> Iterator[MaintenanceStep]:
        catalog, sink, tasks, dry_run = self.catalog, self._sink, self._order.tasks, self._order.dry_run
        if (why := _refusal(catalog, name)) is not None:
            yield MaintenanceStep(name, ", ".join(tasks), "left alone", f"was left alone: {why}")
            return
        if (held := self.held_by(name, now_ms)) is not None:
            yield held
            return
        if BOUNDS in tasks:
            yield from mended(catalog, sink, name, self._cache, dry_run=dry_run)
        if DELETES in tasks and sink.mutations(name) is not None:
            if dry_run:
                yield _seen(catalog, sink, name)
            else:
                yield from _converted(catalog, sink, name, self._cache, self._engine)
        if COMPACT in tasks:
            yield from compacted(catalog, sink, name, now_ms, dry_run=dry_run)
        if MANIFESTS in tasks:
            yield from merged(catalog, sink, name, dry_run=dry_run)
        if EXPIRE in tasks:
            yield from expired(catalog, sink, name, now_ms, logs, dry_run=dry_run)
        if ORPHANS in tasks:
            yield from search.run(name)


def maintain(sink: Sink, order: MaintenanceOrder, now_ms: int, holder: str) -> Iterator[MaintenanceStep]:
    """Do the tasks once. An error of a table is a step, and the other tables go on.

    The command may be run at any time, several times at once, and again after an interruption.

    :raises ConfigError: a table does not exist, or is only appended to and has no deletes.
    :raises CommandFailedError: a step failed. The commits made so far stay.
    """
    failures = 0
    with closing(Maintainer(sink, order, holder)) as maintainer, maintainer.round(now_ms) as run:
        for name in maintainer.tables():
            for step in _contained(name, run):
                failures += step.outcome == "failed"
                yield step
    if failures:
        raise CommandFailedError(f"{counted(failures, 'step')} failed, as said above; nothing is lost, run it again")


def _contained(name: str, run: Run) -> Iterator[MaintenanceStep]:
    """The steps of a table; an error is the last of them."""
    try:
        yield from run(name)
    except Exception as error:  # a catalog or a storage may raise anything
        yield failed(name, error)


def watch(sink: Sink, order: MaintenanceOrder, holder: str, stop: threading.Event) -> Iterator[MaintenanceStep]:
    """Do the tasks again and again, until ``stop`` is set; the step that runs then ends first. Errors of a table are
    steps, and are tried again.

    :raises GaveUpError: errors that do not pass have been retried for too long, and nothing has succeeded in between.
    :raises ConfigError: a table does not exist, or is only appended to and has no deletes.
    """
    leases: dict[str, TableLease] = {}

    def run(name: str) -> Iterator[MaintenanceStep]:
        with maintainer.round(_now_ms()) as steps:
            for step in steps(name):
                yield step
                if step.outcome == "done" and not order.beside_others:
                    lease = leases.setdefault(name, maintainer.lease(name, _now_ms))
                    if (other := lease.take()) is not None:
                        yield maintainer.held(name, other)
                        return

    def pause(name: str) -> float:
        return int(sink.maintenance(name, "pause_ms")) / 1000

    with closing(Maintainer(sink, order, holder)) as maintainer:
        try:
            retries = Retries(sink.keys.retry_seconds)
            watching = MaintenanceWatch(maintainer.tables, run, pause, time.monotonic, stop.wait, retries)
            yield from watching.steps(_LOOK_SECONDS)
        finally:
            for lease in leases.values():
                with suppress(Exception):  # it ends by itself, and the end must reach the other leases
                    lease.release()


def _now_ms() -> int:
    return int(time.time() * 1000)


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
