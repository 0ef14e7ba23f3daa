"""What a worker needs from the source: a place in the consumer group, and the topics' bounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from calving.model.membership import Claim
from calving.model.offsets import SourceOffsets, TopicPartition

NOTHING: SourceOffsets = {}


class Listener(Protocol):
    """Hears of changes from inside ``Group.poll``, one change after the other."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These are ours from now on."""

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These go to another member once this returns; the claim still holds."""

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """These went to another member some time ago."""


class Bounds(NamedTuple):
    """First available offsets, and last stable offsets: records below are committed and can be read."""

    begins: SourceOffsets
    ends: SourceOffsets


class Group(ABC):
    """One member of the sink's consumer group. Used by one thread."""

    joined: bool = False
    """Whether the group has let this member in, with or without partitions."""
    broken: bool = False
    """Whether the membership is beyond repair: close it, and join again."""

    @abstractmethod
    def tell(self, listener: Listener) -> None:
        """Tell a new listener what is held already: a membership outlives its listeners."""

    @abstractmethod
    def poll(self, timeout: float, listener: Listener) -> None:
        """Stay a member for up to ``timeout`` seconds, telling ``listener`` what changes meanwhile.

        :raises Unavailable: the broker cannot be reached.
        """

    @abstractmethod
    def claim(self) -> Claim:
        """Proof of membership, as of now."""

    @abstractmethod
    def mirror(self, positions: SourceOffsets) -> None:
        """Copy positions to the group, where lag tools look. Nothing reads them; a copy that fails is left out."""

    @abstractmethod
    def partitions(self) -> frozenset[TopicPartition]:
        """All partitions that the topics have now.

        :raises ConfigError: a topic of the list does not exist.
        """

    @abstractmethod
    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Kafka's identities of these topics now: another one is another topic, whatever its offsets are. Those that
        are gone, or have none (brokers before 2.8), are left out.

        :raises Unavailable: the broker cannot be reached.
        """

    @abstractmethod
    def bounds(self, partitions: Collection[TopicPartition], read_up_to: SourceOffsets = NOTHING) -> Bounds:
        """What can be read of ``partitions`` now. Begins are left out where the end is what was ``read_up_to``."""

    @abstractmethod
    def highs(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        """Where the topics end, with what stands behind open transactions."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group at once. Safe to call twice."""
