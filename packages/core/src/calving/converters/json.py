"""Schemaless JSON: a decoder in Rust reads a block. The exact path reads what it refuses, or all without a decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from calving.converters.interface import Converter, Decoded, stage
from calving.converters.native import Pieces
from calving.converters.native_json import native_json
from calving.converters.native_whole import native_whole
from calving.model.record_path import Limits
from calving.records.arrays import Indices
from calving.records.fields import Projection
from calving.records.jsontext import parse_all
from calving.records.payloads import Payloads
from calving.records.values import RecordError, Values

Read = Callable[[Payloads], tuple[Pieces, Indices]]
"""Reads values in Rust: the decoded ones, and the places of those that have to take the exact path."""


class JsonConverter(Converter):
    projects = True

    def __init__(self, options: Mapping[str, str], *, is_key: bool, limits: Limits | None = None) -> None:
        self._stage = stage(is_key)
        self._limits = limits or Limits()
        self._projection: Projection | None = None
        self._read: Read | None = None

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        if projection is not self._projection:
            self._projection, self._read = projection, _native(projection, self._limits)
        if self._read is None:
            return self._exactly(list(values), range(len(values)))
        payloads = values if isinstance(values, Payloads) else Payloads(values)
        pieces, refused = self._read(payloads)
        decoded = self._exactly(payloads.take(refused).items, refused) if refused else Decoded()
        return Decoded([*(Values(column, False, kept) for column, kept in pieces), *decoded.values], decoded.bad)

    def _exactly(self, values: list[bytes], places: Indices) -> Decoded:
        """The values at these places of the block, each parsed alone."""
        objects = parse_all(values, self._limits.nesting)
        bad = [
            RecordError(place, self._stage, type(error).__name__, f"not JSON: {error}")
            for place, error in zip(places, objects, strict=True)
            if isinstance(error, ValueError)
        ]
        if bad:
            right = [n for n, each in enumerate(objects) if not isinstance(each, ValueError)]
            objects, places = [objects[n] for n in right], [places[n] for n in right]
        return Decoded([Values(objects, False, places)] if objects else [], bad)


def _native(projection: Projection | None, limits: Limits) -> Read | None:
    """The way to read values of this projection in Rust; None if there is none."""
    if projection is None:
        return None
    if (decoder := native_json(projection, limits)) is not None:
        return decoder.pieces
    whole = native_whole(projection, limits)
    return None if whole is None else whole.read
