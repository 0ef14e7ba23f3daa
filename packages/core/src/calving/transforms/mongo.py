"""MongoDebeziumTransform: change events of MongoDB, whose documents come as extended JSON text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from calving.errors import ConfigError
from calving.records.arrays import arrow
from calving.records.values import Content, Records, objects
from calving.transforms import bson
from calving.transforms.bson import BsonValue
from calving.transforms.columns import Fields, by_type, check_options
from calving.transforms.interface import NO_FIELDS, RefusedError, Transform, UnfitTypeError

_BEFORE, _AFTER, _CHANGES, _OPERATION, _ID = "before", "after", "updateDescription", "op", "_id"
_CONTENTS: tuple[Content, ...] = ("row", "partial row")


class _Documents(NamedTuple):
    """The key, before and after of a record. ``content``: whether ``after`` is a whole document."""

    key: BsonValue
    before: BsonValue
    after: BsonValue
    content: Content


class MongoDebeziumTransform(Transform):
    """``before`` and ``after`` become structs. A missing ``after`` is made from ``before`` and the changes. The missing
    ``before`` of a delete is made from the key.

    ``array_handling_mode``: array (elements of one kind), or document (a struct ``_0``, ``_1``, ...). A record that is
    not an event of MongoDB is an error (the Java transform turns it into a tombstone). Each record gets the types of
    its own documents, so the results may have several types.
    """

    null_types = NO_FIELDS
    needs = frozenset({"key"})
    tombstones = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("array_handling_mode",), "MongoDebeziumTransform")
        mode = options.get("array_handling_mode", "array").strip().lower()
        if mode not in ("array", "document"):
            raise ConfigError("transform MongoDebeziumTransform: array_handling_mode is array or document")
        self._as_documents = mode == "document"

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
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
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
        key = bson.parse(f'{{"id": {identity}}}')
        old = None if before is None else bson.parse(before)
        new = None if after is None else bson.parse(after)
        if before is None and after is None and changes is None and operation == "d":
            old = {_ID: key["id"]}  # without pre-images only the key of a deleted document is known
        elif before is None and after is None and changes is None:
            raise ValueError("not a MongoDB event: before, after and updateDescription are all null")
        content: Content = "row"
        if new is None and changes is not None:
            new, content = _changed(old, changes)
            new.setdefault(_ID, key["id"])
        return _Documents(self._typed(key), self._typed(old), self._typed(new), content)

    def _typed(self, fields: Mapping[str, Any] | None) -> BsonValue:
        return bson.NULL if fields is None else bson.document(fields, self._as_documents)

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


def _changed(old: Mapping[str, Any] | None, changes: Mapping[str, Any]) -> tuple[dict[str, Any], Content]:
    """The document after an update, made from the document before it; without that, only the changed fields."""
    text = changes.get("updatedFields")
    updated, removed = bson.parse(text) if text else {}, changes.get("removedFields") or ()
    shorter = _truncated(old or {}, changes.get("truncatedArrays") or ())
    before = {**(old or {}), **{name: items for name, items in shorter.items() if items is not None}}
    new = {name: value for name, value in {**before, **updated}.items() if name not in removed}
    # A dot leads into a part of a field, whose other parts only a whole document has.
    is_partial = old is None or any("." in name for name in (*updated, *removed, *shorter))
    return new, "partial row" if is_partial else "row"


def _truncated(old: Mapping[str, Any], arrays: Sequence[Any]) -> dict[str, list[Any] | None]:
    """The arrays that an update has cut off, with the elements that are left; None if ``old`` does not have the array.

    :raises ValueError: the event does not name an array and how many elements are left.
    """
    shortened: dict[str, list[Any] | None] = {}
    for each in arrays:
        name, size = each.get("field"), each.get("size")
        items = old.get(name)
        if not isinstance(name, str) or not isinstance(size, int) or size < 0 or not isinstance(items, list | None):
            raise ValueError(f"truncatedArrays: field {name!r}, size {size!r}: not an array and a number of elements")
        shortened[name] = None if items is None else items[:size]
    return shortened
