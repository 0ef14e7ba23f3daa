"""The types of schemaless JSON, learned from values."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

_LEAVES: Mapping[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    Decimal: pa.float64(),
    str: pa.string(),
}


class _Place:
    """A field or the elements of arrays: the type of its first value, its fields, and its elements."""

    __slots__ = ("element", "fields", "kind")

    def __init__(self) -> None:
        self.kind: type | None = None
        self.fields: dict[str, _Place] = {}
        self.element: _Place | None = None

    def look(self, value: Any, room: int) -> int:
        """Add a value. Returns how many names and types are new. At most ``room`` names are added."""
        if value is None:
            return 0
        news = 0
        if self.kind is None:
            self.kind, news = type(value), 1
        if isinstance(value, dict):
            for name, item in value.items():
                known = self.fields.get(name)
                if known is None:
                    if news >= room:
                        break
                    known = self.fields[name] = _Place()
                    news += 1
                news += known.look(item, room - news)
        elif isinstance(value, list):
            if self.element is None:
                self.element = _Place()
                news += 1
            for item in value:
                news += self.element.look(item, room - news)
        return news

    @property
    def type(self) -> pa.DataType:
        """The type of the first value. Other values may be of other types."""
        if self.kind is None:
            return pa.null()
        if self.kind is dict:
            return self.struct
        if self.kind is list:
            element = self.element
            return pa.list_(pa.string() if element is None or element.kind is None else element.type)
        return _LEAVES[self.kind]

    @property
    def struct(self) -> pa.StructType:
        return pa.struct([(name, inner.type) for name, inner in self.fields.items()])


class ObservedTypes:
    """All fields of some objects, with the types of their first values. At most ``most`` names are kept."""

    def __init__(self, most: int) -> None:
        self._most, self._names, self._root = most, 0, _Place()

    def look(self, value: Any) -> int:
        """Add the fields of a value of ``jsontext.parse``. Returns how many names and types are new."""
        news = self._root.look(value, self._most - self._names)
        self._names += news
        return news

    @property
    def are_too_many(self) -> bool:
        """Whether there were too many names to learn them all."""
        return self._names >= self._most

    def clear(self) -> None:
        """Free the names. No others are learned."""
        self._root = _Place()

    @property
    def struct(self) -> pa.StructType:
        """The type with all these fields."""
        return self._root.struct
