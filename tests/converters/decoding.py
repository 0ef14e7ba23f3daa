"""Decodes values, and says what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from calving.converters.interface import Converter
from calving.records.shapes import by_shape
from calving.records.values import objects


@dataclass
class Found:
    values: dict[int, Any]
    bad: dict[int, str]
    types: list[str]


def decode(converter: Converter, values: list[bytes]) -> Found:
    decoded = converter.decode(values, None)
    found = Found({}, {b.index: b.reason for b in decoded.bad}, [])
    for part in decoded.values:
        places = part.index if part.index is not None else range(len(values))
        data = part.data if isinstance(part.data, list) else objects(part.data)
        found.values |= dict(zip(places, data, strict=True))
        found.types.append("objects" if isinstance(part.data, list) else str(part.data.type))
    assert sorted([*found.values, *found.bad]) == list(range(len(values)))
    return found


def columns(values: Sequence[Any]) -> pa.Array:
    """Schemaless values as one column: as the chain of transforms gets them if they are of one shape."""
    shapes = by_shape(values, decimals=False)
    return shapes[0][1] if len(shapes) == 1 else pa.array(values)
