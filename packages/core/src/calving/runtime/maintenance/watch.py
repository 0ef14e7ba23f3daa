"""Maintains the tables of a sink until it is told to stop, each at its own pace, and holds the lease of each table that
it changes (K9, K13).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from calving.maintenance.lease import Lease, TableLease
from calving.retries import Retries
from calving.runtime.maintenance.deletes import is_conversion
from calving.runtime.maintenance.maintainer import Maintainer, Run
from calving.runtime.maintenance.step import MaintenanceStep, failed

_LOOK_SECONDS = 60.0
"""How often to look for new tables."""


@dataclass(slots=True)
class _Pace:
    """Where a table is: the run that goes on, and when its next step is due, in seconds."""

    due: float
    run: Iterator[MaintenanceStep] | None = None
    said: dict[str, str] = field(default_factory=dict)
    """The last text of each task, which is not said again."""


class MaintenanceWatch:
    """Takes the next step of each table when it is due: after a step that changed the table, and after a run, the pause
    of the table comes. An error of one table stops no other; but if nothing succeeds any more, it ends.

    After a conversion of equality deletes there is no pause: the sink would write new ones, and files to which these
    apply are not compacted (K4).
    """

    def __init__(
        self,
        tables: Callable[[], Sequence[str]],
        run: Run,
        pause: Callable[[str], float],
        clock: Callable[[], float],
        wait: Callable[[float], bool],
        retries: Retries,
    ) -> None:
        """``tables``: those of now. ``pause``: of a table, in seconds. ``clock``: seconds that never go back. ``wait``:
        waits so many seconds, and tells whether to stop; after 0 seconds it only tells. ``retries``: of errors that do
        not pass, while nothing succeeds in between.
        """
        self._tables, self._run, self._pause = tables, run, pause
        self._clock, self._wait, self._retries = clock, wait, retries
        self._paces: dict[str, _Pace] = {}
        self._names: Sequence[str] = ()

    def steps(self, every: float) -> Iterator[MaintenanceStep]:
        """What was done, until the end. ``every``: how often to look for new tables, in seconds.

        :raises GaveUpError: errors that do not pass have been retried for too long.
        :raises CalvingError: the tables cannot be listed at the start.
        """
        look, self._names = self._clock() + every, self._tables()
        while not self._wait(0):
            if self._clock() >= look:
                look = self._clock() + every
                self._look_again()
            for name in self._names:
                pace = self._paces.setdefault(name, _Pace(self._clock()))
                while pace.due <= self._clock() and not self._wait(0):
                    yield from self._news(name, pace)
            due = min((self._paces[name].due for name in self._names), default=look)
            if self._wait(max(0.0, min(due, look) - self._clock())):
                return

    def _look_again(self) -> None:
        try:
            self._names = self._tables()
        except Exception as error:  # a table that cannot be reached says so in its own step
            self._retries.failed(error, self._clock())
            return
        self._paces = {name: pace for name, pace in self._paces.items() if name in self._names}

    def _news(self, name: str, pace: _Pace) -> Iterator[MaintenanceStep]:
        """The next step of a table, if there is something to say."""
        try:
            pace.run = pace.run or self._run(name)
            step = next(pace.run, None)
            self._retries.succeeded()
        except Exception as error:  # a catalog or a storage may raise anything
            self._retries.failed(error, self._clock())
            step = failed(name, error)
            pace.run = None
        if step is None:
            pace.run = None
        rests = step is not None and step.outcome in ("done", "dropped", "failed") and not is_conversion(step)
        if rests or pace.run is None:
            pace.due = self._clock() + self._pause(name)
        if step is not None and self._is_news(step, pace):
            yield step

    def _is_news(self, step: MaintenanceStep, pace: _Pace) -> bool:
        before, pace.said[step.task] = pace.said.get(step.task), step.text
        return step.outcome == "done" or (step.outcome != "nothing" and step.text != before)


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
