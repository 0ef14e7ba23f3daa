"""``python -m tests.fuzz.run_geometries --shapes 1000000 [--seed 7]``: random geometries in every form that a record may
have, compared with the binary that DuckDB makes of their text, and their boxes with their coordinates.

Prints one line for each geometry that became another one, and how many there were.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from calving.casting.geometries import geometry_of
from calving.records.foreign import GeoType
from calving.records.wkb import read_wkb
from calving.writing.formats.boxes import Box

NAMES = ["Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon", "GeometryCollection"]
PLANE = GeoType("srid:4326")
Position = tuple[float, ...]


@dataclass
class Shape:
    """``inside``: positions, or the rings or parts of which it consists."""

    name: str
    dimensions: str
    inside: Sequence[Any]

    @property
    def positions(self) -> Iterator[Position]:
        for each in self.inside:
            if isinstance(each, Shape):
                yield from each.positions
            elif isinstance(each, tuple):
                yield each
            else:
                yield from each

    @property
    def has_empty(self) -> bool:
        return not self.inside or any(isinstance(each, Shape) and each.has_empty for each in self.inside)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    wrong, count = fuzz(args.seed, args.shapes)
    print(*wrong, sep="\n")
    print(f"seed {args.seed}: {count:,} forms of {args.shapes:,} geometries, {len(wrong)} became another one")
    return 1 if wrong else 0


def fuzz(seed: int, shapes: int) -> tuple[list[str], int]:
    """What became another geometry, and the number of forms."""
    draw, count, wrong = random.Random(seed), 0, list[str]()
    connection = duckdb.connect()
    for start in range(0, shapes, 1_000):
        some = [drawn(draw) for _ in range(min(1_000, shapes - start))]
        texts = [text(shape) for shape in some]
        rows = connection.execute("select st_asbinary(unnest(?::varchar[])::geometry)", [texts]).fetchall()
        for shape, given, (wanted,) in zip(some, texts, rows, strict=True):
            forms = [*forms_of(shape, given, draw)]
            count += len(forms)
            wrong += [f"{form!r}: {given}" for form in forms if made(form) != wanted]
            if repr(corners(wanted)) != repr(corners_of(shape)):
                wrong.append(f"box {corners(wanted)}: {given}")
    return wrong, count


def made(form: Any) -> bytes | str:
    try:
        return geometry_of(form, PLANE)
    except ValueError as error:
        return str(error)


def drawn(draw: random.Random, name: str | None = None, dimensions: str | None = None, depth: int = 2) -> Shape:
    dimensions = draw.choice(["", "", "Z", "M", "ZM"]) if dimensions is None else dimensions
    name = draw.choice(NAMES) if name is None else name
    count = draw.choice([0, 1, 2, 2, 3])
    if name == "Point":
        return Shape(name, dimensions, positions(draw, dimensions, min(1, count)))
    if name == "LineString":
        return Shape(name, dimensions, positions(draw, dimensions, draw.choice([0, 2, 3, 50])))
    if name == "Polygon":
        rings = [positions(draw, dimensions, draw.choice([3, 4, 20])) for _ in range(count)]
        return Shape(name, dimensions, [[*ring, ring[0]] for ring in rings])
    part = name.removeprefix("Multi")
    inner = [each for each in NAMES if depth or each != "GeometryCollection"]
    parts = [draw.choice(inner) if part == name else part for _ in range(count)]
    return Shape(name, dimensions, [drawn(draw, each, dimensions, max(0, depth - 1)) for each in parts])


def positions(draw: random.Random, dimensions: str, count: int) -> list[Position]:
    return [tuple(number(draw) for _ in range(2 + len(dimensions))) for _ in range(count)]


def number(draw: random.Random) -> float:
    whole, any_one = draw.randint(-180, 180), draw.uniform(-180, 180)
    return draw.choice([float(whole), any_one, round(any_one, 6), any_one * 10.0 ** draw.randint(-300, 300), 0.0, -0.0])


def text(shape: Shape, tag: bool = True) -> str:
    """Its well-known text."""
    said = f"{shape.name.upper()} {shape.dimensions} " if tag else ""
    if not shape.inside:
        return f"{said}EMPTY"
    if shape.name == "Polygon":
        inside = [f"({listed(ring)})" for ring in shape.inside]
    elif isinstance(shape.inside[0], tuple):
        inside = [listed(shape.inside)]
    else:
        inside = [text(part, shape.name == "GeometryCollection") for part in shape.inside]
    return f"{said}({', '.join(inside)})"


def listed(line: Sequence[Position]) -> str:
    return ", ".join(" ".join(map(repr, position)) for position in line)


def forms_of(shape: Shape, given: str, draw: random.Random) -> Iterator[Any]:
    """What records may have."""
    yield given
    yield f"SRID=4326;{given.replace(' Z', 'Z').replace(' M ', 'M ').lower()}"
    yield (extended := binary(shape, draw, srid=4326))
    yield binary(shape, draw, srid=None).hex()
    yield {"wkb": extended, "srid": draw.choice([None, 0, 4326])}
    if "M" not in shape.dimensions and not shape.has_empty:
        yield (document := geojson(shape))
        yield json.dumps(document)


def geojson(shape: Shape) -> dict[str, Any]:
    if shape.name == "GeometryCollection":
        return {"type": shape.name, "geometries": [geojson(part) for part in shape.inside]}
    return {"type": shape.name, "coordinates": json.loads(json.dumps(arrays(shape)))}


def arrays(shape: Shape) -> Any:
    if shape.name == "Point":
        return shape.inside[0]
    return [arrays(each) if isinstance(each, Shape) else each for each in shape.inside]


def binary(shape: Shape, draw: random.Random, srid: int | None) -> bytes:
    """PostGIS's extended binary, or ISO's, each part in any order of bytes."""
    order, kind = draw.choice("<>"), NAMES.index(shape.name) + 1
    if draw.random() < 0.5:
        kind += 1000 * ["", "Z", "M", "ZM"].index(shape.dimensions)
    else:
        kind |= 0x80000000 * ("Z" in shape.dimensions) | 0x40000000 * ("M" in shape.dimensions)
    made = struct.pack(f"{order}B", order == "<")
    made += struct.pack(f"{order}I", kind) if srid is None else struct.pack(f"{order}II", kind | 0x20000000, srid)
    if shape.name == "Point":
        return made + packed(order, shape.inside or [(math.nan,) * (2 + len(shape.dimensions))])
    made += struct.pack(f"{order}I", len(shape.inside))
    if shape.name == "LineString":
        return made + packed(order, shape.inside)
    if shape.name == "Polygon":
        return made + b"".join(struct.pack(f"{order}I", len(ring)) + packed(order, ring) for ring in shape.inside)
    return made + b"".join(binary(part, draw, draw.choice([None, srid])) for part in shape.inside)


def packed(order: str, line: Sequence[Position]) -> bytes:
    return b"".join(struct.pack(f"{order}{len(position)}d", *position) for position in line)


def corners(wkb: bytes) -> Any:
    """Those of the box that calving makes, as numbers."""
    box = Box()
    box.add(read_wkb(wkb)[0])
    found = box.corners()
    return found and [[number + 0.0 for number in struct.unpack(f"<{len(each) // 8}d", each)] for each in found]


def corners_of(shape: Shape) -> Any:
    found = [*shape.positions]
    if not found:
        return None
    sides = [[*map(extreme, zip(*found, strict=True))] for extreme in (min, max)]
    if shape.dimensions == "M":
        sides = [[*side[:2], math.nan, side[2]] for side in sides]
    return [[number + 0.0 for number in side] for side in sides]  # there is one zero


if __name__ == "__main__":
    sys.exit(main())
