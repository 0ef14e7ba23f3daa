"""MongoDB's extended JSON, canonical or relaxed: documents with the types of BSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from calving.records.jsontext import long_integers_named

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = pa.timestamp("ms", "UTC")
_REGEX = pa.struct([("regex", pa.string()), ("options", pa.string())])


class BsonValue(NamedTuple):
    """A value in the form that ``pyarrow.array`` takes for its type. Null has the null type."""

    type: pa.DataType
    value: Any


NULL = BsonValue(pa.null(), None)


def parse(text: str) -> dict[str, Any]:
    """The fields of a document.

    :raises ValueError: the text is no document.
    """
    with long_integers_named():
        fields = json.loads(text, parse_constant=_no_constant)
    if not isinstance(fields, dict):
        raise ValueError("not a document")
    return fields


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def document(fields: Mapping[str, Any], as_documents: bool) -> BsonValue:
    """A struct of the fields. A null has the null type, and an empty array a list of it.

    ``as_documents``: arrays become structs ``_0``, ``_1``, ... Otherwise the elements of an array must be of one kind.

    :raises ValueError: an array has elements of several kinds, or a value is not extended JSON.
    """
    fields_by_name = {name: _typed(value, as_documents) for name, value in fields.items()}
    kind = pa.struct([(name, typed.type) for name, typed in fields_by_name.items()])
    return BsonValue(kind, {name: typed.value for name, typed in fields_by_name.items()})


def _typed(value: Any, as_documents: bool) -> BsonValue:
    match value:
        case None:
            return NULL
        case bool():
            return BsonValue(pa.bool_(), value)
        case int() if -(2**31) <= value < 2**31:
            return BsonValue(pa.int32(), value)
        case int():
            return _long(value)
        case float():
            return BsonValue(pa.float64(), value)
        case str():
            return BsonValue(pa.string(), value)
        case list() if as_documents:
            return document({f"_{i}": item for i, item in enumerate(value)}, as_documents)
        case list():
            return _array([_typed(item, as_documents) for item in value])
    for name, change in _SPECIAL.items():
        if name in value:
            return change(value)
    if "$code" in value:
        return _code(value, as_documents)
    return document(value, as_documents)


def _array(items: Sequence[BsonValue]) -> BsonValue:
    kind: pa.DataType = pa.null()
    for item in items:
        kind = _merged(kind, item.type)
    return BsonValue(pa.list_(kind), [item.value for item in items])


def _merged(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The common type of both. A document gets the fields of both."""
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if {a, b} == {pa.int32(), pa.int64()}:
        return pa.int64()
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        fields = {f.name: f.type for f in a}
        for field in b:
            fields[field.name] = _merged(fields.get(field.name, pa.null()), field.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.list_(_merged(a.value_type, b.value_type))
    raise ValueError("an array holds values of several kinds; set array_handling_mode = document")


def _long(value: Any) -> BsonValue:
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} does not fit 64 bits")
    return BsonValue(pa.int64(), number)


def _int(value: Any) -> BsonValue:
    number = int(value)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{number} does not fit 32 bits")
    return BsonValue(pa.int32(), number)


def _date(value: Any) -> BsonValue:
    match value:
        case {"$numberLong": text}:
            return BsonValue(_INSTANT, int(text))
        case bool():
            raise ValueError("a boolean is not a date")
        case int():
            return BsonValue(_INSTANT, value)
        case str():
            moment = datetime.fromisoformat(value)
            return BsonValue(_INSTANT, (moment - _EPOCH) // timedelta(milliseconds=1))
    raise ValueError(f"{value!r} is not a date")


def _binary(value: Any) -> BsonValue:
    text = value["base64"] if isinstance(value, Mapping) else value
    return BsonValue(pa.binary(), base64.b64decode(text, validate=True))


def _regex(pattern: Any, options: Any) -> BsonValue:
    return BsonValue(_REGEX, {"regex": pattern, "options": "".join(sorted(options))})


def _text(value: Any) -> BsonValue:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return BsonValue(pa.string(), value)


def _code(value: Mapping[str, Any], as_documents: bool) -> BsonValue:
    code = _text(value["$code"])
    if "$scope" not in value:
        return code
    scope = document(value["$scope"], as_documents)
    kind = pa.struct([("code", pa.string()), ("scope", scope.type)])
    return BsonValue(kind, {"code": code.value, "scope": scope.value})


_SPECIAL: Mapping[str, Callable[[Mapping[str, Any]], BsonValue]] = {
    "$oid": lambda v: _text(v["$oid"]),
    "$numberDecimal": lambda v: _text(v["$numberDecimal"]),
    "$numberInt": lambda v: _int(v["$numberInt"]),
    "$numberLong": lambda v: _long(v["$numberLong"]),
    "$numberDouble": lambda v: BsonValue(pa.float64(), float(v["$numberDouble"])),
    "$date": lambda v: _date(v["$date"]),
    "$timestamp": lambda v: BsonValue(_INSTANT, int(v["$timestamp"]["t"]) * 1000),
    "$binary": lambda v: _binary(v["$binary"]),
    "$regularExpression": lambda v: _regex(v["$regularExpression"]["pattern"], v["$regularExpression"]["options"]),
    "$symbol": lambda v: _text(v["$symbol"]),
    "$undefined": lambda _: NULL,
    "$minKey": lambda _: _text("MinKey"),
    "$maxKey": lambda _: _text("MaxKey"),
    "$dbPointer": lambda v: document({"ref": v["$dbPointer"]["$ref"], "id": v["$dbPointer"]["$id"]}, False),
}
