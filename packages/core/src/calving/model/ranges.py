"""Ranges of source offsets that a task reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Source offsets ``start`` up to, not including, ``end`` of one partition."""

    topic: str
    partition: int
    start: int
    end: int
