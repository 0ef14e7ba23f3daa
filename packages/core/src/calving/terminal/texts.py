"""Numbers and times as people read them."""

from __future__ import annotations

from calving.status.backlog import Backlog


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


def speed(rate: float | None) -> str:
    """Records a second: ``0.4``, ``60,640``."""
    return "-" if rate is None else count(rate) if rate >= 10 or not rate else f"{rate:.1f}"


def records(number: int) -> str:
    """``1 record``, ``2,000,000 records``."""
    return f"{count(number)} {'record' if number == 1 else 'records'}"


def pace(backlog: Backlog, not_visible: int, now: float) -> str:
    """How far a worker has to read, how fast it reads, and how long that takes. What is not measured yet is said."""
    if backlog.behind is None:
        return "how much is to read is not known yet"
    if not backlog.behind:
        wait = "waits" if not_visible == 1 else "wait"
        return f"all are read, {records(not_visible)} {wait} for the next commit" if not_visible else "caught up"
    rate, left = backlog.rate(now), backlog.seconds_left(now)
    to_read = f"{records(backlog.behind)} to read"
    if rate is None:
        return f"{to_read}, speed and time left not measured yet"
    to_read = f"{to_read}, {speed(rate)} records/s"
    if left is not None:
        return f"{to_read}, about {duration(left)} left"
    known = {"falling-behind": ", more come than are read", "keeping-up": ", keeps up with new records"}
    return to_read + known.get(backlog.pace, ", time left not known yet")


def percent(share: float | None) -> str:
    """A share, rounded down: what is not complete never shows as 100%."""
    return "-" if share is None else f"{int(share * 100)}%"
