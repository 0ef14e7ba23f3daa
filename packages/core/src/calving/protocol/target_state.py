"""The state of a sink that an operator has asked for: an entry of the control log tells it, and coordinators repeat it,
so that it outlives the entry.
"""

from __future__ import annotations

from calving.model.events import Envelope, TargetState


class TargetStateInUse:
    """The state by the last entry that tells one; RUNNING if none does."""

    def __init__(self, state: TargetState = TargetState.RUNNING) -> None:
        self.state = state

    @property
    def stopped(self) -> bool:
        """Whether no worker is to be a member of the group."""
        return self.state is TargetState.STOPPED

    @property
    def repeated(self) -> TargetState | None:
        """What a coordinator attaches: nothing while the sink runs, as ever."""
        return self.state if self.stopped else None

    def hear(self, envelope: Envelope) -> None:
        """Take in an entry of the control log."""
        self.state = envelope.attached.state or self.state
