"""When the records of a partition arrived, as far as a worker has seen its end grow: pure, time is an argument."""

from __future__ import annotations

_MOST = 16
"""How many arrivals of a partition are kept. Older ones are joined in pairs."""

Arrivals = tuple[tuple[int, float], ...]
"""The ends that a partition has had, each with the time when it was first seen; both grow."""


def seen(before: Arrivals, end: int, now: float, visible: int) -> Arrivals:
    """The arrivals after a look at the partition's end. Records below ``visible`` are in their tables: their arrivals
    are dropped.
    """
    kept = tuple(each for each in before if each[0] > visible)
    if end > max(visible, kept[-1][0] if kept else 0):
        kept = (*kept, (end, now))
    return _joined(kept) if len(kept) > _MOST else kept


def arrived(arrivals: Arrivals, visible: int) -> float | None:
    """When the first record at or above ``visible`` was seen, or a little earlier; None if there is none."""
    return next((at for end, at in arrivals if end > visible), None)


def _joined(arrivals: Arrivals) -> Arrivals:
    """Pairs of neighbours become one, which has the end of the later and the time of the earlier: an age is never too
    small for what was seen.
    """
    pairs = zip(arrivals[::2], arrivals[1::2], strict=False)
    last = arrivals[-1:] if len(arrivals) % 2 else ()
    return (*((later[0], earlier[1]) for earlier, later in pairs), *last)
