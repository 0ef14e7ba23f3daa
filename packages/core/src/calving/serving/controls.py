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
        """Loops whose last step ended longer ago than three times their longest step, each with the seconds since
        then.
        """

    def pause(self) -> None:
        """Start no more batches; answer the coordinator with the finished batches."""

    def resume(self) -> None:
        """Go on after a pause."""

    def restart(self) -> None:
        """Start over from the stored positions, as after an error."""

    def commit(self) -> bool:
        """Start a commit cycle now. Returns false if this worker does not lead."""
