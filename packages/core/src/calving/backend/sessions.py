"""The part of a session that is the same for every store: how members of a Kafka consumer group publish."""

from __future__ import annotations

import contextlib
import struct
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from calving.backend.entries import Encoded
from calving.backend.interface import Session
from calving.backend.options import LogOptions
from calving.errors import FencedError
from calving.model.dead_letters import DeadLetter
from calving.model.events import Publication, WorkerEnd
from calving.model.sink import Claim, SinkIdentity
from calving.source.producing import DeadLetterWriter

_METADATA_MAGIC = b"CGMDv2:"


class GroupSession(Session):
    """Checks the claim, writes the dead letters, and encodes the events. A store implements ``append`` and
    ``release``.
    """

    def __init__(self, sink: SinkIdentity, options: LogOptions) -> None:
        self._group, self._max_bytes = sink.group, options.max_message_bytes
        self._signer = options.signer(sink)
        self._dead_letters = DeadLetterWriter(sink)
        self._closed = False

    def publish(self, publication: Publication, claim: Claim) -> None:
        if not _has_member(claim):
            raise FencedError(f"publication refused: this worker is not a member of group '{self._group}'")
        self.write_dead_letters(publication.dead_letters)
        encoded = Encoded.of_worker(self._group, publication, self._max_bytes)
        self.append(publication, encoded.signed(self._signer), claim)

    def report_end(self, end: WorkerEnd) -> None:
        encoded = Encoded.of_end(self._group, end, self._max_bytes)
        self.append(Publication((), {}, {}), encoded.signed(self._signer), Claim("", None))

    def write_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Write the dead letters before the publication. A store in Kafka writes them together with the publication,
        and does nothing here.

        :raises UnavailableError: not all of them are in the topic; some may be.
        """
        self._dead_letters.write(letters)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.release()

    @abstractmethod
    def release(self) -> None:
        """Give up the leadership, and release the session's resources. Called once."""

    @abstractmethod
    def append(self, publication: Publication, encoded: Encoded, claim: Claim) -> None:
        """Atomically append ``encoded``, advance the source positions and store their topic ids, as ``publish``
        promises. ``claim`` names a member of the group, and may be stale; it names none if the publication moves no
        position.

        :raises FencedError, UnavailableError, OutcomeUnknownError: as ``publish``.
        """


def _has_member(claim: Claim) -> bool:
    """Whether the claim's metadata names a member of a generation. The broker would also accept metadata without a
    member.

    The form is librdkafka's serialization (``rd_kafka_consumer_group_metadata_write``): magic, generation, group,
    member. Each text ends with a NUL.
    """
    token = claim.token
    if not isinstance(token, bytes) or not token.startswith(_METADATA_MAGIC):
        return False
    body = token[len(_METADATA_MAGIC) :]
    (generation,) = struct.unpack("<i", body[:4])
    member = body[4:].split(b"\0")[1]
    return generation >= 0 and bool(member) and bool(claim.member_id)


class Closable(Protocol):
    def close(self) -> object: ...


C = TypeVar("C", bound=Closable)


@contextlib.contextmanager
def closing_on_error(opened: C) -> Iterator[C]:
    """Close ``opened`` if the block raises an error."""
    try:
        yield opened
    except BaseException:
        opened.close()
        raise
