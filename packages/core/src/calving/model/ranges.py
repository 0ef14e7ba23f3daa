"""Ranges of source offsets that a task reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Source offsets ``start`` up to, not including, ``end`` of one partition.

    :raises ValueError: the range would end before its start, or start below 0.
    """

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"there are no offsets from {self.start} up to {self.end}")
