"""Cast: values of one primitive type into another, as Java converts them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import ConfigError
from calving.records.arrays import JSON
from calving.records.semantics import plain
from calving.transforms.columns import Fields, Sided, check_options, each, required
from calving.transforms.text import as_text, millis

_KINDS: Mapping[str, pa.DataType] = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}


class Cast(Sided):
    """``spec``: ``field:type`` pairs, or one type for the whole. A number that does not fit is an error."""

    keeps_names = True

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("spec", "replace.null.with.default"), "Cast")
        self._whole: str | None = None
        self._fields: dict[str, str] = {}
        parts = [part.split(":") for part in required(options, "spec", "Cast").split(",")]
        for part in parts:
            kind = part[-1].strip().lower()
            if kind not in _KINDS:
                raise ConfigError(f"transform Cast: there is no type '{part[-1]}'; there are: {', '.join(_KINDS)}")
            if len(part) > 2 or (len(part) == 1 and len(parts) > 1):
                raise ConfigError("transform Cast: spec is one type, or pairs field:type")
            if len(part) == 1:
                self._whole = kind
            else:
                self._fields[part[0].strip()] = kind

    def change(self, column: pa.Array, *, typed: bool) -> pa.Array:
        if self._whole is not None:
            return cast(column, self._whole, "the value")
        fields = Fields(column)
        for name, kind in self._fields.items():
            current = fields.get(name)
            if current is not None:
                fields.put(name, cast(current, kind, f"field '{name}'"))
        return fields.column()


def cast(column: pa.Array, name: str, what: str) -> pa.Array:
    """The column in another type. Nulls stay null.

    :raises RefusedError: some values cannot be cast.
    """
    column = plain(column)
    source, kind = column.type, _KINDS[name]
    t = pa.types
    if t.is_null(source):
        return pa.nulls(len(column), kind)
    if t.is_temporal(source) and name != "string":
        column = millis(column) if not t.is_date(source) else column.cast(pa.date32()).cast(pa.int32())
        source = column.type
    if name == "string":
        is_simple = source != JSON and not t.is_nested(source)
        return as_text(column) if is_simple else pa.array(each(column, _json_text, f"{what}: "), kind)
    if t.is_boolean(source) or t.is_integer(source) or t.is_floating(source):
        fast = _by_arrow(column, kind)
        if fast is not None:
            return fast
    return pa.array(each(column, _CHANGES[name], f"{what}: "), kind)


def _by_arrow(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The whole column cast at once; None if not all values fit."""
    floating = pa.types.is_floating(column.type)
    if pa.types.is_boolean(kind):
        if pa.types.is_boolean(column.type):
            return column
        if floating:
            return pc.and_(pc.not_equal(pc.trunc(column), 0), pc.invert(pc.is_nan(column)))
        return pc.not_equal(column, 0)
    if pa.types.is_floating(kind):
        casted = column.cast(kind, safe=False)
        same = not floating or pc.all(pc.equal(pc.is_inf(casted), pc.is_inf(column))).as_py() is not False
        return casted if same else None
    try:
        return (pc.trunc(column) if floating else column).cast(kind)
    except pa.ArrowInvalid:
        return None


def _integer(value: Any, bits: int) -> int:
    if isinstance(value, str):
        if not re.fullmatch("[+-]?[0-9]+", value):
            raise ValueError(f"'{value}' is not a whole number")
        digits = value.lstrip("+-").lstrip("0") or "0"
        number = (-1 if value[0] == "-" else 1) * int(digits) if len(digits) < 100 else 1 << 200
    else:
        number = math.trunc(_number(value))
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError(f"{value} does not fit {bits} bits")
    return number


_FLOAT = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")


def _float(value: Any, largest: float) -> float:
    if isinstance(value, str):
        text = value.strip("".join(map(chr, range(33))))
        if not _FLOAT.fullmatch(text):
            raise ValueError(f"'{value}' is not a number")
        if text.lstrip("+-") in ("NaN", "Infinity"):
            return float(text)
        value = Decimal(text.rstrip("fFdD"))
    number = float(_number(value))
    if abs(number) >= largest and not (isinstance(value, float) and math.isinf(value)):
        raise ValueError(f"{value} does not fit")
    return number


_FLOAT32_END = 2.0**128 - 2.0**103
"""Numbers from here on round to infinity."""


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() == "true"
    return bool(math.trunc(_number(value)) != 0)


def _number(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise ValueError("an array or object is not a number")
    if not isinstance(value, int | float | Decimal):
        raise ValueError(f"{value!r} is not a number")
    return value


def _json_text(value: Any) -> str:
    if isinstance(value, list | dict):
        raise ValueError("an array or object cannot be cast")
    text = as_text(pa.array([float(value) if isinstance(value, Decimal) else str(value)]))
    return str(text[0].as_py())


_CHANGES: Mapping[str, Callable[[Any], Any]] = {
    **{f"int{bits}": partial(_integer, bits=bits) for bits in (8, 16, 32, 64)},
    "float32": partial(_float, largest=_FLOAT32_END),
    "float64": partial(_float, largest=math.inf),
    "boolean": _boolean,
}
