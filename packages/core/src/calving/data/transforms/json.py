"""JsonToMapTransform: text that holds a JSON object becomes fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from calving.data.arrays import arrow
from calving.data.conversion.exact import java_double
from calving.data.jsontext import load_json
from calving.data.records import Records
from calving.data.transforms.columns import by_type, check_options, each, flag, struct_of
from calving.data.transforms.interface import Transform, UnfitTypeError

_TEXTS = pa.map_(pa.string(), pa.string())


class JsonToMapTransform(Transform):
    """With ``json.root``: one field ``payload``, a map of text to text. Else a field for each of the object's.

    Objects below become maps of text to text, arrays of one kind stay arrays, mixed ones become arrays of text. Every
    record gets the types of its own text, so records of several types come out.
    """

    tombstones = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("json.root",), "JsonToMapTransform")
        self._root = flag(options, "json.root", "JsonToMapTransform")

    def apply(self, records: Records) -> list[Records]:
        if not pa.types.is_string(records.value.type):
            raise UnfitTypeError(f"text is wanted, not {records.value.type}")
        values = each(records.value, _object)
        records = replace(records, typed=True)
        if self._root:
            maps = pa.array([_texts(v) for v in values], _TEXTS)
            return [records.with_value(struct_of({"payload": maps}, None, len(records)))]
        parts = []
        for kind, places in by_type([_struct(v) for v in values]):
            rows = [{f.name: _fit(values[i][f.name], f.type) for f in kind} for i in places]
            part = records if len(places) == len(records) else records.take(pa.array(places, pa.int32()))
            parts.append(part.with_value(arrow(rows, kind)))
        return parts


def _object(text: str) -> dict[str, Any]:
    found = load_json(text)
    if not isinstance(found, dict):
        raise ValueError("the text is not a JSON object")
    return found


def _texts(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, _text(item)) for name, item in value.items()]


def _text(value: Any) -> str:
    """Text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        number = float(value)
        return java_double(number) if Decimal(repr(number)) == value else str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(name)}:{_inner(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_inner, value)) + "]"
    return json.dumps(value)


def _inner(value: Any) -> str:
    return _quoted(value) if isinstance(value, str) else _text(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _struct(value: Mapping[str, Any]) -> pa.DataType:
    """The type of an object; what says nothing (null, empty objects and arrays) is no field."""
    return pa.struct([(name, kind) for name, item in value.items() if (kind := _kind(item)) is not None])


def _kind(value: Any) -> pa.DataType | None:
    match value:
        case bool():
            return pa.bool_()
        case int() if -(2**31) <= value < 2**31:
            return pa.int32()
        case int() if -(2**63) <= value < 2**63:
            return pa.int64()
        case int():
            return pa.decimal128(38, 0)
        case Decimal():
            return pa.float64()
        case dict():
            return _TEXTS if value else None
        case list():
            return _list(value)
        case str():
            return pa.string()
    return None


def _list(items: Sequence[Any]) -> pa.DataType | None:
    if not items:
        return None
    if all(isinstance(item, dict) for item in items):
        return pa.list_(_TEXTS)
    if all(isinstance(item, list) for item in items):
        kinds = {_kind(item) for item in items}
        if len(kinds) > 1:
            return pa.list_(pa.list_(pa.string()))
        (kind,) = kinds
        return None if kind is None else pa.list_(kind)
    kinds = {_kind(item) for item in items}
    kind = kinds.pop()
    same = not kinds and kind is not None and not any(isinstance(item, list | dict) for item in items)
    return pa.list_(kind if same else pa.string())


def _fit(value: Any, kind: pa.DataType) -> Any:
    if kind == _TEXTS:
        return _texts(value)
    if pa.types.is_list(kind):
        return [_fit(item, kind.value_type) for item in value]
    if pa.types.is_string(kind):
        return _text(value)
    return float(value) if pa.types.is_float64(kind) else value
