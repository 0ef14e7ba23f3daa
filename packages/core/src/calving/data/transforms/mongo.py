"""MongoDebeziumTransform: change events of MongoDB, whose documents come as extended JSON text."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from calving.data.records import Records, objects
from calving.data.transforms.columns import Fields, check_options, struct_of
from calving.data.transforms.interface import Transform
from calving.errors import ConfigError

_SKIPPED = object()
_BEFORE, _AFTER, _CHANGES, _ID = "before", "after", "updateDescription", "_id"


class MongoDebeziumTransform(Transform):
    """``before`` and ``after`` become structs; an ``after`` that is missing is made of before and the changes.

    ``array_handling_mode``: array (elements of one kind), or document (a struct ``_0``, ``_1``, ...). What is not an
    event of this kind is an error (the Java transform turns it into a tombstone).
    """

    needs = frozenset({"key"})
    tombstones = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("array_handling_mode",), "MongoDebeziumTransform")
        mode = options.get("array_handling_mode", "array").lower()
        if mode not in ("array", "document"):
            raise ConfigError("transform MongoDebeziumTransform: array_handling_mode is array or document")
        self._as_documents = mode == "document"

    def apply(self, records: Records) -> Records:
        event = Fields(records.value)
        if all(name not in event for name in (_BEFORE, _AFTER, _CHANGES)):
            raise ValueError("not a MongoDB event: neither before, after nor updateDescription")
        ids = self._ids(records)
        befores = _documents(event.get(_BEFORE), len(records))
        afters = _documents(event.get(_AFTER), len(records))
        changes = _values(event.get(_CHANGES), len(records))
        ops = _values(event.get("op"), len(records))
        made = [
            _after(before, after, change, identity, op)
            for before, after, change, identity, op in zip(befores, afters, changes, ids, ops, strict=True)
        ]
        for name, documents in ((_BEFORE, befores), (_AFTER, made)):
            column = self._column(documents)
            if column is None:
                event.drop(name)
            else:
                event.put(name, column)
        key = struct_of({"id": _plain_column(ids)}, None, len(records))
        return replace(records, key=key, value=event.column())

    def _ids(self, records: Records) -> list[Any]:
        if not pa.types.is_struct(records.key.type) or "id" not in Fields(records.key):
            raise ValueError("not a MongoDB event: its key has no id")
        return [None if text is None else json.loads(text) for text in Fields(records.key).require("id").to_pylist()]

    def _column(self, documents: Sequence[Any]) -> pa.Array | None:
        if all(d is None for d in documents):
            return None
        values = [None if d is None else self._document(d) for d in documents]
        return _column(values)

    def _document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        found = {name: self._value(value) for name, value in document.items()}
        return {name: value for name, value in found.items() if value is not _SKIPPED}

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            items = [self._value(item) for item in value]
            if self._as_documents:
                return {f"_{i}": item for i, item in enumerate(items) if item is not _SKIPPED}
            return [item for item in items if item is not _SKIPPED]
        if isinstance(value, dict):
            return _bson(value, self._document)
        return value


def _after(before: Any, after: Any, change: Any, identity: Any, op: str | None) -> Any:
    if after is not None or op == "d":
        return after
    if change is None:
        if before is None:
            raise ValueError("not a MongoDB event: before, after and updateDescription are all null")
        return None
    updated = change.get("updatedFields")
    made = {**(before or {}), **(json.loads(updated) if updated else {})}
    for name in change.get("removedFields") or ():
        made.pop(name, None)
    made.setdefault(_ID, identity)
    return made


def _bson(value: dict[str, Any], document: Any) -> Any:  # noqa: C901 - a case per BSON type
    """Extended JSON, canonical or relaxed, as Python values."""
    match value:
        case {"$oid": text} | {"$numberDecimal": text} | {"$symbol": text}:
            return text if "$symbol" not in value else _SKIPPED
        case {"$numberInt": text} | {"$numberLong": text}:
            return int(text)
        case {"$numberDouble": text}:
            return float(text)
        case {"$date": {"$numberLong": text}}:
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        case {"$date": int(millis)}:
            return datetime.fromtimestamp(millis / 1000, UTC)
        case {"$date": str(text)}:
            return datetime.fromisoformat(text)
        case {"$timestamp": {"t": seconds}}:
            return datetime.fromtimestamp(int(seconds), UTC)
        case {"$binary": {"base64": text}} | {"$binary": str(text)}:
            return base64.b64decode(text)
        case {"$regularExpression": {"pattern": pattern, "options": options}}:
            return {"regex": pattern, "options": options}
        case {"$code": code, "$scope": scope}:
            return {"code": code, "scope": document(scope)}
        case {"$code": code}:
            return code
        case {"$undefined": _} | {"$minKey": _} | {"$maxKey": _} | {"$dbPointer": _}:
            return _SKIPPED
    return document(value)


def _documents(column: pa.Array | None, count: int) -> list[Any]:
    found = [None if text is None else json.loads(text) for text in _values(column, count)]
    if any(d is not None and not isinstance(d, dict) for d in found):
        raise ValueError("before or after is not a document")
    return found


def _values(column: pa.Array | None, count: int) -> list[Any]:
    return [None] * count if column is None else objects(column)


def _column(values: Sequence[Any]) -> pa.Array:
    """Python values as a column; documents of one batch are merged to the union of their fields."""
    present = [v for v in values if v is not None]
    if present and all(isinstance(v, dict) for v in present):
        names = dict.fromkeys(name for v in present for name in v)
        children = {n: _column([None if v is None else v.get(n) for v in values]) for n in names}
        return struct_of(children, pa.array([v is None for v in values], pa.bool_()), len(values))
    if present and all(isinstance(v, list) for v in present):
        items = [item for v in present for item in v]
        element = _column(items) if items else pa.array([], pa.string())
        offsets = [0]
        for v in values:
            offsets.append(offsets[-1] + len(v or ()))
        mask = pa.array([v is None for v in values], pa.bool_())
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), element, mask=mask)
    return _plain_column(values)


def _plain_column(values: Sequence[Any]) -> pa.Array:
    values = [v["$oid"] if isinstance(v, dict) and "$oid" in v else v for v in values]
    kinds = {type(v) for v in values if v is not None}
    if kinds == {int, float}:
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
    if len(kinds) > 1:
        raise ValueError(
            "an array or field holds values of several kinds; for arrays set array_handling_mode = document"
        )
    if kinds == {datetime}:
        return pa.array(values, pa.timestamp("ms", "UTC"))
    return pa.array(values)
