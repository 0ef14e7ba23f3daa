"""Reports of commits for the status of the sink, with the time that each step took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

from calving.model.mutations import MutationCounts
from calving.protocol.commit import Settled
from calving.protocol.coordinator import Committed, Failed
from calving.status.values import TableCommit


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
        text = self._head.get(name)
        return int(text) if text is not None and text.isdecimal() else None
