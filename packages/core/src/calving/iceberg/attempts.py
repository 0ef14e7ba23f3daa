"""Runs attempts at tables in parallel, and measures and reports them. An attempt that hangs delays only its own
table.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from calving.errors import UnavailableError
from calving.model.mutation_counts import MutationCounts
from calving.model.text import counted, natural
from calving.protocol.commit import Settled
from calving.protocol.coordinator import Committed, Failed
from calving.status.values import TableCommit

R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class UnfinishedAttempt:
    """An attempt that has not ended, or was not made. ``reason`` tells the user why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Raised:
    """An attempt that ended with an error. It may have made its commit before."""

    error: Exception


class Attempts:
    """At most one attempt for each key at a time, and at most ``together`` attempts in the foreground.

    An attempt that takes longer than ``seconds`` continues in the background. Until it ends, no other attempt is made
    for its key. Its thread does not delay the end of the process.

    Other work takes a ``turn`` at a key between attempts. An attempt waits at most ``seconds`` for a turn to end, then
    begins beside it. Its own time starts only then, so a turn never makes it late (K11).
    """

    def __init__(self, together: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._together, self._seconds, self._clock = together, seconds, clock
        self._lock = threading.Condition()
        self._began: dict[Hashable, float] = {}
        self._turns: dict[Hashable, float] = {}
        """When each turn began."""

    @contextmanager
    def turn(self, key: Hashable) -> Iterator[None]:
        """Wait until no attempt is made besides late ones; then none begins for this key until the end of the context.

        :raises UnavailableError: an attempt for the key is late, or another turn at it; or attempts followed each other
            for too long.
        """
        with self._lock:
            if not self._lock.wait_for(lambda: self._is_quiet(key), self._seconds) or key in self._turns:
                raise UnavailableError("other commits have not ended, so the table's maintenance waits")
            self._turns[key] = self._clock()
        try:
            yield
        finally:
            with self._lock:
                del self._turns[key]
                self._lock.notify_all()

    def _is_quiet(self, key: Hashable) -> bool:
        now = self._clock()
        return all(each != key and now - began >= self._seconds for each, began in self._began.items())

    def _has_turn(self, key: Hashable) -> bool:
        """Whether a turn at this key lasts. One that takes too long counts no more: its commit may hang."""
        return key in self._turns and self._clock() - self._turns[key] < self._seconds

    def run(self, jobs: Mapping[K, Callable[[], R]]) -> Iterator[tuple[K, R | UnfinishedAttempt | Raised]]:
        """Run the jobs; yields each result, or the error that its job raises, when the job ends."""
        ended: queue.SimpleQueue[tuple[K, R | Raised]] = queue.SimpleQueue()
        waiting, deadlines, late = deque(jobs), dict[K, float](), 0
        while waiting or deadlines:
            while waiting and len(deadlines) < self._together:
                key = waiting.popleft()
                refused = self._begin(key, late)
                if refused is not None:
                    yield key, refused
                    continue
                deadlines[key] = self._clock() + self._seconds + self._start(key, jobs[key], ended)
            if not deadlines:
                continue
            key = min(deadlines, key=lambda k: deadlines[k])
            try:
                done, result = ended.get(timeout=max(0.0, deadlines[key] - self._clock()))
            except queue.Empty:
                del deadlines[key]
                late += 1
                yield key, UnfinishedAttempt(f"still committing after {self._seconds:.0f} s")
                continue
            if deadlines.pop(done, None) is not None:
                yield done, result

    def _begin(self, key: Hashable, late: int) -> UnfinishedAttempt | None:
        """Start an attempt for this key. Returns the reason if no attempt can be made now."""
        with self._lock:
            if key in self._began:
                return UnfinishedAttempt(f"still committing after {self._clock() - self._began[key]:.0f} s")
            if late >= self._together:
                # Other attempts would probably hang, too, each group for as long as the first one.
                before = counted(late, "commit")
                return UnfinishedAttempt(f"not tried: {before} before it did not come back in {self._seconds:.0f} s")
            self._began[key] = self._clock()
            return None

    def _start(self, key: K, job: Callable[[], R], ended: queue.SimpleQueue[tuple[K, R | Raised]]) -> float:
        """Returns how long the attempt may wait for a turn, in seconds."""
        with self._lock:
            patience = self._seconds if self._has_turn(key) else 0.0

        def run() -> None:
            result: R | Raised
            if patience:
                with self._lock:
                    self._lock.wait_for(lambda: not self._has_turn(key), patience)
            try:
                result = job()
            except Exception as error:  # this thread has no caller that could catch it
                result = Raised(error)
            with self._lock:
                del self._began[key]
                self._lock.notify_all()
            ended.put((key, result))

        threading.Thread(target=run, name="calving-commit", daemon=True).start()
        return patience


class Stopwatch:
    """Seconds by step, added up over all tries. Steps do not nest, and pauses between tries belong to no step."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self.steps: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = self._clock()
        try:
            yield
        finally:
            self.add(name, self._clock() - started)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds that were measured elsewhere."""
        self.steps[name] = self.steps.get(name, 0.0) + seconds

    @property
    def seconds(self) -> float:
        """Seconds since the stopwatch was made."""
        return self._clock() - self._started


class Report:
    """The report of one table in one cycle, which may include several parked commits."""

    def __init__(self, table: str, commit_id: UUID) -> None:
        self._table, self._commit_id = table, commit_id
        self.watch = Stopwatch()
        self._files = self._records = 0
        self._head: Mapping[str, str] = {}
        self._counts: MutationCounts | None = None

    def settled(self, done: Settled, head: Mapping[str, str], counts: MutationCounts | None) -> None:
        """Add a settled commit. ``head``: the summary of the branch's head, if the head has changed. ``counts``: the
        commit's row mutations.
        """
        if done.snapshot_id is not None and counts is not None:
            self._counts = (self._counts or MutationCounts()) + counts
        self._files += len(done.admitted.data_files) + len(done.admitted.delete_files)
        self._records += sum(f.record_count for f in done.admitted.data_files)
        self._head = head or self._head

    def value(self, outcome: Committed | Failed) -> TableCommit:
        """The report. Its total seconds exceed the sum of its steps, because pauses between tries belong to no step."""
        failed = isinstance(outcome, Failed)
        return TableCommit(
            table=self._table,
            outcome="failed" if failed else "done" if self._head else "unchanged",
            seconds=self.watch.seconds,
            steps=dict(self.watch.steps),
            files=self._files,
            records=self._records,
            reason=outcome.reason if isinstance(outcome, Failed) else None,
            total_files=self._total("total-data-files"),
            total_deletes=self._total("total-delete-files"),
            total_bytes=self._total("total-files-size"),
            mutations=self._counts,
            commit_id=str(self._commit_id),
        )

    def _total(self, name: str) -> int | None:
        return natural(self._head.get(name))
