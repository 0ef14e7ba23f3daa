"""JsonToMapTransform: text that holds a JSON object becomes fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from calving.data.records import Records, load_json
from calving.data.transforms.columns import check_options, flag, struct_of
from calving.data.transforms.interface import Transform

_TEXTS = pa.map_(pa.string(), pa.string())


class JsonToMapTransform(Transform):
    """With ``json.root``: one field ``payload``, a map of text to text. Else a field for each of the object's.

    Objects below become maps of text to text, arrays of one kind stay arrays, mixed ones become arrays of text.
    """

    tombstones = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("json.root",), "JsonToMapTransform")
        self._root = flag(options, "json.root", "JsonToMapTransform")

    def apply(self, records: Records) -> Records:
        if not pa.types.is_string(records.value.type):
            raise ValueError(f"text is wanted, not {records.value.type}")
        values = [_object(text) for text in records.value.to_pylist()]
        if self._root:
            maps = pa.array([_texts(v) for v in values], _TEXTS)
            return records.with_value(struct_of({"payload": maps}, None, len(records)))
        names = dict.fromkeys(name for value in values for name in value)
        columns = {}
        for name in names:
            column = _column([v.get(name) for v in values])
            if column is not None:
                columns[name] = column
        return records.with_value(struct_of(columns, None, len(records)))


def _object(text: str) -> dict[str, Any]:
    found = load_json(text)
    if not isinstance(found, dict):
        raise ValueError("the text is not a JSON object")
    return found


def _texts(value: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    return [(name, _text(item)) for name, item in value.items()]


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, default=float, ensure_ascii=False)


def _column(values: Sequence[Any]) -> pa.Array | None:
    """None where the values say nothing: nulls, empty objects, empty arrays."""
    present = [v for v in values if not _says_nothing(v)]
    if not present:
        return None
    kind = _kind(present)
    return pa.array([None if _says_nothing(v) else _fit(v, kind) for v in values], kind)


def _says_nothing(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, list) and _says_nothing(item) for item in value)
    return value is None or value == {}


def _kind(values: Sequence[Any]) -> pa.DataType:
    """The type of values of one field; of several kinds it is text."""
    kinds = {_kind_of(v) for v in values}
    if kinds == {pa.int32(), pa.int64()}:
        return pa.int64()
    return kinds.pop() if len(kinds) == 1 else pa.string()


def _kind_of(value: Any) -> pa.DataType:
    match value:
        case bool():
            return pa.bool_()
        case int() if -(2**31) <= value < 2**31:
            return pa.int32()
        case int() if -(2**63) <= value < 2**63:
            return pa.int64()
        case int():
            return pa.decimal128(38, 0)
        case float() | Decimal():
            return pa.float64()
        case dict():
            return _TEXTS
        case list():
            return pa.list_(_element_kind(value))
    return pa.string()


def _element_kind(items: Sequence[Any]) -> pa.DataType:
    kinds = {pa.string() if item is None else _kind_of(item) for item in items if item != [] and item != {}}
    if any(isinstance(item, dict) for item in items):
        kinds.add(_TEXTS)
    if len(kinds) == 1 and not any(item is None for item in items):
        return kinds.pop()
    if kinds and all(pa.types.is_list(k) for k in kinds):
        return pa.list_(pa.string())
    return pa.string()


def _fit(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if kind == _TEXTS:
        return _texts(value)
    if pa.types.is_list(kind):
        if pa.types.is_string(kind.value_type):
            return [item if isinstance(item, str) else json.dumps(item, default=float) for item in value]
        return [_fit(item, kind.value_type) for item in value]
    if pa.types.is_string(kind):
        return _text(value)
    return float(value) if pa.types.is_float64(kind) else value
