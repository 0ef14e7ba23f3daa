"""What a coordination backend is: a control log, stored source positions, a saved position, and an election.

Three classes, eleven methods. The rules B1 to B10 are quoted where a method has to keep them. An error tells the
caller's next move and nothing else may leave a backend: ``Fenced`` (nothing written: join again), ``Unavailable``
(nothing written: try again), ``OutcomeUnknown`` (start over from ``committed``), ``ConfigError`` and ``DataLossError``
(an operator has to act).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import BaseModel

from calving.model.events import NOTHING_ATTACHED, Attachment, Envelope, Event, Publication
from calving.model.membership import Claim
from calving.model.offsets import ControlOffsets, SourceOffsets, TopicPartition


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """Where dead letters go. ``replication`` counts when the topic has to be created; None is the broker's default."""

    name: str
    context_headers: bool = True
    replication: int | None = None


@dataclass(frozen=True, slots=True)
class SinkIdentity:
    """Which sink it is, and how to reach Kafka (librdkafka properties)."""

    name: str
    group: str
    control_topic: str
    kafka: Mapping[str, str] = field(default_factory=dict)
    transactional_prefix: str = ""
    dead_letters: DeadLetterTopic | None = None


@dataclass(frozen=True, slots=True)
class ControlLog:
    """The log as a cursor found it. ``identity`` changes when the log is recreated."""

    identity: str
    start: ControlOffsets
    """Where the cursor starts to read."""
    end: ControlOffsets
    """Where the log ended when the cursor was opened."""


class Cursor(ABC):
    """A reader of the control log. Belongs to one thread, which may be another than its session's."""

    log: ControlLog

    @property
    def undecodable(self) -> int:
        """How many entries were skipped because they cannot be decoded."""
        return 0

    @abstractmethod
    def read(self, timeout: float) -> Sequence[Envelope]:
        """The next entries, waiting up to ``timeout`` seconds for the first; empty if there are none.

        B3: entries of one publisher come in the order published; ``(partition, offset)`` grows and is never given to
        two entries. B5: an entry may come twice. Entries that cannot be decoded are skipped, counted and logged. A
        cursor that does not replay may leave out the assignments of a DataComplete.

        :raises DataLossError: for a cursor that replays, an entry of this sink cannot be decoded.
        """

    @abstractmethod
    def acknowledge(
        self,
        position: ControlOffsets,
        events: Sequence[Event],
        attached: Attachment = NOTHING_ATTACHED,
        departed: Collection[str] = (),
    ) -> None:
        """Append ``events`` and save ``position`` (if not empty) for the next replay: both, or neither.

        Only for a cursor that replays. Entries below the saved position may be trimmed (B8). What is
        ``attached`` travels beside the events, as a publication's spans do. All coordinators write into one partition,
        so whoever hears an event of his own has heard all that his predecessors wrote. Positions in topics that
        have ``departed``, named ``within`` their identities, are dropped, where the store does not do so by itself.

        :raises Fenced: a newer coordinator exists; nothing was written. Step down.
        :raises Unavailable: nothing was written.
        :raises OutcomeUnknown: step down and replay.
        """

    @abstractmethod
    def rewind(self, positions: SourceOffsets) -> None:
        """Store ``positions`` as they are given, forward or back, and discard what is in the log, so that no
        coordinator hears it again: both, or neither (B9). An operator's act, while the group has no members.

        Only for a cursor that replays; it is of no further use, and the log may get a new identity by it.

        :raises Fenced: a newer coordinator exists; nothing was written. :raises Unavailable: nothing was written.
        :raises OutcomeUnknown: do it again.
        """

    @abstractmethod
    def close(self) -> None:
        """Free what is held. Safe to call twice."""


class Session(ABC):
    """One member's connection. Used by one thread; after an error it is closed, never repaired."""

    @abstractmethod
    def lead(self, held: Collection[TopicPartition], every: Collection[TopicPartition]) -> bool:
        """Stay alive, and say whether this member leads now.

        B7: one leader in the steady state, a dead one replaced within a bounded time. Liveness only: two leaders are
        harmless. ``held`` are this member's source partitions, ``every`` those of all topics.
        """

    @abstractmethod
    def committed(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        """The stored source positions. A partition that was never stored is absent.

        :raises Unavailable: try again.
        """

    @abstractmethod
    def topic_ids(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, str]:
        """Which topic the stored positions are in: the identity that came with the publication that stored each, empty
        if it named none (B10). A position that something else has stored, such as a rewind, is absent.

        :raises Unavailable: try again.
        """

    def log_ids(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, str]:
        """Which control log each stored position belongs to: its identity, empty where none was noted (B10). A backend
        that keeps positions and log as one has nothing to say: there they cannot come apart.

        :raises Unavailable: try again.
        """
        return {}

    def take_over(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are this member's from now on. A backend where an owner that died may have left something
        undecided decides it here, before it is asked for their positions.

        :raises Unavailable: try again.
        """
        return

    @abstractmethod
    def publish(self, publication: Publication, claim: Claim) -> None:
        """Append the events, move the source positions and note their topics' identities: all, or nothing (B1, B10);
        durable once it returns (B4).

        Dead letters are in the sink's dead-letter topic before the positions move; a backend that does not keep its
        log in Kafka may leave some there twice.

        B2: refused if ``claim`` is stale or without a member, or if a stored position is not the ``start`` given.

        :raises Fenced: refused; nothing was written. ``Stale``, a kind of it, if because of a stored position.
        :raises Unavailable: nothing was written.
        :raises OutcomeUnknown: start over from ``committed``.
        """

    @abstractmethod
    def follow(self, *, replay: bool) -> Cursor:
        """Read the control log: from the saved position if ``replay`` (from the earliest entry if none is saved, never
        from the latest: C1), else from its end, hearing every StartCommit published from now on (B6).

        :raises DataLossError: the saved position has been truncated away, and the settings do not say to go on.
        """

    @abstractmethod
    def watch(self) -> Cursor:
        """Read the control log as a coordinator would that is elected now, and be none: nobody is fenced, and the
        cursor cannot write. ``log.start`` is the saved position (the earliest entry if none is saved); some hundred
        entries before it come first, as far as they are still there.

        :raises DataLossError: the saved position has been truncated away, and the settings do not say to go on.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up the leadership, and free what is held. Safe to call twice."""


class Backend(ABC):
    """The store as a whole."""

    name: ClassVar[str]
    settings: ClassVar[type[BaseModel]]
    """Its own keys. The loader accepts them and hands them in, checked."""
    mirrors: ClassVar[bool] = False
    """Whether source positions are kept elsewhere than in the consumer group, which then gets a copy for lag tools."""

    @abstractmethod
    def __init__(self, sink: SinkIdentity, settings: BaseModel) -> None:
        """Nothing is contacted yet."""

    @abstractmethod
    def provision(self) -> None:
        """Create what is missing (topic, keys, nodes) and check what is there. Safe to call again.

        :raises ConfigError: what is there cannot serve exactly-once.
        """

    @abstractmethod
    def open(self, member_id: str) -> Session:
        """Connect. ``member_id`` is this process's alone. It may open again under it, after an error: what an earlier
        session has left undecided is decided then, and that session can no longer write.
        """
