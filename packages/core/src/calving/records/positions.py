"""Texts that are numbers or positions in a log, as keys that compare as the numbers and positions do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.tables import OrderType

_NUMBER = re.compile(r"([+-]?)([0-9]{1,999})(?:\.([0-9]+))?", re.ASCII)
_POSTGRES = re.compile(r"([0-9a-f]{1,8})/([0-9a-f]{1,8})", re.ASCII | re.IGNORECASE)
_SQL_SERVER = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{1,8}):([0-9a-f]{1,4})", re.ASCII | re.IGNORECASE)
_BINARY_LOG = re.compile(r"[^:/]+\.([0-9]{1,19})[:/]([0-9]{1,19})", re.ASCII)
_LONGEST = 1_000
_ELEMENT = re.compile(r"[0-9]{1,38}", re.ASCII)
_COMPLEMENT = str.maketrans("0123456789", "9876543210")


def order_keys(column: pa.Array, kind: OrderType) -> pa.Array:
    """Keys that compare as the column's values do; null where a text is neither a number nor a position in a log. Only
    texts need keys: values of other types are their own.
    """
    if kind == "text" or not pa.types.is_string(column.type):
        return column
    keys = _common_keys(column)
    others = pc.indices_nonzero(pc.and_(column.is_valid(), keys.is_null())).to_pylist()
    if not others:
        return keys
    texts = keys.to_pylist()
    for place in others:
        texts[place] = _key(column[place].as_py().strip())
    return pa.array(texts, pa.string())


def _common_keys(column: pa.Array) -> pa.Array:
    """The keys of texts that are spelt as the first one usually is, found all at once; null for other texts."""
    texts = column.drop_null()
    first = texts[0].as_py() if len(texts) else ""
    for pattern, keys in _COMMON:
        if re.fullmatch(pattern, first):
            matched = keys(pc.extract_regex(column, f"^{pattern}$"))
            return pc.if_else(pc.greater(pc.binary_length(column), _LONGEST), pa.scalar(None, pa.string()), matched)
    return pa.nulls(len(column), pa.string())


def _key(text: str) -> str | None:
    if len(text) > _LONGEST:
        return None
    for pattern, key in _FORMS:
        if match := pattern.fullmatch(text):
            return key(match)
    return _sequence(text) if text.startswith("[") else None


def _number(match: re.Match[str]) -> str | None:
    sign, digits, fraction = match.groups(default="")
    fraction = fraction.rstrip("0")
    if sign != "-":
        return f"n{_counted(digits)}{fraction}"
    if fraction:
        return None
    return f"n{_counted(digits)}" if digits.strip("0") == "" else f"m{_counted(digits).translate(_COMPLEMENT)}"


def _sequence(text: str) -> str | None:
    """Debezium's ``source.sequence``: an array of numbers as text. Null is less than any number."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    parts = [_element(each) for each in parsed]
    return None if None in parts or not parts else "s" + "".join(part or "" for part in parts)


def _element(value: Any) -> str | None:
    if value is None:
        return "000"
    text = str(value) if type(value) in (int, str) else ""
    return _counted(text) if _ELEMENT.fullmatch(text) else None


def _counted(digits: str) -> str:
    """Digits with their number in front, so that longer numbers are greater."""
    digits = digits.lstrip("0") or "0"
    return f"{len(digits):03}{digits}"


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str | None]], ...] = (
    (_NUMBER, _number),
    (_POSTGRES, lambda match: "p" + "".join(part.upper().zfill(8) for part in match.groups())),
    (_SQL_SERVER, lambda match: "q" + "".join(part.upper().zfill(8) for part in match.groups())),
    (_BINARY_LOG, lambda match: "b" + "".join(map(_counted, match.groups()))),
)


def _decimal(parts: pa.StructArray) -> pa.Array:
    whole, fraction = parts.flatten()
    return _joined("n", [_counted_column(whole), pc.ascii_rtrim(fraction, "0")])


def _place(parts: pa.StructArray) -> pa.Array:
    return _joined("b", [_counted_column(column) for column in parts.flatten()])


def _hexadecimal(mark: str) -> Callable[[pa.StructArray], pa.Array]:
    def keys(parts: pa.StructArray) -> pa.Array:
        return _joined(mark, [pc.utf8_upper(pc.utf8_lpad(column, 8, "0")) for column in parts.flatten()])

    return keys


def _pair(parts: pa.StructArray) -> pa.Array:
    first, second = parts.flatten()
    return _joined("s", [pc.if_else(pc.equal(first, ""), "000", _counted_column(first)), _counted_column(second)])


def _counted_column(digits: pa.Array) -> pa.Array:
    """As ``_counted``, of each text."""
    digits = pc.ascii_ltrim(digits, "0")
    digits = pc.if_else(pc.equal(digits, ""), "0", digits)
    counts = pc.utf8_lpad(pc.binary_length(digits).cast(pa.string()), 3, "0")
    return pc.binary_join_element_wise(counts, digits, "")


def _joined(mark: str, parts: Sequence[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(mark), *parts, "")


_COMMON: tuple[tuple[str, Callable[[pa.StructArray], pa.Array]], ...] = (
    (r"(?P<a>[0-9]{1,38})(?:\.(?P<b>[0-9]{1,38}))?", _decimal),
    (r"(?P<a>[0-9a-fA-F]{1,8})/(?P<b>[0-9a-fA-F]{1,8})", _hexadecimal("p")),
    (r"(?P<a>[0-9a-fA-F]{1,8}):(?P<b>[0-9a-fA-F]{1,8}):(?P<c>[0-9a-fA-F]{1,4})", _hexadecimal("q")),
    (r"[^:/]+\.(?P<a>[0-9]{1,19})[:/](?P<b>[0-9]{1,19})", _place),
    (r"\[ ?(?:null|\"(?P<a>[0-9]{1,38})\"), ?\"(?P<b>[0-9]{1,38})\" ?\]", _pair),
)
"""The usual spellings, as expressions that Python and Arrow read alike; and what makes keys of their parts."""
