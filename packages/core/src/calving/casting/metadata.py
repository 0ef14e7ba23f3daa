"""Fields of a change that tell of the change, and not of the row: which of them become columns of a mutation table.

They are ``_cdc``, which transforms make, and the fields that Debezium's unwrap transform adds, such as ``__op``: their
names begin with two underscores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from calving.model.tables import SchemaChange
from calving.records.arrays import children_of, struct
from calving.records.inferred import attributes
from calving.records.values import Values

EVERY = "*"
_MADE, _ADDED = "_cdc", "__"


class MetadataColumns:
    """Tells which fields become columns."""

    def __init__(self, wanted: Iterable[str], *, fold: bool = False) -> None:
        """``wanted``: dotted names of columns that stay, with all that is in them; ``*`` for all. ``fold``: case is
        ignored.
        """
        self._key = str.lower if fold else str
        self._wanted = frozenset(map(self._key, wanted))
        self._around = frozenset(
            ".".join(parts[:depth])
            for parts in (name.split(".") for name in self._wanted)
            for depth in range(1, len(parts))
        )
        self._last: tuple[pa.DataType, bool] | None = None

    def of_values(self, values: Values) -> Values:
        """The values without fields that become no columns."""
        data = values.data
        if EVERY in self._wanted:
            return values
        if isinstance(data, list):
            lacks = [isinstance(each, Mapping) and any(map(self._is_in_question, each)) for each in data]
            if not any(lacks):
                return values
            kept: Any = [self._object(each) if some else each for each, some in zip(data, lacks, strict=True)]
        elif isinstance(data, pa.StructArray) and self._drops(data.type):
            kept = self._struct(data)
        else:
            return values
        return values.with_data(kept)

    def of_change(self, change: SchemaChange) -> SchemaChange:
        """The fields of records that create a table, without those that become no columns."""
        if EVERY in self._wanted:
            return change
        return replace(change, type=self._within(change.type, "struct"), seen=self._within(change.seen, "fields"))

    def _stays(self, path: tuple[str, ...]) -> bool | None:
        """Whether a field becomes a column; None if only some of the fields inside it do."""
        if len(path) == 1 and not self._is_in_question(path[0]):
            return True
        name = self._key(".".join(path))
        return True if name in self._wanted else None if name in self._around else False

    def _is_in_question(self, name: str) -> bool:
        return self._key(name) == _MADE or name.startswith(_ADDED)

    def _drops(self, kind: pa.StructType) -> bool:
        """Whether values of this type have fields that become no columns. Neighbouring values mostly have one type."""
        if self._last is None or self._last[0] != kind:
            self._last = kind, any(self._is_in_question(field.name) for field in kind)
        return self._last[1]

    def _struct(self, column: Any, path: tuple[str, ...] = ()) -> pa.Array:
        parts: list[pa.Array] = []
        fields: list[pa.Field] = []
        for field, child in zip(column.type, children_of(column), strict=True):
            stays = self._stays((*path, field.name))
            if stays is False or (stays is None and not isinstance(child, pa.StructArray)):
                continue
            part = child if stays else self._struct(child, (*path, field.name))
            parts.append(part)
            fields.append(field.with_type(part.type))
        return struct(parts, pa.struct(fields), column.is_null() if column.null_count else None, len(column))

    def _object(self, value: Mapping[str, Any], path: tuple[str, ...] = ()) -> Any:
        kept = {}
        for name, item in value.items():
            stays = self._stays((*path, name))
            if stays:
                kept[name] = item
            elif stays is None and isinstance(item, Mapping):
                kept[name] = self._object(item, (*path, name))
        return kept

    def _within(self, kind: Any, inside: str, path: tuple[str, ...] = ()) -> Any:
        """A type, or the counts of types, with fewer fields. ``inside``: the name under which it has its fields."""
        if not isinstance(kind, Mapping) or inside not in kind:
            return kind
        fields = {}
        for name, item in kind[inside].items():
            stays = self._stays((*path, name))
            if stays or (stays is None and isinstance(item, Mapping) and inside in item):
                fields[name] = item if stays else self._within(item, inside, (*path, name))
        around = {word: part for word, part in kind.items() if word not in ("required", "defaults")}
        return {**around, inside: fields, **attributes(kind, fields)}
