"""Commits of a sink that another engine cherry-picks after a rollback.

A cherry-pick adds the files of an abandoned snapshot, its source, in a new one. The summary of the new snapshot names
the source, and has no ledger. So what the source had added to the sink's ledger is in the table again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile

from calving.model.coverage import Coverage, less, merged
from calving.protocol.rollback import Ancestor, Line

SOURCE_SNAPSHOT_ID = "source-snapshot-id"
"""The summary entry of a cherry-pick. Iceberg writes it."""

Held = Callable[[Ancestor], Coverage | None]
"""The source offsets that the ledger in a snapshot's summary holds; None if it has no ledger of the sink."""


def source_of(snapshot: Ancestor) -> int | None:
    """The id of the snapshot that this one is a cherry-pick of; None if it is none."""
    source = snapshot.summary.get(SOURCE_SNAPSHOT_ID, "")
    return int(source) if source.isdecimal() else None


def picked(line: Line, held: Held) -> Coverage:
    """The source offsets that the cherry-picks above the newest ledger of a branch have added to it, as far as their
    sources have not expired.
    """
    total: Coverage = {}
    for snapshot in takewhile(lambda each: held(each) is None, line.snapshots):
        if (source := source_of(snapshot)) is not None:
            added = added_by(line, source, held) or {}
            total = {tp: merged((*total.get(tp, ()), *added.get(tp, ()))) for tp in {*total, *added}}
    return total


def added_by(line: Line, snapshot_id: int, held: Held) -> Coverage | None:
    """The source offsets that a snapshot added to the ledger; None if it has expired, or the one with the ledger before
    it.
    """
    shown = _down_from(line, snapshot_id)
    first = next(shown)
    if first is None or (now := held(first)) is None:
        return None if first is None else {}
    for snapshot in shown:
        if snapshot is None:
            return None
        if (before := held(snapshot)) is not None:
            return less(now, before)
    return now


def _down_from(line: Line, snapshot_id: int | None) -> Iterator[Ancestor | None]:
    """A snapshot and those below it, to the first one of its branch; None in the place of one that has expired."""
    while snapshot_id is not None:
        snapshot = line.snapshot(snapshot_id)
        yield snapshot
        if snapshot is None:
            return
        snapshot_id = snapshot.parent if snapshot.parent is not None else line.parent_of(snapshot.place)
