"""MaskField: replaces values with neutral ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import ConfigError
from calving.records.arrays import JSON, arrow
from calving.records.semantics import like, plain
from calving.transforms.columns import Fields, check_options, each, names, only_nulls
from calving.transforms.sided import Sided
from calving.transforms.text import kind_text


class MaskField(Sided):
    """``fields`` get the neutral value of their type; or ``replacement``, if they are text or numbers."""

    keeps_names = True

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("fields", "replacement", "replace.null.with.default"), "MaskField")
        self._fields = names(options, "fields")
        self._replacement = options.get("replacement")
        if not self._fields:
            raise ConfigError("transform MaskField: the option 'fields' is missing")
        if self._replacement == "":
            raise ConfigError("transform MaskField: the option 'replacement' is empty")

    def change(self, column: pa.Array, *, typed: bool) -> pa.Array:
        fields = Fields(column)
        for name in self._fields:
            current = fields.get(name)
            if current is None or pa.types.is_null(current.type):
                continue
            if self._replacement is not None:
                masked = _replaced(plain(current), self._replacement, name)
            else:
                masked = _masked(plain(current), typed, name)
            fields.put(name, like(current.type, masked))
        return fields.column()


def _masked(column: pa.Array, typed: bool, name: str) -> pa.Array:
    kind = column.type
    t = pa.types
    if kind == JSON:
        return pa.array([None if v is None else json.dumps(_nothing(v)) for v in each(column, lambda v: v)], JSON)
    if t.is_struct(kind) and not typed:
        return pa.array([{} if valid else None for valid in column.is_valid().to_pylist()], pa.struct([]))
    if t.is_list(kind) or t.is_map(kind):
        return arrow([[] if valid else None for valid in column.is_valid().to_pylist()], kind)
    if t.is_string(kind) or t.is_binary(kind):
        nothing = pa.array([""]).cast(kind)[0]
    elif t.is_boolean(kind):
        nothing = pa.scalar(False)
    elif t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind):
        nothing = pa.array([0]).cast(kind)[0]
    elif t.is_temporal(kind):
        nothing = pa.array([0], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)[0]
    else:
        return only_nulls(column, f"field '{name}': {kind_text(kind)} cannot be masked")
    return _everywhere(column, nothing)


def _nothing(value: Any) -> Any:
    return type(value)() if not isinstance(value, Decimal) else 0.0


def _replaced(column: pa.Array, replacement: str, name: str) -> pa.Array:
    kind = column.type
    t = pa.types
    if t.is_string(kind):
        return _everywhere(column, pa.scalar(replacement, kind))
    if not (kind == JSON or t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind)):
        return only_nulls(column, f"field '{name}': {kind_text(kind)} cannot be replaced by '{replacement}'")
    try:
        number = Decimal(replacement)
        whole = int(number)
        if kind == JSON:
            texts = each(column, lambda v: _json_number(v, number), f"field '{name}': ")
            return pa.array(texts, JSON)
        said: Any = whole if t.is_integer(kind) else float(number) if t.is_floating(kind) else number
        return _everywhere(column, pa.array([said], kind)[0])
    except (InvalidOperation, ValueError, OverflowError, pa.ArrowInvalid):
        pass
    return only_nulls(column, f"field '{name}': '{replacement}' is not a number of type {kind}")


def _json_number(value: Any, number: Decimal) -> str:
    if isinstance(value, int | Decimal):
        return str(int(number)) if isinstance(value, int) else repr(float(number))
    raise ValueError(f"{value!r} cannot be replaced by a number")


def _everywhere(column: pa.Array, said: pa.Scalar) -> pa.Array:
    return pc.if_else(column.is_valid(), said, pa.scalar(None, column.type))
