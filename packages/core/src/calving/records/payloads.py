"""Keys or values as the source delivers them: bytes, or null."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc

from calving.records import arrays
from calving.records.arrays import Indices


class Payloads(Sequence[Any]):
    """The keys or the values of a block: bytes or None for each record.

    A reader passes an Arrow column or Python objects. The other form is made at its first use. So code that works on
    columns makes no objects, and the reverse.
    """

    def __init__(self, given: pa.Array | Sequence[bytes | None]) -> None:
        self._given = given

    @staticmethod
    def of(values: Sequence[bytes | None]) -> Payloads:
        """Payloads of any sequence; payloads are returned unchanged."""
        return values if isinstance(values, Payloads) else Payloads(values)

    @property
    def are_columns(self) -> bool:
        """Whether the reader passed an Arrow column."""
        return isinstance(self._given, pa.Array)

    @cached_property
    def column(self) -> pa.Array:
        """The payloads as an Arrow column."""
        return self._given if isinstance(self._given, pa.Array) else pa.array(self._given, pa.binary())

    @cached_property
    def items(self) -> list[Any]:
        """The payloads as Python objects."""
        if isinstance(self._given, pa.Array):
            found: list[Any] = self._given.to_pylist()
            return found
        return self._given if isinstance(self._given, list) else list(self._given)

    def __len__(self) -> int:
        return len(self._given)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> Payloads: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return Payloads(self._given[at])
        found = self._given[at]
        return found.as_py() if isinstance(found, pa.Scalar) else found

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.items == list(other)

    __hash__ = None  # type: ignore[assignment]

    def take(self, chosen: Indices) -> Payloads:
        """The payloads at these ascending indices."""
        if len(chosen) == len(self):
            return self
        if isinstance(self._given, pa.Array):
            return Payloads(arrays.chosen(self._given, chosen))
        return Payloads([self._given[i] for i in chosen])

    @cached_property
    def nulls(self) -> list[int]:
        """Indices of the nulls."""
        if isinstance(self._given, pa.Array):
            return pc.indices_nonzero(self._given.is_null()).to_pylist() if self._given.null_count else []
        return [i for i, each in enumerate(self._given) if each is None] if None in self._given else []

    @cached_property
    def size(self) -> int:
        """Bytes of all payloads."""
        if not isinstance(self._given, pa.Array):
            return sum(map(len, filter(None, self._given)))
        if self._given.null_count or not len(self._given):
            return pc.sum(pc.binary_length(self._given)).as_py() or 0
        # Without nulls, the bytes between the first and the last offset are all of payloads.
        places = [None, self._given.buffers()[1]]
        ends = pa.Array.from_buffers(pa.int32(), len(self) + 1, places, offset=self._given.offset)
        return int(ends[-1].as_py() - ends[0].as_py())

    @property
    def longest(self) -> int:
        """Bytes of the largest payload; 0 if there is none."""
        if isinstance(self._given, pa.Array):
            return pc.max(pc.binary_length(self._given)).as_py() or 0
        return max(map(len, filter(None, self._given)), default=0)
