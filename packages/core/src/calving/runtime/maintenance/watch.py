"""Maintains tables continuously, each at its own pace (K9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from calving.retries import Retries
from calving.runtime.maintenance.deletes import DELETES
from calving.runtime.maintenance.step import MaintenanceStep, failed

Run = Callable[[str], Iterator[MaintenanceStep]]
"""Starts a run of all tasks for a table, which yields its steps; a step makes at most one commit."""


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
        if step is None or pace.run is None or (step.outcome in ("done", "dropped", "failed") and step.task != DELETES):
            pace.due = self._clock() + self._pause(name)
        if step is not None and self._is_news(step, pace):
            yield step

    def _is_news(self, step: MaintenanceStep, pace: _Pace) -> bool:
        before, pace.said[step.task] = pace.said.get(step.task), step.text
        return step.outcome == "done" or (step.outcome != "nothing" and step.text != before)
