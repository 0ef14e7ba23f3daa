"""MongoDebeziumTransform: change events of MongoDB, whose documents come as extended JSON text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from calving.errors import ConfigError
from calving.records.arrays import arrow
from calving.records.values import Records, objects
from calving.transforms import bson
from calving.transforms.bson import Typed
from calving.transforms.columns import Fields, by_type, check_options
from calving.transforms.interface import RefusedError, Transform, UnfitTypeError

_BEFORE, _AFTER, _CHANGES, _OPERATION, _ID = "before", "after", "updateDescription", "op", "_id"
_NULL = Typed(pa.null(), None)


class MongoDebeziumTransform(Transform):
    """``before`` and ``after`` become structs. A missing ``after`` is made from ``before`` and the changes. The missing
    ``before`` of a delete is made from the key.

    ``array_handling_mode``: array (elements of one kind), or document (a struct ``_0``, ``_1``, ...). A record that is
    not an event of MongoDB is an error (the Java transform turns it into a tombstone). Each record gets the types of
    its own documents, so the results may have several types.
    """

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
        made: list[tuple[Typed, Typed, Typed]] = []
        reasons: dict[int, str] = {}
        for place, found in enumerate(zip(*given, strict=True)):
            try:
                made.append(self._documents(*found))
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                reasons[place] = f"{type(error).__name__}: {error}"
        if reasons:
            raise RefusedError(reasons)
        kinds = [pa.struct([("k", key.type), ("b", before.type), ("a", after.type)]) for key, before, after in made]
        return [self._part(records, places, [made[i] for i in places]) for _, places in by_type(kinds)]

    def _documents(
        self, identity: Any, before: Any, after: Any, changes: Any, operation: Any
    ) -> tuple[Typed, Typed, Typed]:
        """The key, before and after of a record."""
        key = bson.parse(f'{{"id": {identity}}}')
        old = None if before is None else bson.parse(before)
        new = None if after is None else bson.parse(after)
        if before is None and after is None and changes is None and operation == "d":
            old = {_ID: key["id"]}  # without pre-images only the key of a deleted document is known
        elif before is None and after is None and changes is None:
            raise ValueError("not a MongoDB event: before, after and updateDescription are all null")
        if new is None and changes is not None:
            updated = changes.get("updatedFields")
            new = {**(old or {}), **(bson.parse(updated) if updated else {})}
            for name in changes.get("removedFields") or ():
                new.pop(name, None)
            new.setdefault(_ID, key["id"])
        return self._typed(key), self._typed(old), self._typed(new)

    def _typed(self, fields: Mapping[str, Any] | None) -> Typed:
        return _NULL if fields is None else bson.document(fields, self._as_documents)

    def _part(self, records: Records, places: list[int], made: list[tuple[Typed, Typed, Typed]]) -> Records:
        """Records of one type."""
        if len(places) < len(records):
            records = records.take(pa.array(places, pa.int32()))
        event = Fields(records.value)
        for number, name in ((1, _BEFORE), (2, _AFTER)):
            kind = made[0][number].type
            if pa.types.is_null(kind):
                event.drop(name)
            else:
                event.put(name, arrow([documents[number].value for documents in made], kind))
        key = arrow([documents[0].value for documents in made], made[0][0].type)
        return replace(records, key=key, value=event.column(), typed=True)
