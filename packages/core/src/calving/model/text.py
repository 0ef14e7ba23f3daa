"""Short texts for log lines and transcripts of the protocol."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

_SHOWN = 3

_DIGITS = 18
"""So many digits are below 2^63."""


def listed(items: Collection[object]) -> str:
    """The first three items, and how many more there are."""
    shown = [str(item) for _, item in zip(range(_SHOWN), items, strict=False)]
    more = len(items) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def counted(number: int, thing: str, things: str | None = None) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def printable(text: str, most: int | None = None) -> str:
    """Text of somebody else, safe to show: other characters are ``?``. ``most``: of a longer text its beginning."""
    shown = "".join(c if c.isprintable() else "?" for c in text[:most])
    return shown + "..." if most is not None and len(text) > most else shown


def printable_lines(text: str) -> str:
    """Like ``printable``, and the text keeps its lines."""
    return "\n".join(map(printable, text.splitlines()))


def natural(text: str | None) -> int | None:
    """The number that up to 18 ASCII digits are; None for anything else. For texts that somebody else may have written:
    ``int`` raises at thousands of digits.
    """
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def offsets_text(offsets: Mapping[int, int]) -> str:
    """``0: 17, 1: 4``, of a control log."""
    return listed([f"{partition}: {offset}" for partition, offset in sorted(offsets.items())]) or "nothing"


def commit_text(commit_id: UUID) -> str:
    """The first eight digits: enough to tell the cycles of a log file apart."""
    return commit_id.hex[:8]


def bytes_text(size: int) -> str:
    """``38.2 MiB``; of less than a KiB, bytes."""
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < _KIB:
            break
        amount, unit = amount / _KIB, larger
    return f"{amount:.1f}".removesuffix(".0") + f" {unit}"


_KIB = 1024
