"""The interface of sources: membership in the consumer group, and the bounds of topics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from calving.model.offsets import SourceOffsets, Topic, TopicPartition
from calving.model.sink import Claim
from calving.source.start import Start

NOTHING: SourceOffsets = {}
NotedOffsets = Mapping[TopicPartition, tuple[int, str]]
"""Offsets of partitions, each with a note."""


class Listener(Protocol):
    """Gets the changes of the assignment. ``Group.poll`` calls it, for one change after the other."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are now assigned to this member."""

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions go to another member once this call returns. Until then the claim is valid."""

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions already went to another member."""


class Bounds(NamedTuple):
    """First available offsets, and last stable offsets. Records below a last stable offset are committed and can be
    read.
    """

    begins: SourceOffsets
    ends: SourceOffsets


class Group(ABC):
    """One member of the sink's consumer group. One thread uses it."""

    joined: bool = False
    """Whether the group has accepted this member, with or without partitions."""
    broken: bool = False
    """Whether the membership is lost for good: close it, and join again."""

    @abstractmethod
    def set_listener(self, listener: Listener) -> None:
        """Tell a new listener the present assignment. A membership outlives its listeners."""

    @abstractmethod
    def poll(self, timeout: float, listener: Listener) -> None:
        """Keep the membership alive for up to ``timeout`` seconds, and tell ``listener`` all changes.

        :raises UnavailableError: the broker cannot be reached.
        """

    @abstractmethod
    def claim(self) -> Claim:
        """Proof of membership now."""

    @abstractmethod
    def mirror(self, positions: SourceOffsets) -> None:
        """Copy positions to the group for lag tools, ignoring errors. calving never reads the copy."""

    @abstractmethod
    def partitions(self) -> frozenset[TopicPartition]:
        """All present partitions of the topics.

        :raises ConfigError: a topic of the list does not exist.
        """

    @abstractmethod
    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """The present topic ids of these topics. A recreated topic has a new topic id. Topics that are gone, or have no
        topic id (brokers before 2.8), are absent.

        :raises UnavailableError: the broker cannot be reached.
        """

    @abstractmethod
    def bounds(self, partitions: Collection[TopicPartition], read_up_to: SourceOffsets = NOTHING) -> Bounds:
        """The offsets of ``partitions`` that can be read now. Begins are absent where the end equals ``read_up_to``."""

    @abstractmethod
    def starts(self, partitions: Collection[TopicPartition], start: Start) -> SourceOffsets:
        """The offsets at which a first start begins to read the partitions: of a time, those of the first records that
        are not older, or the ends.

        :raises ConfigError: the start names a partition that is not there, or an offset that it does not have.
        """

    @abstractmethod
    def highs(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        """The high watermarks: the ends of the partitions, including records of open transactions."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group at once. Safe to call twice."""


class Source(ABC):
    """The topics of one sink. Several threads may use it. It connects at the first call.

    Each method raises UnavailableError if the source cannot be reached: try again.
    """

    @abstractmethod
    def partitions(self) -> frozenset[TopicPartition]:
        """All partitions that the topics have, as of at most five seconds ago.

        :raises ConfigError: a topic of the list does not exist.
        """

    @abstractmethod
    def bounds(self, partitions: Collection[TopicPartition], read_up_to: SourceOffsets = NOTHING) -> Bounds:
        """The offsets of ``partitions`` that can be read now. Begins are absent where the end equals ``read_up_to``."""

    @abstractmethod
    def highs(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        """The high watermarks: the ends of the partitions, including records of open transactions."""

    @abstractmethod
    def first_at(self, partitions: Collection[TopicPartition], at_ms: int) -> SourceOffsets:
        """The offsets of the first records that are not older than a time, in ms since 1970. Partitions without such a
        record are absent.
        """

    @abstractmethod
    def first_times(self, positions: SourceOffsets) -> Mapping[TopicPartition, int]:
        """The timestamps, in ms, of the first records at or above these offsets. Partitions without such a record, or
        whose broker does not answer within some seconds, are absent.
        """

    @abstractmethod
    def identities(self, topics: Collection[str]) -> Mapping[str, str]:
        """The present topic ids of these topics. A recreated topic has a new topic id. Topics that are gone, or have no
        topic id, are absent.
        """

    @abstractmethod
    def unknown(self, topics: Collection[Topic]) -> frozenset[Topic]:
        """The ``topics`` (qualified by topic id, see ``within``) that the source does not have now."""

    @abstractmethod
    def cluster(self) -> str:
        """The id of the cluster; empty if no broker tells it within some seconds."""

    @abstractmethod
    def starts(self, partitions: Collection[TopicPartition], start: Start) -> SourceOffsets:
        """As ``Group.starts``, but for offsets that the partitions do not have, which are taken as they are."""

    @abstractmethod
    def noted(self, group: str) -> NotedOffsets:
        """The offsets that a group without members keeps for the present partitions, each with its note."""

    @abstractmethod
    def note(self, group: str, offsets: NotedOffsets) -> None:
        """Have a group without members keep these offsets, each with a note."""

    @abstractmethod
    def join(self, group: str) -> Group:
        """Begin to join the consumer group, as a new member.

        :raises ConfigError: a property is wrong.
        """

    @abstractmethod
    def members(self, group: str) -> Mapping[str, str]:
        """The client ids of the members that the consumer group has now, by the members' ids."""
