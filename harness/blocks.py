"""Blocks of records that are there already, in the place of those that a reader has fetched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from calving.model.dead_letters import Headers
from calving.model.offsets import Range
from calving.records.values import Payloads
from calving.source.reading import Block, header_column

MILLIS = 1_767_225_600_000
"""The timestamp of every record."""


class RecordEnvelope(NamedTuple):
    """What a record has beside its value. ``headers`` None: they cannot be read."""

    key: bytes | None = b"key"
    timestamp_ms: int | None = MILLIS
    headers: Headers | None = ()


class Given(Block):
    """Neighbouring records; each has the same headers, if they have no ``envelopes``."""

    def __init__(
        self,
        source: Range,
        start: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        *,
        envelopes: Sequence[RecordEnvelope] | None = None,
    ) -> None:
        self.source, self._start, self._values = source, start, values
        if keys is None:
            self._envelopes = envelopes or [RecordEnvelope(headers=headers)] * len(values)
        else:
            self._envelopes = [RecordEnvelope(key, headers=headers) for key in keys]

    def __len__(self) -> int:
        return len(self._values)

    @cached_property
    def values(self) -> Payloads:
        return Payloads(self._values)

    @cached_property
    def keys(self) -> Payloads:
        return Payloads([each.key for each in self._envelopes])

    @cached_property
    def offsets(self) -> pa.Array:
        return pa.arange(self._start, self._start + len(self))

    @cached_property
    def timestamps_ms(self) -> pa.Array:
        return pa.array([each.timestamp_ms for each in self._envelopes], pa.int64())

    @cached_property
    def headers(self) -> pa.ListArray:
        return header_column([each.headers for each in self._envelopes])
