"""The part of a cursor that is the same for every store whose entries are encoded events: how coordinators append."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from uuid import uuid4

from calving.backend.entries import Encoded, Entries, LogOptions
from calving.backend.interface import Cursor
from calving.model.events import NOTHING_ATTACHED, Attachment, Event
from calving.model.offsets import ControlOffsets, Topic
from calving.model.sink import SinkIdentity


class EntryCursor(Cursor):
    """Encodes the coordinator's events; ``entries`` decodes what the store reads. A store implements ``save`` and
    ``release``.
    """

    def __init__(self, sink: SinkIdentity, options: LogOptions, log_name: str, *, replay: bool, watch: bool) -> None:
        self._group, self._max_bytes = sink.group, options.max_message_bytes
        self.entries = Entries(sink.group, log_name, strict=replay, progress=watch)
        self._closed = False
        self.sender = str(uuid4())
        """The sender of the entries that this cursor appends."""

    @property
    def undecodable(self) -> int:
        return self.entries.undecodable.total()

    def acknowledge(
        self,
        position: ControlOffsets,
        events: Sequence[Event],
        attached: Attachment = NOTHING_ATTACHED,
        departed: Collection[Topic] = (),
    ) -> None:
        self.save(position, Encoded.of_coordinator(self._group, events, attached, self._max_bytes), departed)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.release()

    @abstractmethod
    def release(self) -> None:
        """Release the cursor's resources. Called once."""

    @abstractmethod
    def save(self, position: ControlOffsets, encoded: Encoded, departed: Collection[Topic]) -> None:
        """Append ``encoded`` and, if it is not empty, save ``position``, atomically, as ``acknowledge`` promises.

        :raises ProtocolError: the cursor does not replay.
        :raises FencedError, UnavailableError, OutcomeUnknownError: as ``acknowledge``.
        """
