"""The actions that the server may request of its worker. No call blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from calving.status.values import Status


class Controls(Protocol):
    @property
    def status(self) -> Status:
        """All that the worker knows now."""

    def stopped_loops(self) -> Mapping[str, float]:
        """Loops that have not gone round within three times their longest step, and for how many seconds."""

    def pause(self) -> None:
        """Start no more batches; answer the coordinator with what there is."""

    def resume(self) -> None:
        """Go on after a pause."""

    def restart(self) -> None:
        """Start over from the stored positions, as after an error."""

    def commit(self) -> bool:
        """Start a commit cycle now. False: this worker does not lead."""
