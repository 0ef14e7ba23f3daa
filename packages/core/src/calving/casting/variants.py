"""Values in the binary encoding of variants, as the Parquet format specifies it: a dictionary of all field names, and
the value, which refers to it.

    >>> encode({"a": 1})
    Variant(metadata=b'\\x11\\x01\\x00\\x01a', value=b'\\x02\\x01\\x00\\x00\\x02\\x0c\\x01')
"""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

from calving.casting.texts import plain_text
from calving.records.arrays import Digits, Pairs, Scaled, Single
from calving.records.encoded import Variant
from calving.records.semantics import PER_SECOND, Moment

_VERSION, _SORTED = 1, 1 << 4
_SHORT_STRING, _OBJECT, _ARRAY = 1, 2, 3
_NULL, _TRUE, _FALSE, _INT8, _INT16, _INT32, _INT64, _DOUBLE = (kind << 2 for kind in range(8))
_DECIMAL4, _DECIMAL8, _DECIMAL16 = (kind << 2 for kind in range(8, 11))
_DATE, _TIMESTAMPTZ, _TIMESTAMP, _FLOAT, _BINARY, _STRING = (kind << 2 for kind in range(11, 17))
_UUID = 20 << 2
_INTEGERS = ((7, _INT8, "b"), (15, _INT16, "<h"), (31, _INT32, "<i"), (63, _INT64, "<q"))
_DECIMALS = ((9, _DECIMAL4, 4), (18, _DECIMAL8, 8), (38, _DECIMAL16, 16))
_MOST_DIGITS = 38
_SHORT, _SMALL = 64, 256
_EPOCH = datetime(1970, 1, 1)
_MICRO = timedelta(microseconds=1)
_DAY = timedelta(days=1) // _MICRO
_EXACT = Context(prec=2_000)


def encode(value: Any, *, typed: bool = False) -> Variant:
    """A value of ``jsontext.parse`` or of ``values.objects`` as a variant. ``typed``: it comes with a schema, so that a
    float is a double; otherwise a fraction is a decimal if one holds it.

    :raises ValueError: there is no variant of it.
    """
    if isinstance(value, Variant):
        return value
    names: set[str] = set()
    _collect(value, names)
    ordered = sorted(names)  # by code points, which is the order of UTF-8's bytes
    writer = _Writer({name: number for number, name in enumerate(ordered)}, typed)
    return Variant(_dictionary(ordered), writer.of(value))


def _collect(value: Any, names: set[str]) -> None:
    """Add the names of all fields inside."""
    if isinstance(value, Scaled):
        return
    if isinstance(value, Mapping):
        names.update(value)
        inside: Iterable[Any] = value.values()
    elif isinstance(value, Pairs):
        names.update(plain_text(key) for key, _ in value)
        inside = [item for _, item in value]
    elif isinstance(value, list):
        inside = value
    else:
        return
    for item in inside:
        if isinstance(item, Mapping | list):
            _collect(item, names)


def _dictionary(names: list[str]) -> bytes:
    texts = [name.encode() for name in names]
    offsets = [0]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    width = _width(max(offsets[-1], len(texts)))
    header = _VERSION | _SORTED | (width - 1) << 6
    return b"".join((bytes([header]), len(texts).to_bytes(width, "little"), _numbers(offsets, width), *texts))


def _width(number: int) -> int:
    """The bytes that an unsigned number takes."""
    return max(1, (number.bit_length() + 7) // 8)


def _numbers(numbers: Iterable[int], width: int) -> bytes:
    return b"".join(number.to_bytes(width, "little") for number in numbers)


class _Writer:
    """Writes values with one dictionary."""

    def __init__(self, ids: Mapping[str, int], typed: bool) -> None:
        self._ids, self._typed = ids, typed

    def of(self, value: Any) -> bytes:
        write = _WRITERS.get(type(value))
        if write is not None:
            return write(value)
        match value:
            case Scaled():
                return _decimal(value.number)
            case Pairs():
                return self._object({plain_text(key): item for key, item in value})
            case Mapping():
                return self._object(value)
            case list():
                return self._array(value)
            case float() | Decimal():
                return self._fraction(value)
            case int():
                return _integer(int(value))
            case str():
                return _string(str(value))
        raise ValueError(f"{type(value).__name__} has no form as a variant")

    def _object(self, value: Mapping[str, Any]) -> bytes:
        fields = sorted(value)
        items = [self.of(value[name]) for name in fields]
        ids = [self._ids[name] for name in fields]
        id_width = _width(max(ids, default=0))
        offsets, width = _offsets(items)
        is_large = len(items) >= _SMALL
        header = _OBJECT | (width - 1 | id_width - 1 << 2 | is_large << 4) << 2
        count = len(items).to_bytes(4 if is_large else 1, "little")
        return b"".join((bytes([header]), count, _numbers(ids, id_width), _numbers(offsets, width), *items))

    def _array(self, value: list[Any]) -> bytes:
        items = [*map(self.of, value)]
        offsets, width = _offsets(items)
        is_large = len(items) >= _SMALL
        header = _ARRAY | (width - 1 | is_large << 2) << 2
        count = len(items).to_bytes(4 if is_large else 1, "little")
        return b"".join((bytes([header]), count, _numbers(offsets, width), *items))

    def _fraction(self, value: float | Decimal) -> bytes:
        if isinstance(value, Digits):
            return _decimal(value)
        if isinstance(value, float) and (self._typed or not math.isfinite(value)):
            return _double(value)
        exact = Decimal(repr(value)) if isinstance(value, float) else value
        if exact.is_zero() and exact.is_signed():
            return _double(-0.0)
        known = _unscaled(exact)
        return _double(float(value)) if known is None else _written(*known)


def _offsets(items: list[bytes]) -> tuple[list[int], int]:
    """The offset of each item and of their end, and the bytes that each takes."""
    offsets = [0]
    for item in items:
        offsets.append(offsets[-1] + len(item))
    return offsets, _width(offsets[-1])


def _integer(value: int) -> bytes:
    for bits, kind, form in _INTEGERS:
        if -(1 << bits) <= value < 1 << bits:
            return bytes([kind]) + struct.pack(form, value)
    if abs(value) < 10**_MOST_DIGITS:
        return _written(value, 0)
    return _double(float(value))


def _decimal(value: Decimal) -> bytes:
    known = _unscaled(value)
    if known is None:
        raise ValueError(f"a decimal of a variant has at most {_MOST_DIGITS} digits")
    return _written(*known)


def _unscaled(value: Decimal) -> tuple[int, int] | None:
    """The unscaled number and the scale of a decimal, without zeros at the end of its fraction; None if it has too many
    digits for a variant.
    """
    if value.is_zero():
        return 0, 0
    if abs(value.adjusted()) > _MOST_DIGITS:
        return None
    sign, digits, exponent = value.normalize(_EXACT).as_tuple()
    scale = max(0, -int(exponent))
    number = int("".join(map(str, digits))) * 10 ** max(0, int(exponent))
    if scale > _MOST_DIGITS or number >= 10**_MOST_DIGITS:
        return None
    return (-number if sign else number), scale


def _written(unscaled: int, scale: int) -> bytes:
    for digits, kind, size in _DECIMALS:
        if abs(unscaled) < 10**digits and scale <= digits:  # Spark and DuckDB read no larger scale
            return bytes([kind, scale]) + unscaled.to_bytes(size, "little", signed=True)
    raise ValueError(f"a decimal of a variant has at most {_MOST_DIGITS} digits")


def _double(value: float) -> bytes:
    return bytes([_DOUBLE]) + struct.pack("<d", value)


def _string(value: str) -> bytes:
    text = value.encode()
    if len(text) < _SHORT:
        return bytes([_SHORT_STRING | len(text) << 2]) + text
    return bytes([_STRING]) + len(text).to_bytes(4, "little") + text


def _datetime(value: datetime) -> bytes:
    zoned = value.tzinfo is not None
    micros = ((value.astimezone(UTC).replace(tzinfo=None) if zoned else value) - _EPOCH) // _MICRO
    return bytes([_TIMESTAMPTZ if zoned else _TIMESTAMP]) + struct.pack("<q", micros)


def _moment(value: Moment) -> bytes:
    """A date or a timestamp that Python cannot hold; digits beyond microseconds are cut. A time of day is a text."""
    what, unit = value.meaning.what, value.meaning.unit
    if what == "date":
        return bytes([_DATE]) + struct.pack("<i", value.number)
    micros = value.number * 1_000_000 // PER_SECOND[unit]
    if what == "time":
        if not 0 <= micros < _DAY:
            raise ValueError(f"{value.number} {unit} are no time of day")
        return _string((_EPOCH + micros * _MICRO).time().isoformat())
    kind = _TIMESTAMPTZ if "tz=" in value.meaning.name else _TIMESTAMP  # the name of its Arrow type
    return bytes([kind]) + struct.pack("<q", micros)


_WRITERS: Mapping[type, Callable[[Any], bytes]] = {
    type(None): lambda _: bytes([_NULL]),
    bool: lambda value: bytes([_TRUE if value else _FALSE]),
    int: _integer,
    str: _string,
    bytes: lambda value: bytes([_BINARY]) + len(value).to_bytes(4, "little") + value,
    Single: lambda value: bytes([_FLOAT]) + struct.pack("<f", value),
    date: lambda value: bytes([_DATE]) + struct.pack("<i", (value - _EPOCH.date()).days),
    datetime: _datetime,
    time: lambda value: _string(value.isoformat()),  # Spark 4.1 reads no variant with a time of day
    Moment: _moment,
    uuid.UUID: lambda value: bytes([_UUID]) + value.bytes,
}
