"""Blocks of records that are there already, in the place of those that a reader has fetched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa

from calving.model.ranges import Range
from calving.records.payloads import Payloads
from calving.records.values import HEADERS
from calving.source.reading import Block

MILLIS = 1_767_225_600_000
"""The timestamp of every record."""


class Given(Block):
    """Neighbouring records; each has the same headers."""

    def __init__(
        self,
        source: Range,
        start: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        *,
        columns: bool = False,
    ) -> None:
        """``columns``: keys and values come in Arrow, and not as objects."""
        self.source, self._start, self._values, self._keys, self._headers = source, start, values, keys, headers
        self._columns = columns

    def __len__(self) -> int:
        return len(self._values)

    @cached_property
    def values(self) -> Payloads:
        return self._payloads(self._values)

    @cached_property
    def keys(self) -> Payloads:
        return self._payloads([b"key"] * len(self) if self._keys is None else self._keys)

    @cached_property
    def offsets(self) -> pa.Array:
        return pa.arange(self._start, self._start + len(self))

    @cached_property
    def timestamps_ms(self) -> pa.Array:
        return pa.array([MILLIS] * len(self), pa.int64())

    @cached_property
    def headers(self) -> pa.ListArray:
        return pa.array([[{"key": name, "value": value} for name, value in self._headers]] * len(self), HEADERS)

    def _payloads(self, given: Sequence[bytes | None]) -> Payloads:
        return Payloads(pa.array(given, pa.binary()) if self._columns else given)
