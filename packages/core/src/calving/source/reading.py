"""How tasks read a source: ranges of offsets in, blocks of records out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.ranges import Range
from calving.records.payloads import Payloads


class Block(ABC):
    """Consecutive records of one range, at least one, as columns of equal length. A column is made once it is asked
    for, and then kept.
    """

    source: Range
    """The range that the records are of."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def values(self) -> Payloads:
        """Null is a tombstone; a value may be empty and is then none."""

    @property
    @abstractmethod
    def keys(self) -> Payloads: ...

    @property
    @abstractmethod
    def offsets(self) -> pa.Array:
        """Ascending; there may be holes."""

    @property
    @abstractmethod
    def timestamps_ms(self) -> pa.Array:
        """Milliseconds since 1970, of creation or of arrival as the topic says; null where a record has none."""

    @property
    @abstractmethod
    def headers(self) -> pa.ListArray:
        """Of the type ``HEADERS``; empty, not null, where a record has none."""

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return self.values.size

    @property
    def latest_ms(self) -> int | None:
        """The largest timestamp; None if no record has one."""
        found: int | None = pc.max(self.timestamps_ms).as_py()
        return found if found is not None and found >= 0 else None


def headers_of(block: Block, index: int) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of one record."""
    return tuple((each["key"], each["value"]) for each in block.headers[index].as_py())


class Reader(ABC):
    """Reads ranges for one task."""

    @abstractmethod
    def read(self, sources: Sequence[Range]) -> Generator[Block]:
        """Every committed record of ``sources``, which are of different partitions, once. The blocks of one partition
        come in order, those of others between them. What has been read so far is of no use after an error.

        :raises DataLossError: the source does not have what is wanted any more.
        :raises UnavailableError: a range got no further for too long; try again.
        :raises ConfigError: the source refuses to be read.
        """
