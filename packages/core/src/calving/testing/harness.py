"""The harness that the contract's tests need besides the backend itself."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from calving.backend.interface import Backend
from calving.model.offsets import TopicPartition
from calving.model.sink import Claim


def member_claim(group: str, member: str = "member-1", generation: int = 1) -> Claim:
    """A claim as a librdkafka consumer of the group would make it, for backends that do not ask Kafka."""
    parts = b"".join(text.encode() + b"\0" for text in (group, member, ""))
    return Claim(member if generation >= 0 else "", b"CGMDv2:" + struct.pack("<i", generation) + parts)


class Harness(ABC):
    """One store with one empty sink in it, recreated for every test."""

    source: Sequence[TopicPartition] = (TopicPartition("source", 0), TopicPartition("source", 1))
    """Two source partitions."""
    survives_restart: bool = True
    """False for a store that lives in this process: tests of durability do not apply."""
    drops_positions_itself: bool = False
    """Whether the store itself deletes the positions of a deleted topic."""
    failover_seconds: float = 15.0
    """A leader that dies without a word is replaced within this time."""

    @abstractmethod
    def backend(self) -> Backend:
        """A backend over the store, as another process would make it."""

    @abstractmethod
    def claim(self) -> Claim:
        """A claim that holds now."""

    def rivals(self) -> Sequence[Claim]:
        """Claims of which at most one can win where all publish from the same position."""
        return [self.claim() for _ in range(4)]

    @abstractmethod
    def outsider(self) -> Claim:
        """A claim without a member."""

    @abstractmethod
    def positions(self) -> Mapping[TopicPartition, int]:
        """The stored source positions, read without the backend."""

    @abstractmethod
    def entries(self) -> Sequence[bytes]:
        """All events in the log that readers may see, oldest first, as the bytes of ``calving.wire``; read without the
        backend.
        """

    def append(self, value: bytes, coverage: bytes | None, beside: bytes | None) -> None:
        """Append an entry as somebody else would, without the backend: these bytes, and the two headers, None for one
        that is left out.

        :raises NotImplementedError: the store holds no bytes, or nobody else can write into it.
        """
        raise NotImplementedError

    def sign(self, secret: str) -> None:
        """Backends of this harness have this ``iceberg.control.secret`` from now on.

        :raises NotImplementedError: nobody else can write into the store.
        """
        raise NotImplementedError

    def repeat(self) -> None:
        """Append a copy of every entry of the log, as somebody would who can read and write the store."""
        raise NotImplementedError

    def append_odd(self) -> None:  # noqa: B027 - a harness may have nothing to do here
        """Append entries that have not even the form in which the backend stores its own, if somebody else could."""

    @abstractmethod
    def stop(self) -> None:
        """The store is killed."""

    @abstractmethod
    def start(self) -> None:
        """Start the store again, with its data on disk."""

    @abstractmethod
    def wipe(self) -> None:
        """Delete all that the store holds."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""
