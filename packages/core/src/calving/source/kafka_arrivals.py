"""The messages that a client hands to its reader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError

from calving.model.ranges import Range
from calving.records.values import HEADERS
from calving.source.reading import Block

Place = tuple[str | None, int | None]
"""Topic and partition. Both are None only for a fault that is of no partition."""
Position = tuple[str, int, int]
"""Topic, partition and offset."""
Headers = Sequence[tuple[str, bytes | None]]
"""The headers of one record."""


class Arrived(NamedTuple):
    """The arrivals of one partition: records, or a fault."""

    place: Place
    offset: int
    """The offset of the last record; or the end of the partition; or the offset that a fault is about."""
    records: Any
    """The argument for the client's ``block``, if there is no fault."""
    fault: KafkaError | None

    @property
    def is_end(self) -> bool:
        """Whether this arrival says where the partition ends."""
        return self.fault is not None and self.fault.code() == KafkaError._PARTITION_EOF


class Client(ABC):
    """A consumer that is in no group. Its methods raise KafkaException."""

    @abstractmethod
    def learn(self, topic: str) -> None:
        """Find out who leads the partitions of a topic."""

    @abstractmethod
    def assign(self, positions: Sequence[Position]) -> None:
        """Begin to read these partitions, too."""

    @abstractmethod
    def unassign(self, places: Sequence[tuple[str, int]]) -> None:
        """Stop reading these partitions."""

    @abstractmethod
    def take(self, most: int, seconds: float) -> Sequence[Arrived]:
        """At most ``most`` records, which arrive within ``seconds``. Records of one partition are in order."""

    @abstractmethod
    def block(self, source: Range, records: Any, *, cut: bool) -> Block | None:
        """The block of records that arrived. With ``cut``, only the records below the range's end; None if there are
        none.
        """

    @abstractmethod
    def watermarks(self, topic: str, partition: int, seconds: float) -> tuple[int, int]:
        """The first offset and the end of the partition on the broker."""

    @abstractmethod
    def close(self) -> None: ...


def header_column(found: Sequence[Headers]) -> pa.ListArray:
    """A column of the headers of many records."""
    return pa.array([[{"key": name, "value": value} for name, value in each] for each in found], HEADERS)
