"""Numbers and times as people read them."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """``0.4 s``, ``12 s``, ``7 min``, ``3 h``, ``2 d``."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    for unit, size, until in (("s", 1, 120), ("min", 60, 7_200), ("h", 3_600, 172_800)):
        if seconds < until:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def ago(at: float | None, now: float) -> str:
    """How long ago a moment was."""
    return "-" if at is None else f"{duration(now - at)} ago"


def count(number: float) -> str:
    return f"{number:,.0f}"
