"""The interface by which tasks read a source: a reader turns ranges of offsets into blocks of records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.dead_letters import Headers
from calving.model.offsets import Range, is_moment
from calving.records.values import HEADERS, Payloads

UNREADABLE = "its headers cannot be read: the name of a header is not UTF-8"
"""The reason why a record has no headers to read. None of its headers can be read then."""


class Block(ABC):
    """Consecutive records of one range, at least one, as columns of equal length. A column is made at its first use,
    and then cached.
    """

    source: Range
    """The range to which the records belong."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def values(self) -> Payloads:
        """The values. Null is a tombstone; an empty value is no tombstone."""

    @property
    @abstractmethod
    def keys(self) -> Payloads:
        """The keys. Null if a record has none."""

    @property
    @abstractmethod
    def offsets(self) -> pa.Array:
        """The offsets, ascending. Offsets may be missing in between."""

    @property
    @abstractmethod
    def timestamps_ms(self) -> pa.Array:
        """The timestamps in milliseconds since 1970: of creation or of arrival, depending on the topic. Null if a
        record has none.
        """

    @property
    @abstractmethod
    def headers(self) -> pa.ListArray:
        """The headers, of the type ``HEADERS``. Empty, not null, if a record has no headers; null if they are
        ``UNREADABLE``. Do not ask for them if the reader was opened without headers: it raises RuntimeError
        then.
        """

    def with_header(self, name: str, places: Iterable[int]) -> Collection[int]:
        """Those of these records that have a header of this name, with a value. Like ``headers``, this needs a reader
        that was opened with headers.
        """
        headers = self.headers
        pairs, owners = headers.flatten(), pc.list_parent_indices(headers)
        wanted = pc.and_(pc.equal(pc.struct_field(pairs, "key"), name), pc.is_valid(pc.struct_field(pairs, "value")))
        having = set(owners.filter(wanted).to_pylist())
        return having.intersection(places)

    @property
    def first_and_last_ms(self) -> tuple[int, int] | None:
        """The smallest and the largest timestamp that is a moment; None if no record has one."""
        least, most = (found.as_py() for found in pc.min_max(self.timestamps_ms).values())
        if least is not None and not (is_moment(least) and is_moment(most)):
            moments = list(filter(is_moment, self.timestamps_ms.drop_null().to_pylist()))
            return (min(moments), max(moments)) if moments else None
        return None if least is None else (least, most)


def headers_of(block: Block, index: int) -> tuple[tuple[str, bytes | None], ...] | None:
    """The headers of one record; None if they are ``UNREADABLE``."""
    pairs = block.headers[index].as_py()
    return None if pairs is None else tuple((each["key"], each["value"]) for each in pairs)


def has_header(headers: Headers | None, name: str) -> bool:
    """Whether there is a header of this name, with a value."""
    return bool(headers) and any(key == name and value is not None for key, value in headers or ())


def header_column(found: Sequence[Headers | None]) -> pa.ListArray:
    """A column of the headers of many records."""
    return pa.array([each if each is None else [{"key": k, "value": v} for k, v in each] for each in found], HEADERS)


class Reader(ABC):
    """Reads ranges for one task."""

    @abstractmethod
    def read(self, sources: Sequence[Range]) -> Generator[Block]:
        """Read every committed record of ``sources`` once. The ranges must be of different partitions. The blocks of
        one partition come in order, mixed with blocks of other partitions. After an error, the records read so far must
        not be used.

        :raises DataLossError: the source no longer has the wanted records.
        :raises UnavailableError: a range made no progress for too long; try again.
        :raises ConfigError: the source refuses to be read.
        """
