"""Values as geometries: well-known binary and text, also PostGIS's extended ones, GeoJSON, and Debezium's structs of
``wkb`` and ``srid``.

    >>> geometry_of("SRID=4326;POINT Z (1 2 3)", GeoType("srid:4326")).hex()
    '01e9030000000000000000f03f00000000000000400000000000000840'
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

from calving.casting.numbers import is_number
from calving.casting.texts import from_base64
from calving.records.arrays import Pairs, Scaled
from calving.records.foreign import GeoType
from calving.records.jsontext import parse
from calving.records.wkb import (
    COLLECTION,
    LINE_STRING,
    NESTING,
    PART_OF,
    POINT,
    POLYGON,
    Geometry,
    read_wkb,
    write_wkb,
)

_Read = tuple[Geometry, int | None]
"""A geometry and its SRID, None if the value does not say it."""
_Dimensions = tuple[bool, bool]
_KINDS = {
    name: kind
    for kind, name in enumerate(
        ("Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon", "GeometryCollection"), POINT
    )
}
_UPPER = {name.upper(): kind for name, kind in _KINDS.items()}
_DEPTHS = {POINT: 0, LINE_STRING: 1, POLYGON: 2}
"""In how many arrays the positions of a geometry lie."""
_WGS_84 = 4326
_HEX = re.compile(r"0[01](?:[0-9a-fA-F]{2})+")
_EWKT = re.compile(r"\s*SRID\s*=\s*([0-9]{1,9})\s*;", re.IGNORECASE)
_TOKEN = re.compile(r"\s*([A-Za-z]+|[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[(),])")
_BY_NUMBER = re.compile(r"(?:srid|epsg):([0-9]{1,9})", re.IGNORECASE)
_NAMED_CRS = re.compile(
    r"(?:urn:ogc:def:crs:)?(?:EPSG:(?:[0-9.]*:)?([0-9]{1,9})|OGC:(?:[0-9.]*:)?CRS84)", re.IGNORECASE
)


def geometry_of(value: Any, kind: GeoType) -> bytes:
    """A value as ISO's well-known binary, for a column of this type.

    :raises ValueError: it is no geometry that readers take, or its SRID is not that of the column.
    """
    geometry, srid = _read(value)
    geometry.check()
    if srid and srid != _srid_of(kind.crs):
        raise ValueError(f"its SRID {srid} is not the coordinate reference system of the column, {kind.crs}")
    if kind.edges is not None:
        _check_degrees(geometry)
    return write_wkb(geometry)


def _srid_of(crs: str) -> int | None:
    """The SRID of a coordinate reference system; None if its name does not tell it."""
    if crs.upper() == "OGC:CRS84":
        return _WGS_84
    number = _BY_NUMBER.fullmatch(crs)
    return None if number is None else int(number[1])


def _check_degrees(geometry: Geometry) -> None:
    for single in geometry.singles():
        for line in single.lines:
            east, north = line[:: single.width], line[1 :: single.width]
            if any(abs(degrees) > 180 for degrees in east) or any(abs(degrees) > 90 for degrees in north):
                raise ValueError("a geography has a longitude from -180 to 180, and then a latitude from -90 to 90")


def _read(value: Any) -> _Read:
    if isinstance(value, bytes):
        return read_wkb(value)
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, Pairs):
        value = dict(value)
    if isinstance(value, Mapping) and not isinstance(value, Scaled):
        return _of_geojson(value, NESTING) if "type" in value else _of_struct(value)
    raise ValueError("a geometry comes as WKB, WKT, GeoJSON, or an object with wkb and srid")


def _of_text(text: str) -> _Read:
    stripped = text.strip()
    if stripped.startswith("{"):
        return _read(parse(stripped.encode(), 2 * NESTING))
    if _HEX.fullmatch(stripped):
        return read_wkb(bytes.fromhex(stripped))
    if " " in stripped or "(" in stripped:
        return _of_wkt(stripped)
    return read_wkb(from_base64(stripped))


def _of_struct(value: Mapping[str, Any]) -> _Read:
    """A struct of Debezium's: of ``wkb`` and ``srid``, or of a point's ``x`` and ``y`` in place of ``wkb``."""
    wkb, said = value.get("wkb"), value.get("srid")
    if said is not None and (not isinstance(said, int) or isinstance(said, bool)):
        raise ValueError("srid is not a whole number")
    if wkb is None and is_number(value.get("x")) and is_number(value.get("y")):
        return _built(POINT, _positions([value["x"], value["y"]], 0), (False, False)), said
    if not isinstance(wkb, bytes | str):
        raise ValueError("an object that is a geometry has the fields type and coordinates, or wkb and srid")
    geometry, srid = _read(wkb)
    if srid and said and srid != said:
        raise ValueError(f"srid is {said}, and the geometry in wkb has {srid}")
    return geometry, said or srid


def _of_geojson(value: Mapping[str, Any], levels: int) -> _Read:
    """GeoJSON has longitude and latitude of WGS 84, unless it names another system, as it did before RFC 7946."""
    return _geojson(value, levels), _srid_of_geojson(value.get("crs"))


def _srid_of_geojson(crs: Any) -> int:
    if crs is None:
        return _WGS_84
    named = crs.get("properties") if isinstance(crs, Mapping) else None
    found = _NAMED_CRS.fullmatch(str(named.get("name"))) if isinstance(named, Mapping) else None
    if found is None:
        raise ValueError("the crs of GeoJSON names an EPSG code or OGC:CRS84, or is left out")
    return int(found[1] or _WGS_84)


def _geojson(value: Any, levels: int) -> Geometry:
    if not levels:
        raise ValueError(f"more than {NESTING} geometries lie within each other")
    kind = _KINDS.get(str(value["type"])) if isinstance(value, Mapping) and "type" in value else None
    if kind is None:
        raise ValueError(f"the type of a geometry in GeoJSON is one of {', '.join(_KINDS)}")
    if kind == COLLECTION:
        return _collection([_geojson(part, levels - 1) for part in _items(value.get("geometries"))], None)
    coordinates = _positions(value.get("coordinates"), _DEPTHS[PART_OF.get(kind, kind)] + (kind in PART_OF))
    return _built(kind, coordinates, _dimensions(coordinates))


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list) or isinstance(value, Pairs):
        raise ValueError("the coordinates of a geometry are arrays of numbers, as deep as its type says")
    return value


def _positions(value: Any, depth: int) -> Any:
    """Arrays of numbers, with each position as a tuple."""
    if depth:
        return [_positions(item, depth - 1) for item in _items(value)]
    if not _items(value):
        return []
    if not all(map(is_number, value)) or not 2 <= len(value) <= 3:
        raise ValueError("a position has two or three numbers")
    return tuple(map(float, value))


def _dimensions(coordinates: Any) -> _Dimensions:
    """What the first position has."""
    while isinstance(coordinates, list) and coordinates:
        coordinates = coordinates[0]
    return len(coordinates) > 2, len(coordinates) > 3


def _collection(parts: list[Geometry], dimensions: _Dimensions | None) -> Geometry:
    if dimensions is None:
        dimensions = (parts[0].has_z, parts[0].has_m) if parts else (False, False)
    return Geometry(COLLECTION, *dimensions, parts=tuple(parts))


def _built(kind: int, coordinates: Any, dimensions: _Dimensions) -> Geometry:
    """A geometry of positions, which are tuples, in lists as deep as its kind says. That of a point may lie in one."""
    if kind in PART_OF:
        parts = tuple(_built(PART_OF[kind], each, dimensions) for each in _items(coordinates))
        return Geometry(kind, *dimensions, parts=parts)
    width = 2 + sum(dimensions)
    if kind == POINT:
        line = _line([coordinates] if isinstance(coordinates, tuple) else coordinates, width)
        if len(line) > width:
            raise ValueError("a point has one position")
        return Geometry(kind, *dimensions, lines=(line or (math.nan,) * width,))
    lines = [coordinates] if kind == LINE_STRING else _items(coordinates)
    return Geometry(kind, *dimensions, lines=tuple(_line(each, width) for each in lines))


def _line(positions: Any, width: int) -> tuple[float, ...]:
    for position in _items(positions):
        if not isinstance(position, tuple) or len(position) != width:
            raise ValueError(f"a position does not have {width} numbers, as its geometry says")
    return tuple(chain.from_iterable(positions))


def _of_wkt(text: str) -> _Read:
    srid = _EWKT.match(text)
    reader = _Text(text[srid.end() :] if srid else text)
    geometry = reader.geometry(NESTING)
    reader.end()
    return geometry, int(srid[1]) if srid else None


class _Text:
    """Reads well-known text."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        place = 0
        while place < len(text) and (found := _TOKEN.match(text, place)):
            self._tokens.append(found[1].upper())
            place = found.end()
        if text[place:].strip():
            raise ValueError(f"this is no well-known text: {text[place : place + 40]!r}")
        self._tokens.reverse()

    def end(self) -> None:
        """:raises ValueError: text follows."""
        if self._tokens:
            raise ValueError(f"'{self._tokens[-1]}' follows after the geometry")

    def geometry(self, levels: int) -> Geometry:
        """The next geometry, within which at most so many ``levels`` of geometries lie."""
        if not levels:
            raise ValueError(f"more than {NESTING} geometries lie within each other")
        kind, tagged = self._tag()
        if kind == COLLECTION:
            return _collection(self._list(lambda: self.geometry(levels - 1)), tagged)
        coordinates = self._list(lambda: self._item(2))
        return _built(kind, coordinates, tagged or _dimensions(coordinates))

    def _tag(self) -> tuple[int, _Dimensions | None]:
        """The kind, and whether there are Z and M, if the text says so."""
        word = self._next()
        name = word.removesuffix("M").removesuffix("Z")
        said = word.removeprefix(name)
        if not said and self._tokens and self._tokens[-1] in ("Z", "M", "ZM"):
            said = self._next()
        if name not in _UPPER:
            raise ValueError(f"'{word}' is none of {', '.join(_UPPER)}")
        return _UPPER[name], ("Z" in said, "M" in said) if said else None

    def _list(self, item: Callable[[], Any]) -> list[Any]:
        if (sign := self._next()) == "EMPTY":
            return []
        if sign != "(":
            raise ValueError(f"'{sign}' stands in place of an opening bracket")
        items = [item()]
        while (sign := self._next()) == ",":
            items.append(item())
        if sign != ")":
            raise ValueError(f"'{sign}' stands in place of a comma or a closing bracket")
        return items

    def _item(self, depth: int) -> Any:
        if depth and self._tokens and self._tokens[-1] in ("(", "EMPTY"):
            return self._list(lambda: self._item(depth - 1))
        numbers = []
        while self._tokens and self._tokens[-1][0] in "+-.0123456789":
            numbers.append(float(self._next()))
        return tuple(numbers)

    def _next(self) -> str:
        if not self._tokens:
            raise ValueError("it ends within the geometry")
        return self._tokens.pop()
