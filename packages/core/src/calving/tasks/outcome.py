"""What becomes of the records of a block."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from calving.records.values import RecordError


@dataclass(slots=True)
class Outcome:
    """Every record of a block has exactly one outcome: written, filtered by a named cause, or bad. The indices of
    ``bad`` are places in the block.
    """

    written: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    bad: list[RecordError] = field(default_factory=list)
