"""What the settings say about reading the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from calving.model.offsets import SourceOffsets
from calving.source.start import Start


@dataclass(frozen=True, slots=True)
class SourcePolicy:
    start: Start
    on_data_loss: Literal["fail", "skip"]
    bounds_seconds: float = 1.5
    """Seconds between requests for the source's ends while no answer is owed."""
    idle_seconds: float = float("inf")
    """The same while the worker asks for a cycle as soon as it sees records."""
    mirror: bool = False
    """Whether stored positions are copied to the consumer group."""
    stop_at: SourceOffsets | None = None
    """Offsets at which reading stops, 0 for other partitions. In a replay they leave what fails again for the next."""
    skipping: str = ""
    """What an operator does about records that the broker no longer has, unless they are skipped."""
    deaf_seconds: float = float("inf")
    """While a worker leads, the control log gets an entry at least every so many seconds."""
