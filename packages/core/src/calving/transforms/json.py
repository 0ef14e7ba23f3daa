"""JsonToMapTransform: text that holds a JSON object becomes fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from calving.casting.texts import java_double
from calving.records.arrays import arrow
from calving.records.jsontext import load_json
from calving.records.values import Records
from calving.transforms.columns import check_options, each, flag, struct_of
from calving.transforms.interface import NO_FIELDS, Transform, UnfitTypeError, by_name
from calving.transforms.text import kind_text

_TEXTS = pa.map_(pa.string(), pa.string())
_Kind = str | tuple[Any]
"""A name of ``_TYPES``. A tuple of one kind stands for a list of this kind."""
_TYPES = {
    "boolean": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "decimal": pa.decimal128(38, 0),
    "float64": pa.float64(),
    "string": pa.string(),
    "texts": _TEXTS,
}
_PLAIN: Mapping[type, str | None] = {bool: "boolean", Decimal: "float64", str: "string", type(None): None}
_AS_THEY_ARE = ("boolean", "int32", "int64", "decimal", "string")
"""Values of a field of these kinds are ready for Arrow."""


class JsonToMapTransform(Transform):
    """With ``json.root``: one field ``payload``, a map of text to text. Otherwise a field for each field of the object.

    Inner objects become maps of text to text. Arrays of one kind stay arrays; mixed arrays become arrays of text. Each
    record gets the types of its own text, so the results may have several types.
    """

    null_types = NO_FIELDS
    tombstones = False
    former = by_name

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("json.root",), "JsonToMapTransform")
        self._root = flag(options, "json.root", "JsonToMapTransform")

    def apply(self, records: Records) -> list[Records]:
        if not pa.types.is_string(records.value.type):
            raise UnfitTypeError(f"it must be text, not {kind_text(records.value.type)}")
        values = each(records.value, _object)
        records = replace(records, typed=True)
        if self._root:
            maps = pa.array([_texts(v) for v in values], _TEXTS)
            return [records.with_value(struct_of({"payload": maps}, None, len(records)))]
        return [_part(records, fields, places, values) for fields, places in _by_fields(values).items()]


def _by_fields(values: Sequence[Mapping[str, Any]]) -> dict[tuple[tuple[str, _Kind], ...], list[int]]:
    """The places of objects with the same fields. Null, empty objects and empty arrays make no field."""
    places: dict[tuple[tuple[str, _Kind], ...], list[int]] = {}
    for place, value in enumerate(values):
        fields = tuple([(name, kind) for name, item in value.items() if (kind := _kind(item)) is not None])
        places.setdefault(fields, []).append(place)
    return places


def _part(
    records: Records, fields: Sequence[tuple[str, _Kind]], places: list[int], values: Sequence[Mapping[str, Any]]
) -> Records:
    if len(places) < len(records):
        records = records.take(pa.array(places, pa.int32()))
        values = [values[i] for i in places]
    columns = {}
    for name, kind in fields:
        items = [value[name] for value in values]
        columns[name] = arrow(items if kind in _AS_THEY_ARE else [_fit(item, kind) for item in items], _type(kind))
    return records.with_value(struct_of(columns, None, len(records)))


def _object(text: str) -> dict[str, Any]:
    fields = load_json(text)
    if not isinstance(fields, dict):
        raise ValueError("the text is not a JSON object")
    return fields


def _texts(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, _text(item)) for name, item in value.items()]


def _text(value: Any) -> str:
    """The text of a value: text unchanged, anything else as JSON."""
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


def _kind(value: Any) -> _Kind | None:
    kind = type(value)
    if kind is int:
        return "int32" if -(2**31) <= value < 2**31 else "int64" if -(2**63) <= value < 2**63 else "decimal"
    if kind is dict:
        return "texts" if value else None
    return _list(value) if kind is list else _PLAIN[kind]


def _list(items: Sequence[Any]) -> _Kind | None:
    if not items:
        return None
    if all(isinstance(item, dict) for item in items):
        return ("texts",)
    kinds = {_kind(item) for item in items}
    if all(isinstance(item, list) for item in items):
        if len(kinds) > 1:
            return (("string",),)
        (inner,) = kinds
        return None if inner is None else (inner,)
    one = kinds.pop()
    same = not kinds and one is not None and not any(isinstance(item, list | dict) for item in items)
    return (one,) if same and one is not None else ("string",)


def _type(kind: _Kind) -> pa.DataType:
    return _TYPES[kind] if isinstance(kind, str) else pa.list_(_type(kind[0]))


def _fit(value: Any, kind: _Kind) -> Any:
    if isinstance(kind, tuple):
        return [_fit(item, kind[0]) for item in value]
    if kind == "texts":
        return _texts(value)
    if kind == "string":
        return _text(value)
    return float(value) if kind == "float64" else value
