"""Decodes values, and says what became of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calving.data.converters.interface import Converter
from calving.data.records import objects


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
