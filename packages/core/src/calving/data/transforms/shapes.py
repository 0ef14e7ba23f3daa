"""Records that come out of a transform with types of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def by_type(kinds: Sequence[pa.DataType]) -> list[tuple[pa.DataType, list[int]]]:
    """The places of each type, in the order in which the types first come."""
    found: dict[pa.DataType, list[int]] = {}
    for place, kind in enumerate(kinds):
        found.setdefault(kind, []).append(place)
    return list(found.items())
