"""Reads variants by the specification of Parquet (VariantEncoding.md). It checks what the specification demands."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any
from uuid import UUID

EXACT = Context(prec=100)
WHOLE = {3: 1, 4: 2, 5: 4, 6: 8}
DECIMALS = {8: 4, 9: 8, 10: 16}
EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Single:
    """A 32-bit float."""

    number: float


def decode(metadata: bytes, value: bytes) -> Any:
    """The value. Whole numbers are int, and decimals Decimal.

    :raises AssertionError: the bytes break a rule.
    """
    names = dictionary(metadata)
    found, end = _value(names, value, 0)
    assert end == len(value), "bytes after the value"
    return found


def dictionary(metadata: bytes) -> list[str]:
    version, is_sorted, width = metadata[0] & 15, metadata[0] >> 4 & 1, (metadata[0] >> 6) + 1
    assert version == 1
    count = _number(metadata, 1, width)
    offsets = [_number(metadata, 1 + width * (1 + place), width) for place in range(count + 1)]
    start = 1 + width * (count + 2)
    assert offsets[0] == 0 and start + offsets[-1] == len(metadata)
    texts = [metadata[start + a : start + b] for a, b in pairwise(offsets)]
    if is_sorted:
        assert texts == sorted(set(texts)), "the dictionary is not sorted"
    return [text.decode() for text in texts]


def _number(data: bytes, at: int, width: int) -> int:
    assert at + width <= len(data)
    return int.from_bytes(data[at : at + width], "little")


def _value(names: list[str], data: bytes, at: int) -> tuple[Any, int]:
    """A value, and the place of its end."""
    basic, header, at = data[at] & 3, data[at] >> 2, at + 1
    match basic:
        case 0:
            return _primitive(header, data, at)
        case 1:
            return data[at : at + header].decode(), at + header
        case 2:
            return _object(names, header, data, at)
    offset_width, is_large = (header & 3) + 1, header >> 2 & 1
    count, at = _number(data, at, 4 if is_large else 1), at + (4 if is_large else 1)
    offsets = [_number(data, at + offset_width * place, offset_width) for place in range(count + 1)]
    start = at + offset_width * (count + 1)
    items = []
    for place in range(count):
        item, end = _value(names, data, start + offsets[place])
        assert end == start + offsets[place + 1]
        items.append(item)
    return items, start + offsets[-1]


def _object(names: list[str], header: int, data: bytes, at: int) -> tuple[Mapping[str, Any], int]:
    offset_width, id_width, is_large = (header & 3) + 1, (header >> 2 & 3) + 1, header >> 4 & 1
    count, at = _number(data, at, 4 if is_large else 1), at + (4 if is_large else 1)
    ids = [_number(data, at + id_width * place, id_width) for place in range(count)]
    at += id_width * count
    offsets = [_number(data, at + offset_width * place, offset_width) for place in range(count + 1)]
    start = at + offset_width * (count + 1)
    fields = [names[each] for each in ids]
    keys = [field.encode() for field in fields]
    assert keys == sorted(set(keys)), "the fields are not sorted, or one comes twice"
    found = {field: _value(names, data, start + offset) for field, offset in zip(fields, offsets, strict=False)}
    assert sum(end - start - offset for (_, end), offset in zip(found.values(), offsets, strict=False)) == offsets[-1]
    return {field: value for field, (value, _) in found.items()}, start + offsets[-1]


def _primitive(kind: int, data: bytes, at: int) -> tuple[Any, int]:
    if kind <= 2:
        return (None, True, False)[kind], at
    if kind in WHOLE:
        end = at + WHOLE[kind]
        return int.from_bytes(data[at:end], "little", signed=True), end
    if kind in DECIMALS:
        end, scale = at + 1 + DECIMALS[kind], data[at]
        unscaled = int.from_bytes(data[at + 1 : end], "little", signed=True)
        digits = {8: 9, 9: 18, 10: 38}[kind]
        assert scale <= digits and abs(unscaled) < 10**digits
        return Decimal(unscaled).scaleb(-scale, EXACT), end
    if kind in (15, 16):
        size = _number(data, at, 4)
        raw = data[at + 4 : at + 4 + size]
        assert len(raw) == size
        return (raw if kind == 15 else raw.decode()), at + 4 + size
    forms: dict[int, tuple[str, Callable[[Any], Any]]] = {
        7: ("<d", float),
        11: ("<i", lambda days: date(1970, 1, 1) + timedelta(days=days)),
        12: ("<q", lambda micros: (EPOCH + timedelta(microseconds=micros)).replace(tzinfo=UTC)),
        13: ("<q", lambda micros: EPOCH + timedelta(microseconds=micros)),
        14: ("<f", Single),
        20: (">16s", lambda raw: UUID(bytes=raw)),
    }
    form, make = forms[kind]
    (raw,) = struct.unpack_from(form, data, at)
    return make(raw), at + struct.calcsize(form)
