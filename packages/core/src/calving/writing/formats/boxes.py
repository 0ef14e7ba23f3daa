"""The box around the geometries of a column, whose corners are the column's bounds."""

from __future__ import annotations

import math
import struct

from calving.records.wkb import POINT, Geometry


class Box:
    """Grows with each geometry. NaN, which an empty point has, counts for no coordinate."""

    def __init__(self) -> None:
        self._low = [math.inf] * 4
        self._high = [-math.inf] * 4

    def add(self, geometry: Geometry) -> None:
        """Include a geometry."""
        for single in geometry.singles():
            dimensions = [0, 1, *([2] if single.has_z else ()), *([3] if single.has_m else ())]
            for line in single.lines:
                for place, dimension in enumerate(dimensions):
                    numbers = [number for number in line[place :: single.width] if not math.isnan(number)]
                    if numbers:
                        self._low[dimension] = min(self._low[dimension], min(numbers))
                        self._high[dimension] = max(self._high[dimension], max(numbers))

    def corners(self) -> tuple[bytes, bytes] | None:
        """The lower and the upper corner, as manifests have them: X, Y, and Z and M if geometries have them. None if no
        geometry has an X and a Y.
        """
        known = [low <= high for low, high in zip(self._low, self._high, strict=True)]
        if not known[0] or not known[1]:
            return None
        last = 3 if known[3] else 2 if known[2] else 1
        low, high = (
            struct.pack(f"<{last + 1}d", *(corner[i] if known[i] else math.nan for i in range(last + 1)))
            for corner in (self._low, self._high)
        )
        return low, high


def has_edges(geometry: Geometry) -> bool:
    """Whether there are lines between its positions. On a sphere they leave the box of the positions."""
    return any(single.kind != POINT for single in geometry.singles())
