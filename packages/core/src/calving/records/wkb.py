"""Geometries of OGC's Simple Features, and their well-known binary. All kinds of it are read, also PostGIS's extended
one; ISO's, in little-endian order, is written, which is what Iceberg and Parquet ask for.

    >>> geometry, srid = read_wkb(bytes.fromhex("0020000001000010e63ff00000000000004000000000000000"))
    >>> geometry.lines, srid
    (((1.0, 2.0),), 4326)
    >>> write_wkb(geometry).hex()
    '0101000000000000000000f03f0000000000000040'
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

POINT, LINE_STRING, POLYGON, MULTI_POINT, MULTI_LINE_STRING, MULTI_POLYGON, COLLECTION = range(1, 8)
PART_OF = {MULTI_POINT: POINT, MULTI_LINE_STRING: LINE_STRING, MULTI_POLYGON: POLYGON}
"""The kind of the parts of each kind whose parts are of one kind."""
NESTING = 32
"""At most so many collections lie within each other: readers call themselves for each."""
_Z, _M, _SRID = 0x80000000, 0x40000000, 0x20000000
"""Flags of the extended binary, in the code of the kind."""
_DIMENSIONS = ((False, False), (True, False), (False, True), (True, True))
"""Whether there is a Z and an M, by the thousands of ISO's code of the kind."""
_RING = 4
"""The fewest positions of a ring."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """``lines``: the coordinates of its positions, one after the other: of a point, of a line string, or of each ring
    of a polygon. An empty point has NaN. ``parts``: those of a multi-geometry or a collection.
    """

    kind: int
    has_z: bool = False
    has_m: bool = False
    lines: tuple[tuple[float, ...], ...] = ()
    parts: tuple[Geometry, ...] = ()

    @property
    def width(self) -> int:
        """The number of coordinates of a position."""
        return 2 + self.has_z + self.has_m

    def singles(self) -> Iterator[Geometry]:
        """The points, line strings and polygons inside, or the geometry itself."""
        if self.kind <= POLYGON:
            yield self
        for part in self.parts:
            yield from part.singles()

    def check(self) -> None:
        """:raises ValueError: readers would refuse it: a line string of one position, a ring that is not closed, parts
        that do not fit, or a number that is not finite.
        """
        for part in self.parts:
            if (part.has_z, part.has_m) != (self.has_z, self.has_m):
                raise ValueError("its parts have other coordinates than the whole: Z and M are in all parts or in none")
            if part.kind != PART_OF.get(self.kind, part.kind):
                raise ValueError("a multi-geometry has a part of another kind")
            part.check()
        for line in self.lines:
            self._check_line(line)

    def _check_line(self, line: tuple[float, ...]) -> None:
        is_finite = all(map(math.isfinite, line))
        if not is_finite and (self.kind != POINT or any(map(math.isinf, line))):
            raise ValueError("a coordinate is not a finite number")
        if self.kind == LINE_STRING and len(line) == self.width:
            raise ValueError("a line string has one position: it has none, or two and more")
        is_ring = len(line) >= _RING * self.width and line[:2] == line[-self.width :][:2]
        if self.kind == POLYGON and not is_ring:
            raise ValueError("a ring of a polygon has four positions or more, and the last is the first")


def read_wkb(data: bytes) -> tuple[Geometry, int | None]:
    """The geometry and its SRID, which only the extended binary has.

    :raises ValueError: it is no well-known binary of a geometry of these kinds.
    """
    reader = _Reader(data)
    geometry = reader.geometry(NESTING)
    if reader.place != len(data):
        raise ValueError(f"{len(data) - reader.place} bytes follow after the geometry")
    return geometry, reader.srid


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self.place = data, 0
        self.srid: int | None = None

    def geometry(self, levels: int) -> Geometry:
        """The geometry at this place, within which at most so many ``levels`` of geometries lie."""
        if not levels:
            raise ValueError(f"more than {NESTING} geometries lie within each other")
        (little,) = self._taken("<B")
        if little > 1:
            raise ValueError(f"it begins with {little} instead of a byte order, 0 or 1")
        order = "<" if little else ">"
        kind, has_z, has_m = self._kind(order)
        width = 2 + has_z + has_m
        if kind == POINT:
            return Geometry(kind, has_z, has_m, (self._taken(f"{order}{width}d"),))
        if kind == LINE_STRING:
            return Geometry(kind, has_z, has_m, (self._line(order, width),))
        (count,) = self._taken(f"{order}I")
        if kind == POLYGON:
            return Geometry(kind, has_z, has_m, tuple(self._line(order, width) for _ in range(count)))
        return Geometry(kind, has_z, has_m, parts=tuple(self.geometry(levels - 1) for _ in range(count)))

    def _kind(self, order: str) -> tuple[int, bool, bool]:
        """The kind, and whether positions have a Z and an M."""
        (code,) = self._taken(f"{order}I")
        if code & _SRID:
            (self.srid,) = self._taken(f"{order}I")
        thousands, kind = divmod(code & ~(_Z | _M | _SRID), 1000)
        if not POINT <= kind <= COLLECTION or thousands >= len(_DIMENSIONS):
            raise ValueError(f"there is no geometry of type {code & ~(_Z | _M | _SRID)}")
        has_z, has_m = _DIMENSIONS[thousands]
        return kind, has_z or bool(code & _Z), has_m or bool(code & _M)

    def _line(self, order: str, width: int) -> tuple[float, ...]:
        (count,) = self._taken(f"{order}I")
        return self._taken(f"{order}{count * width}d")

    def _taken(self, form: str) -> tuple[Any, ...]:
        size = struct.calcsize(form)
        if self.place + size > len(self._data):
            raise ValueError("it ends within the geometry")
        self.place += size
        return struct.unpack_from(form, self._data, self.place - size)


def write_wkb(geometry: Geometry) -> bytes:
    """The geometry in ISO's well-known binary."""
    code = geometry.kind + 1000 * _DIMENSIONS.index((geometry.has_z, geometry.has_m))
    out = [struct.pack("<BI", 1, code)]
    if geometry.kind > POLYGON:
        out += [struct.pack("<I", len(geometry.parts)), *map(write_wkb, geometry.parts)]
    elif geometry.kind == POLYGON:
        out.append(struct.pack("<I", len(geometry.lines)))
    for line in geometry.lines:
        if geometry.kind != POINT:
            out.append(struct.pack("<I", len(line) // geometry.width))
        out.append(struct.pack(f"<{len(line)}d", *line))
    return b"".join(out)
