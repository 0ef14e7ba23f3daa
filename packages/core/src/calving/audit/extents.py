"""How far the coordinates of geometries reach, against the corners of a box that a manifest has."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator

Extent = tuple[float, float]
"""The least and the greatest number of one dimension."""
_NAMES = "XYZM"
_POINT, _LINE_STRING, _POLYGON = 1, 2, 3
_HAS_Z, _HAS_M, _HAS_SRID, _CODE = 0x80000000, 0x40000000, 0x20000000, 0x1FFFFFFF


def is_spatial(kind: str) -> bool:
    """Whether the values of this type are geometries."""
    return kind.partition("(")[0] in ("geometry", "geography")


class Extents:
    """Grows with each geometry, in well-known binary of ISO or PostGIS. Other bytes are not looked at."""

    def __init__(self) -> None:
        self._found: dict[str, Extent] = {}

    def add(self, values: Iterable[bytes]) -> None:
        for value in values:
            try:
                numbers = [*_numbers(value)]
            except (struct.error, IndexError):  # the columns of other engines may have anything
                continue
            for name, number in numbers:
                if not math.isnan(number):
                    low, high = self._found.get(name, (number, number))
                    self._found[name] = min(low, number), max(high, number)

    def outside(self, lower: bytes, upper: bytes) -> Iterator[str]:
        """The dimensions of which numbers lie outside of the box with these corners. A box of a geography may go over
        the 180th meridian; then its least X is greater than its greatest.
        """
        low, high = _corner(lower), _corner(upper)
        for name in _NAMES:
            if name not in self._found or name not in low or name not in high:
                continue
            least, greatest = self._found[name]
            if low[name] <= high[name] and (least < low[name] or greatest > high[name]):
                yield f"{name} from {least} to {greatest} is outside of its bounds, {low[name]} to {high[name]}"


def _corner(bound: bytes) -> dict[str, float]:
    numbers = struct.unpack(f"<{len(bound) // 8}d", bound[: len(bound) // 8 * 8])
    return {name: number for name, number in zip(_NAMES, numbers, strict=False) if not math.isnan(number)}


def _numbers(data: bytes) -> Iterator[tuple[str, float]]:
    """The coordinates with the names of their dimensions. Geometries within others simply follow each other."""
    place, pending = 0, 1
    while pending:
        order, kind, names, place = _header(data, place)
        pending -= 1
        lines = 1
        if kind > _LINE_STRING:
            count = _whole(order, data, place)
            place += 4
            lines, pending = (count, pending) if kind == _POLYGON else (0, pending + count)
        for _ in range(lines):
            count = 1 if kind == _POINT else _whole(order, data, place)
            place += 0 if kind == _POINT else 4
            for _ in range(count):
                yield from zip(names, struct.unpack_from(f"{order}{len(names)}d", data, place), strict=True)
                place += 8 * len(names)


def _header(data: bytes, place: int) -> tuple[str, int, str, int]:
    """Of a geometry: its order of bytes, its kind, the names of its dimensions, and the place after its header."""
    order = "<" if data[place] else ">"
    code = _whole(order, data, place + 1)
    form, kind = divmod(code & _CODE, 1000)
    z = "Z" if form in (1, 3) or code & _HAS_Z else ""
    m = "M" if form in (2, 3) or code & _HAS_M else ""
    return order, kind, f"XY{z}{m}", place + (9 if code & _HAS_SRID else 5)


def _whole(order: str, data: bytes, place: int) -> int:
    return int(struct.unpack_from(f"{order}I", data, place)[0])
