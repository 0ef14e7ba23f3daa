"""Detects silence of the control log, and transactions that stay open: pure, time is an argument."""

from __future__ import annotations

from calving.errors import UnexpectedError
from calving.model.offsets import SourceOffsets, TopicPartition

_SECONDS = 30.0
_READS = 20
"""Entries that are missing for so many seconds and so many reads count as silence. Reads count because a busy worker
reads rarely.
"""
HIDDEN_SECONDS = 60.0
"""A transaction that has been open for this many seconds is named in the log."""


class SilenceDetector:
    """Raises an error if the control log stays silent although an entry must have come."""

    def __init__(self, within: float, now: float) -> None:
        """``within``: while a worker leads, the log gets an entry at least every so many seconds."""
        self._within = within
        self._heard = now
        self._spoke: float | None = None
        self._reads = 0

    def spoke(self, now: float) -> None:
        """This member has published, and must now hear its own entry."""
        if self._spoke is None:
            self._spoke = now

    def listened(self, now: float, heard: bool) -> None:
        """:raises UnexpectedError: no entry has come for too long."""
        if heard:
            self._heard, self._spoke, self._reads = now, None, 0
            return
        self._reads += 1
        if self._reads <= _READS:
            return
        if self._spoke is not None and now - self._spoke > _SECONDS:
            raise UnexpectedError(f"the worker has not heard its own publication for {now - self._spoke:.0f} s")
        if now - self._heard > self._within + _SECONDS:
            raise UnexpectedError(f"the worker has heard nothing of the control log for {now - self._heard:.0f} s")


class OpenTransactions:
    """Records behind open transactions of their producers: no consumer can read them. They are lag, counted apart."""

    def __init__(self) -> None:
        self.records = 0
        self._since: dict[TopicPartition, float] = {}
        self._told: set[TopicPartition] = set()

    def look(self, now: float, stable: SourceOffsets, ends: SourceOffsets) -> list[TopicPartition]:
        """Partitions with a transaction that has been open for long. Each partition is returned only once until its
        transaction ends.
        """
        hidden = {tp: end - stable[tp] for tp, end in ends.items() if tp in stable and end > stable[tp]}
        self.records = sum(hidden.values())
        self._since = {tp: self._since.get(tp, now) for tp in hidden}
        self._told &= hidden.keys()
        hidden_long = [tp for tp, since in sorted(self._since.items()) if now - since >= HIDDEN_SECONDS]
        new = [tp for tp in hidden_long if tp not in self._told]
        self._told |= set(new)
        return new
