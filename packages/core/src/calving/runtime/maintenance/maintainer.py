"""Does the tasks of maintenance for tables of a sink, which may run.

``deletes`` turns equality deletes into position deletes, ``compact`` joins small files, ``manifests`` merges small
manifests, ``expire`` removes old snapshots with their files, ``orphans`` deletes files that nothing names, ``bounds``
corrects bounds that exclude values which a file holds, and ``upgrade`` gives a table format version 3.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog

from calving.catalogs.foreign import refusal
from calving.errors import ConfigError, UnavailableError
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.maintenance import check_forms
from calving.maintenance.lease import Lease, TableLease, held_by_other
from calving.runtime.maintenance.compact import COMPACT, compacted
from calving.runtime.maintenance.deletes import DELETES, converted
from calving.runtime.maintenance.expire import EXPIRE, ControlLogs, expired
from calving.runtime.maintenance.manifests import MANIFESTS, merged
from calving.runtime.maintenance.means import Means
from calving.runtime.maintenance.mend import BOUNDS, mended
from calving.runtime.maintenance.orphans import ORPHANS, OrphanTask
from calving.runtime.maintenance.step import MaintenanceStep, failed
from calving.runtime.maintenance.upgrade import UPGRADE, upgraded
from calving.runtime.preflight import ledger_key, own_tables
from calving.runtime.routed import routed_tables
from calving.settings.load import Sink

log = logging.getLogger(__name__)

DEFAULT = (DELETES, COMPACT, MANIFESTS, EXPIRE)
"""The tasks that are done if none is named, in their order: files with equality deletes are not compacted."""
Run = Callable[[str], Iterator[MaintenanceStep]]
"""Starts a run of all tasks for a table, which yields its steps; a step makes at most one commit."""


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
    """Does the tasks of an order for tables of one sink, in this process."""

    def __init__(self, sink: Sink, order: MaintenanceOrder, holder: str, means: Means) -> None:
        """``holder``: names this process in leases."""
        self._sink, self._order, self._holder, self._means = sink, order, holder, means
        self._catalog = means.catalog

    def tables(self) -> tuple[list[str], list[MaintenanceStep]]:
        """The tables to maintain; and a failed step for each table of which nobody can tell now whether it is one.

        :raises ConfigError: a table does not exist.
        """
        return _tables(self._catalog, self._sink, self._order.names)

    def held_by(self, name: str, now_ms: int) -> MaintenanceStep | None:
        """A step that says that somebody else has the lease of a table; None if nobody has."""
        table = None if self._order.beside_others or self._order.dry_run else find_table(self._catalog, table_id(name))
        branch = ledger_key(self._sink, "", name).branch
        lease = None if table is None else held_by_other(table.metadata.properties, branch, self._holder, now_ms)
        return None if lease is None else self.held(name, lease)

    def held(self, name: str, lease: Lease) -> MaintenanceStep:
        """A step that says who has the lease of a table."""
        until = datetime.fromtimestamp(lease.until_ms / 1000, UTC)
        text = f"{lease.holder} maintains it until {until:%H:%M} UTC; to run beside that, add --anyway"
        return MaintenanceStep(name, ", ".join(self._order.tasks), "left alone", text)

    def lease(self, name: str, clock: Callable[[], int]) -> TableLease | None:
        """The lease of a table; None if the order does not ask for it. ``clock``: tells the milliseconds since 1970."""
        if self._order.beside_others:
            return None
        branch = ledger_key(self._sink, "", name).branch
        return TableLease(self._catalog, table_id(name), branch, self._holder, clock)

    def pause(self, name: str) -> float:
        """The pause of a table after each commit, in seconds."""
        return int(self._sink.maintenance(name, "pause_ms")) / 1000

    @contextmanager
    def round(self, now_ms: int) -> Iterator[Run]:
        """Does the tasks for one table after the other. The control logs are read once, if a file may be deleted."""
        sinks = (self._sink, *self._order.other_sinks)
        logs = ControlLogs(sinks)
        with closing(OrphanTask(self._catalog, sinks, now_ms, dry_run=self._order.dry_run)) as search:
            yield lambda name: self._observed(name, self._steps(name, now_ms, logs, search))

    def _observed(self, name: str, steps: Iterator[MaintenanceStep]) -> Iterator[MaintenanceStep]:
        if (observer := self._means.observer) is None:
            yield from steps
            return
        step: MaintenanceStep | None
        while True:
            observer.begins(name)
            began = time.monotonic()
            try:
                step = next(steps, None)
            except Exception as error:  # whoever takes the steps says so
                observer.ends(name, failed(name, error), time.monotonic() - began)
                raise
            observer.ends(name, step, time.monotonic() - began)
            if step is None:
                return
            yield step

    def _steps(self, name: str, now_ms: int, logs: ControlLogs, search: OrphanTask) -> Iterator[MaintenanceStep]:
        catalog, sink, tasks, dry_run = self._catalog, self._sink, self._order.tasks, self._order.dry_run
        means = self._means
        if (why := _refusal(catalog, name)) is not None:
            yield MaintenanceStep(name, ", ".join(tasks), "left alone", f"was left alone: {why}")
            return
        if (held := self.held_by(name, now_ms)) is not None:
            yield held
            return
        if UPGRADE in tasks:
            yield from upgraded(catalog, sink, name, dry_run=dry_run)
        if BOUNDS in tasks:
            yield from mended(catalog, sink, name, means.cache(), dry_run=dry_run)
        if DELETES in tasks:
            yield from converted(means, sink, name, dry_run=dry_run, is_all={*tasks} == {DELETES})
        if COMPACT in tasks:
            yield from compacted(means, sink, name, now_ms, dry_run=dry_run)
        if MANIFESTS in tasks:
            yield from merged(means, sink, name, dry_run=dry_run)
        if EXPIRE in tasks:
            yield from expired(means, sink, name, now_ms, logs, dry_run=dry_run)
        if ORPHANS in tasks:
            yield from search.run(name)


def _tables(catalog: Catalog, sink: Sink, names: Collection[str]) -> tuple[list[str], list[MaintenanceStep]]:
    for name in names:
        with suppress(UnavailableError):  # its own steps say so, and the others go on
            if find_table(catalog, table_id(name)) is None:
                raise ConfigError(f"table {name} does not exist")
    if names:
        return list(dict.fromkeys(names)), []
    routed = routed_tables(catalog, sink, ())
    every = dict.fromkeys([*own_tables(sink), *routed.names])
    return [*every], [failed(name, error) for name, error in routed.unreadable.items() if name not in every]


def _refusal(catalog: Catalog, name: str) -> str | None:
    """Why a table cannot be maintained.

    :raises NewerVersionError: not by this version.
    """
    if (table := find_table(catalog, table_id(name))) is None:
        return None
    check_forms(name, table.metadata.properties)
    return refusal(table.metadata, rewrites=True)
