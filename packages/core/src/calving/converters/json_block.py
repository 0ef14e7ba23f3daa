"""The state of one block of JSON while it is decoded: values that Arrow has read, and values for the exact decoder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pyarrow as pa

from calving.converters.interface import Decoded
from calving.records.indices import Indices
from calving.records.payloads import Payloads
from calving.records.values import Values

_REFUSALS_AT_MOST, _FEW, _APART = 24, 8, 128
"""Refusals in one block after which the rest of it goes the exact way; a few are enough if fewer values than these lie
between them."""


class Block:
    def __init__(self, payloads: Payloads) -> None:
        self.payloads, self.size = payloads, len(payloads)
        self.exact: list[int] = []
        self.refusals = 0
        self.read: list[tuple[pa.StructArray, Sequence[int]]] = []
        """Columns that Arrow has read, each with the indices of its values."""
        self.decoded = Decoded()

    @property
    def values(self) -> list[bytes]:
        return self.payloads.items

    def at(self, places: Indices) -> list[bytes]:
        """The values at these places."""
        return self.payloads.take(places).items

    def is_hopeless(self, start: int) -> bool:
        """Whether Arrow has refused so many of the values before this one that it does not pay off."""
        return self.refusals > _REFUSALS_AT_MOST or (self.refusals > _FEW and self.refusals * _APART > start)

    def close(self) -> None:
        """Concatenate the columns of the same type."""
        for _, group in groupby(self.read, lambda piece: piece[0].type):
            pieces = list(group)
            data = pa.concat_arrays([data for data, _ in pieces]) if len(pieces) > 1 else pieces[0][0]
            index = range(self.size) if len(data) == self.size else [i for _, found in pieces for i in found]
            self.decoded.values.append(Values(data, False, index))
