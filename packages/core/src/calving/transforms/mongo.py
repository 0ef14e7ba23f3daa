"""MongoDebeziumTransform: change events of MongoDB, whose documents come as extended JSON text."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from calving.casting.numbers import short
from calving.errors import ConfigError
from calving.model.record_path import Limits
from calving.records.arrays import arrow
from calving.records.cells import Cells, TooManyCellsError, cells_of
from calving.records.common_types import common_type
from calving.records.paths import NUMBER, change_of
from calving.records.values import Content, Records, objects
from calving.transforms.columns import Fields, by_type, check_options
from calving.transforms.interface import NO_FIELDS, RefusedError, Transform, UnfitTypeError, by_name
from calving.transforms.mongo_changes import changed, parse

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = pa.timestamp("ms", "UTC")
_REGEX = pa.struct([("regex", pa.string()), ("options", pa.string())])


class BsonValue(NamedTuple):
    """A value in the form that ``pyarrow.array`` takes for its type. Null has the null type."""

    type: pa.DataType
    value: Any


NULL = BsonValue(pa.null(), None)


def document(fields: Mapping[str, Any], as_documents: bool) -> BsonValue:
    """A struct of the fields. A null has the null type, and an empty array a list of it.

    ``as_documents``: arrays become structs ``_0``, ``_1``, ... Otherwise the elements of an array must be of one kind.

    :raises ValueError: an array has elements of several kinds, or a value is not extended JSON.
    """
    fields_by_name = {name: _typed(value, as_documents) for name, value in fields.items()}
    kind = pa.struct([(name, typed.type) for name, typed in fields_by_name.items()])
    return BsonValue(kind, {name: typed.value for name, typed in fields_by_name.items()})


def _whole(value: int) -> BsonValue:
    return BsonValue(pa.int32(), value) if -(2**31) <= value < 2**31 else _long(value)


def _typed(value: Any, as_documents: bool) -> BsonValue:
    match value:
        case None:
            return NULL
        case bool():
            return BsonValue(pa.bool_(), value)
        case int():
            return _whole(value)
        case float():
            return BsonValue(pa.float64(), value)
        case str():
            return BsonValue(pa.string(), value)
        case list() if as_documents:
            return document({f"_{i}": element for i, element in enumerate(value)}, as_documents)
        case list():
            return _array([_typed(element, as_documents) for element in value])
    for name, change in _SPECIAL.items():
        if name in value:
            return change(value)
    if "$code" in value:
        return _code(value, as_documents)
    return document(value, as_documents)


def _array(items: Sequence[BsonValue]) -> BsonValue:
    return BsonValue(pa.list_(common_type(item.type for item in items)), [item.value for item in items])


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
    raise ValueError(f"{short(value)} is not a date")


def _binary(value: Any) -> BsonValue:
    text = value["base64"] if isinstance(value, Mapping) else value
    return BsonValue(pa.binary(), base64.b64decode(text, validate=True))


def _regex(pattern: Any, options: Any) -> BsonValue:
    return BsonValue(_REGEX, {"regex": pattern, "options": "".join(sorted(options))})


def _text(value: Any) -> BsonValue:
    if not isinstance(value, str):
        raise ValueError(f"{short(value)} is not text")
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
    "$regex": lambda v: _regex(v["$regex"], v["$options"]),
    "$symbol": lambda v: _text(v["$symbol"]),
    "$undefined": lambda _: NULL,
    "$minKey": lambda _: _text("MinKey"),
    "$maxKey": lambda _: _text("MaxKey"),
    "$dbPointer": lambda v: document({"ref": v["$dbPointer"]["$ref"], "id": v["$dbPointer"]["$id"]}, False),
}


_BYTES_OF_A_CELL = 12
"""An element of an array has two bytes at least, and a field six."""


def _count(kind: pa.DataType, value: Any, cells: Cells) -> None:
    """Count the cells of what arrays hold: each document has those of all documents of its array.

    :raises TooManyCellsError: there are too many.
    """
    if isinstance(kind, pa.StructType) and value is not None:
        for name, inner in value.items():
            _count(kind.field(name).type, inner, cells)
    elif isinstance(kind, pa.ListType) and value is not None:
        cells.elements(len(value), cells_of(kind.value_type))
        for element in value:
            _count(kind.value_type, element, cells)


_BEFORE, _AFTER, _CHANGES, _OPERATION, _ID = "before", "after", "updateDescription", "op", "_id"
_CONTENTS: tuple[Content, ...] = ("row", "partial row", "changed fields")


class _Documents(NamedTuple):
    """The key, before and after of a record. ``content``: whether ``after`` is a whole document."""

    key: BsonValue
    before: BsonValue
    after: BsonValue
    content: Content


class MongoDebeziumTransform(Transform):
    """``before`` and ``after`` become structs. A missing ``after`` is made from ``before`` and the changes; without
    ``before`` it has the changed fields alone. The missing ``before`` of a delete is made from the key.

    ``array_handling_mode``: array (elements of one kind), or document (a struct ``_0``, ``_1``, ...). A record that is
    not an event of MongoDB is an error (the Java transform turns it into a tombstone). Each record gets the types of
    its own documents, so the results may have several types.
    """

    null_types = NO_FIELDS
    needs = frozenset({"key"})
    tombstones = False
    former = by_name

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("array_handling_mode",), "MongoDebeziumTransform")
        mode = options.get("array_handling_mode", "array").strip().lower()
        if mode not in ("array", "document"):
            raise ConfigError("transform MongoDebeziumTransform: array_handling_mode is array or document")
        self._as_documents = mode == "document"
        self._cells = Cells(Limits().cells)

    def limit(self, limits: Limits) -> None:
        self._cells = Cells(limits.cells)

    def apply(self, records: Records) -> list[Records]:
        event = Fields(records.value)
        if all(name not in event for name in (_BEFORE, _AFTER, _CHANGES)):
            raise UnfitTypeError("not a MongoDB event: neither before, after nor updateDescription")
        if not pa.types.is_struct(records.key.type) or "id" not in Fields(records.key):
            raise UnfitTypeError("not a MongoDB event: its key has no id")
        count = len(records)
        parts = (_BEFORE, _AFTER, _CHANGES, _OPERATION)
        columns = [Fields(records.key).get("id"), *map(event.get, parts)]
        given = [[None] * count if c is None else objects(c) for c in columns]
        made: list[_Documents] = []
        reasons: dict[int, str] = {}
        for place, parts_of_event in enumerate(zip(*given, strict=True)):
            try:
                made.append(self._documents(*parts_of_event))
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, TooManyCellsError) as error:
                reasons[place] = f"{type(error).__name__}: {error}"
        if reasons:
            raise RefusedError(reasons)
        return self._parts(records, made)

    def _parts(self, records: Records, made: list[_Documents]) -> list[Records]:
        """The records by their types and contents."""
        kinds = [pa.struct([("k", d.key.type), ("b", d.before.type), ("a", d.after.type)]) for d in made]
        groups = [
            (content, [i for i in places if made[i].content == content])
            for _, places in by_type(kinds)
            for content in _CONTENTS
        ]
        return [self._part(records, places, [made[i] for i in places], content) for content, places in groups if places]

    def _documents(self, identity: Any, before: Any, after: Any, changes: Any, operation: Any) -> _Documents:
        key = parse(f'{{"id": {identity}}}')
        old = None if before is None else parse(before)
        new = None if after is None else parse(after)
        if before is None and after is None and changes is None and operation == "d":
            old = {_ID: key["id"]}  # without pre-images only the key of a deleted document is known
        elif before is None and after is None and changes is None:
            raise ValueError("not a MongoDB event: before, after and updateDescription are all null")
        content: Content = "row"
        if new is None and changes is not None:
            new, content = changed(old, changes)
            if content == "partial row" and self._as_documents and any(map(_is_of_array, new)):
                content = "changed fields"  # elements are fields with other names
            new.setdefault(_ID, key["id"])
        made = _Documents(self._typed(key), self._typed(old), self._typed(new), content)
        self._check(made, sum(map(len, filter(None, (before, after, (changes or {}).get("updatedFields"))))))
        return made

    def _check(self, made: _Documents, size: int) -> None:
        """``size``: the characters of the event's documents.

        :raises TooManyCellsError: the documents have too many places.
        """
        if size * size > _BYTES_OF_A_CELL * self._cells.most:  # a shorter text has too few elements and fields
            self._cells.start(0)
            for side in (made.before, made.after):
                _count(side.type, side.value, self._cells)

    def _typed(self, fields: Mapping[str, Any] | None) -> BsonValue:
        return NULL if fields is None else document(fields, self._as_documents)

    def _part(self, records: Records, places: list[int], made: list[_Documents], content: Content) -> Records:
        """Records of one type."""
        if len(places) < len(records):
            records = records.take(pa.array(places, pa.int32()))
        event = Fields(records.value)
        for name, sides in ((_BEFORE, [d.before for d in made]), (_AFTER, [d.after for d in made])):
            if pa.types.is_null(sides[0].type):
                event.drop(name)
            else:
                event.put(name, arrow([side.value for side in sides], sides[0].type))
        key = arrow([d.key.value for d in made], made[0].key.type)
        return replace(records, key=key, value=event.column(), typed=True, content=content)


def _is_of_array(name: str) -> bool:
    """Whether a changed field is an array that was cut off, or may be an element or in one."""
    path, size = change_of(name)
    return size is not None or any(map(NUMBER.fullmatch, path[1:]))
