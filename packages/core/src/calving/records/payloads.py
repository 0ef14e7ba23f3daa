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
    """The keys or the values of a block: an Arrow column with bytes or null for each record. Objects are made at their
    first use.
    """

    def __init__(self, payloads: pa.Array | Sequence[bytes | None]) -> None:
        self.column = payloads if isinstance(payloads, pa.Array) else pa.array(payloads, pa.binary())

    @staticmethod
    def of(values: Sequence[bytes | None]) -> Payloads:
        """Payloads of any sequence; payloads are returned unchanged."""
        return values if isinstance(values, Payloads) else Payloads(values)

    @cached_property
    def items(self) -> list[Any]:
        """The payloads as Python objects."""
        return self.column.to_pylist()

    def __len__(self) -> int:
        return len(self.column)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> Payloads: ...
    def __getitem__(self, at: int | slice) -> Any:
        return Payloads(self.column[at]) if isinstance(at, slice) else self.column[at].as_py()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.items == list(other)

    __hash__ = None  # type: ignore[assignment]

    def take(self, chosen: Indices) -> Payloads:
        """The payloads at these ascending indices."""
        return self if len(chosen) == len(self) else Payloads(arrays.chosen(self.column, chosen))

    @property
    def nulls(self) -> list[int]:
        """Indices of the nulls."""
        return pc.indices_nonzero(self.column.is_null()).to_pylist() if self.column.null_count else []

    @cached_property
    def size(self) -> int:
        """Bytes of all payloads."""
        column = self.column
        if column.null_count or not len(column):
            return pc.sum(pc.binary_length(column)).as_py() or 0
        # Without nulls, the bytes between the first and the last offset are all of payloads.
        ends = pa.Array.from_buffers(pa.int32(), len(self) + 1, [None, column.buffers()[1]], offset=column.offset)
        return int(ends[-1].as_py() - ends[0].as_py())

    @property
    def longest(self) -> int:
        """Bytes of the largest payload; 0 if there is none."""
        return pc.max(pc.binary_length(self.column)).as_py() or 0
