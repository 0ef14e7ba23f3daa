"""The parts of a session that are the same for every store: the settings of its log, how members of a Kafka consumer
group publish, and how coordinators append.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal, Protocol, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from calving.backend.entries import Encoded, Entries
from calving.backend.headers import Signer
from calving.backend.interface import Cursor, Session
from calving.errors import DataLossError, FencedError, UnavailableError
from calving.model.dead_letters import DeadLetter
from calving.model.events import NOTHING_ATTACHED, Attachment, Envelope, Event, Publication, WorkerEnd
from calving.model.offsets import ControlOffsets, Topic
from calving.model.sink import Claim, SinkIdentity
from calving.protocol.forms import check_form
from calving.source.producing import DeadLetterWriter


class LogOptions(BaseModel):
    """Settings of every backend."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    on_truncation: Literal["fail", "continue"] = Field(
        "fail",
        alias="iceberg.control.on-truncation",
        description="The coordinator's response if the control log no longer has the saved position. `continue`: it"
        " reads the entries that are left.",
    )
    max_message_bytes: int = Field(
        900_000,
        ge=20_000,
        alias="iceberg.control.max-message-bytes",
        description="Size limit of a control event, in bytes; the sink divides longer lists of files. Keep it below"
        " the store's limit: with Kafka, the topic's max.message.bytes.",
    )
    secret: SecretStr | None = Field(
        None,
        min_length=16,
        alias="iceberg.control.secret",
        description="The secret with which all workers of the sink sign their control events: at least 16 characters."
        " With it the sink ignores events of its group that are not signed so, those of the Java sink included.",
    )
    old_secret: SecretStr | None = Field(
        None,
        min_length=16,
        alias="iceberg.control.old-secret",
        description="A second secret whose signatures the sink accepts, to change `iceberg.control.secret` while"
        " workers run.",
    )

    @model_validator(mode="after")
    def _has_a_secret(self) -> LogOptions:
        if self.old_secret is not None and self.secret is None:
            raise ValueError("iceberg.control.old-secret needs iceberg.control.secret")
        return self

    def signer(self, sink: SinkIdentity) -> Signer | None:
        """None without a secret: then nothing is signed or checked."""
        if self.secret is None:
            return None
        old = None if self.old_secret is None else self.old_secret.get_secret_value().encode()
        return Signer(self.secret.get_secret_value().encode(), sink.control_topic, sink.group, old)


log = logging.getLogger(__name__)
_END_SECONDS = 60.0


class EntryCursor(Cursor):
    """Encodes the coordinator's events; ``entries`` decodes what the store reads. A store implements ``save`` and
    ``release``.
    """

    def __init__(self, sink: SinkIdentity, options: LogOptions, log_name: str, *, replay: bool, watch: bool) -> None:
        self._group, self._max_bytes, self._on_truncation = sink.group, options.max_message_bytes, options.on_truncation
        self.log_name = log_name
        self._signer = options.signer(sink)
        # Whoever watches begins with entries from before: they may be of a former secret, or version.
        self.entries = Entries(sink.group, log_name, self._signer, strict=replay, progress=watch, logs=not watch)
        self._closed = False
        self.sender = str(uuid4())
        """The sender of the entries that this cursor appends."""

    @property
    def undecodable(self) -> int:
        return self.entries.undecodable.total()

    @property
    def unsigned(self) -> str:
        return self.entries.unsigned

    @property
    def unreadable(self) -> Sequence[str]:
        start, places = self.log.start, self.entries.unreadable
        return [text for (partition, offset), text in places.items() if offset >= start.get(partition, 0)]

    def acknowledge(
        self,
        position: ControlOffsets,
        events: Sequence[Event],
        attached: Attachment = NOTHING_ATTACHED,
        departed: Collection[Topic] = (),
    ) -> None:
        encoded = Encoded.of_coordinator(self._group, events, attached, self._max_bytes)
        self.save(position, encoded.signed(self._signer), departed)

    def start_of_replay(self, saved: int | None, end: int) -> int:
        """The offset at which the replay of a log with entries 1 to ``end`` starts: the saved position, or the first
        entry if none is saved.

        :raises DataLossError: the log ends before the saved position, and ``on-truncation`` is not ``continue``.
        """
        if saved is None or saved <= end:
            return saved or 1
        text = f"{self.log_name}: the saved position {saved} is beyond the end of the log, {end}: it lost events"
        if self._on_truncation == "fail":
            raise DataLossError(
                f"{text}; stop all workers and run `calving recover FILE`, or set iceberg.control.on-truncation ="
                " continue to replay the entries that are left"
            )
        log.error("%s; replaying from the first entry", text)
        return 1

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


def read_to_end(cursor: Cursor, clock: Callable[[], float] = time.monotonic) -> Iterator[Envelope]:
    """The entries of the control log from the cursor's start at least to the end that the log had when it was opened.

    :raises UnavailableError: the end was not reached within 60 s.
    :raises NewerVersionError: workers of a later version have written what this one would misread.
    """
    until = clock() + _END_SECONDS
    while not cursor.has_ended:
        if clock() > until:
            raise UnavailableError(
                f"the control log was not read to its end within {_END_SECONDS:.0f} s: the backend is slow or away. Try"
                " again"
            )
        for envelope in cursor.read(0.2):
            check_form(envelope)
            yield envelope


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
