"""Maintains the tables of a sink beside its commits, on a thread of the worker that leads (K11 to K14).

Planning runs on this thread, rewriting in a process of its own, and searches in very large files in at most half of the
engine's slots. A commit is made in a turn of the same ``Attempts`` as the sink's commits: the next commit of the table
waits for it, and no attempt of one is wasted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyiceberg.catalog import Catalog

from calving.errors import UnavailableError
from calving.iceberg.attempts import Attempts
from calving.iceberg.maintenance import Turn
from calving.iceberg.resolvers import Resolvers
from calving.maintenance.rewriting_process import RewritingProcess
from calving.model.events import TableId
from calving.mutations.lookup import Tasks
from calving.retries import Retries
from calving.runtime.maintenance.compact import COMPACT
from calving.runtime.maintenance.maintained import MaintainedTables
from calving.runtime.maintenance.maintainer import DEFAULT, Maintainer, MaintenanceOrder
from calving.runtime.maintenance.manifests import MANIFESTS
from calving.runtime.maintenance.means import Means
from calving.runtime.maintenance.step import MaintenanceStep
from calving.runtime.maintenance.unmoved import UnmovedFiles
from calving.runtime.maintenance.watch import continuous
from calving.settings.load import Sink
from calving.status.board import Board
from calving.status.maintenance import ALL, MaintenanceRun, after_begin, after_look, after_run, with_due_of

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 10.0


class LeaderMaintenance:
    """The maintenance of a sink while this process leads. It begins at once, and ends with ``stop``."""

    def __init__(
        self,
        sink: Sink,
        catalog: Catalog,
        tables: Callable[[], Iterable[str]],
        resolvers: Resolvers,
        attempts: Attempts,
        tasks: Callable[[], Tasks | None],
        board: Board,
    ) -> None:
        """``tables``: those that may hold records of the sink. ``tasks``: the engine."""
        self._sink, self._held, self._attempts, self._board = sink, tables, attempts, board
        board.maintenance(lambda before: with_due_of(before, ()))  # another worker may have done it meanwhile
        self._unmoved = UnmovedFiles(sink, catalog, board)
        self._maintained = MaintainedTables(sink, catalog, time.monotonic)
        self._stop = threading.Event()
        self._rewriting = RewritingProcess()
        means = Means(
            catalog=catalog,
            cache=resolvers.cache,
            tasks=lambda: half_of(tasks()),
            turn=self._turn_of,
            rewriting=self._rewriting,
            made=resolvers.learn,
            observer=BoardObserver(board, time.time, lambda name: int(sink.maintenance(name, "pause_ms")) / 1000),
        )
        # The next leader of the sink goes on at once with the lease of one that was killed.
        self._maintainer = Maintainer(sink, MaintenanceOrder(), f"the leader of {sink.group}", means)
        self._thread = threading.Thread(target=self._run, name="calving-maintenance", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give up what is being rewritten, make no more commits, and give the leases back."""
        self._stop.set()
        self._rewriting.stop()

    def join(self, seconds: float) -> None:
        """Wait until it has ended, at most ``seconds``."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                retries = Retries(self._sink.keys.retry_seconds)
                for step in continuous(self._maintainer, self._tables, self._stop.wait, retries):
                    if not self._stop.is_set():
                        _tell(step)
            except Exception as error:  # the thread has no caller; a catalog may raise anything
                log.warning("the tables are not maintained: %s: %s", type(error).__name__, error)
                self._stop.wait(_AGAIN_SECONDS)

    def _tables(self) -> Sequence[str]:
        held = list(dict.fromkeys(self._held()))
        names, others = self._maintained.among(held)
        looked_at = self._unmoved.look(others, time.time())
        self._board.maintenance(lambda before: with_due_of(before, (*names, *looked_at)))
        return names

    def _turn_of(self, table: TableId) -> Turn:
        @contextmanager
        def turn() -> Iterator[bool]:
            with self._attempts.turn(table):
                if self._stop.is_set():
                    raise UnavailableError("this worker does not lead any more")
                yield True

        return turn


def _tell(step: MaintenanceStep) -> None:
    level = logging.WARNING if step.outcome == "failed" else logging.INFO
    log.log(level, "maintenance (%s): %s", step.task, step.line())


class BoardObserver:
    """Writes what is done to the board (K20)."""

    def __init__(self, board: Board, clock: Callable[[], float], pause: Callable[[str], float]) -> None:
        """``clock``: seconds since the epoch. ``pause``: of a table, in seconds."""
        self._board, self._clock, self._pause = board, clock, pause

    def begins(self, table: str) -> None:
        """The next task of a table begins."""
        self._board.maintenance(lambda before: after_begin(before, table, self._clock(), self._pause(table)))

    def found(self, table: str, task: str, due: Mapping[str, tuple[int, int]]) -> None:
        """A task has planned work: files and bytes by partition."""
        self._board.maintenance(lambda before: after_look(before, table, task, due, self._clock()))

    def ends(self, table: str, step: MaintenanceStep | None, seconds: float) -> None:
        """What came of it, and how long it took."""
        run = None if step is None else _run_of(step, self._clock(), seconds)
        self._board.maintenance(lambda before: after_run(before, table, run))


def _run_of(step: MaintenanceStep, now: float, seconds: float) -> MaintenanceRun:
    size = step.numbers.get("bytes") if step.task in (COMPACT, MANIFESTS) else None
    files = step.numbers.get("files") if step.task == COMPACT else None
    return MaintenanceRun(
        task=step.task if step.task in DEFAULT else ALL,  # a step about the whole table has no task of its own
        outcome=step.outcome,
        text=step.text,
        ended_at=now,
        seconds=seconds,
        rewritten=size if isinstance(size, int) else 0,
        part=str(step.numbers.get("partition", "")) if step.task == COMPACT else "",
        files=files if isinstance(files, int) else 0,
    )


class HalfOfSlots:
    """At most half of an engine's slots at the same time: the batches of the sink have the others (K11)."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    @property
    def slots(self) -> int:
        """Tasks that run at the same time."""
        return max(1, self._tasks.slots // 2)

    def map(self, function: Callable[[str], str], payloads: Sequence[str]) -> list[str]:
        """The function's result for each payload, in order."""
        parts = (payloads[at : at + self.slots] for at in range(0, len(payloads), self.slots))
        return [result for part in parts for result in self._tasks.map(function, part)]


def half_of(tasks: Tasks | None) -> Tasks | None:
    """Half of an engine's slots; None if it has one, which the sink's batches need."""
    return HalfOfSlots(tasks) if tasks is not None and tasks.slots > 1 else None
