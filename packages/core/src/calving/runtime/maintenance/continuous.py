"""Maintains the tables of a sink until it is told to stop, and holds the lease of each table that it changes (K13)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from calving.maintenance.lease import Lease, TableLease
from calving.retries import Retries
from calving.runtime.maintenance.maintainer import Maintainer
from calving.runtime.maintenance.step import MaintenanceStep
from calving.runtime.maintenance.watch import MaintenanceWatch

_LOOK_SECONDS = 60.0
"""How often to look for new tables."""


def continuous(
    maintainer: Maintainer, tables: Callable[[], Sequence[str]], wait: Callable[[float], bool], retries: Retries
) -> Iterator[MaintenanceStep]:
    """Do the tasks again and again, until ``wait`` tells to stop; the step that runs then ends first. Errors of a table
    are steps, and are tried again.

    ``tables``: those of now. ``wait``: waits so many seconds, and tells whether to stop. ``retries``: of errors that do
    not pass, while nothing succeeds in between.

    :raises GaveUpError: such errors have been retried for too long.
    :raises CalvingError: the tables cannot be listed at the start.
    """
    leases: dict[str, TableLease] = {}

    def taken(name: str) -> Lease | None:
        """Take or prolong the lease of a table; returns that of somebody else who has it."""
        if name not in leases and (lease := maintainer.lease(name, _now_ms)) is not None:
            leases[name] = lease
        return leases[name].take() if name in leases else None

    def run(name: str) -> Iterator[MaintenanceStep]:
        with maintainer.round(_now_ms()) as steps:
            for step in steps(name):
                yield step
                other = taken(name) if step.outcome == "done" else None
                if other is not None:
                    yield maintainer.held(name, other)
                    return

    try:
        watch = MaintenanceWatch(tables, run, maintainer.pause, time.monotonic, wait, retries)
        yield from watch.steps(_LOOK_SECONDS)
    finally:
        for lease in leases.values():
            with suppress(Exception):  # it ends by itself, and the end must reach the other leases
                lease.release()


def _now_ms() -> int:
    return int(time.time() * 1000)
