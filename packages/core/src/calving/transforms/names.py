"""FieldNames: the names of fields as tables are to have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import pyarrow as pa

from calving.errors import ConfigError
from calving.records.arrays import JSON, children_of, entries, items_of, lists, maps, offsets_of, struct
from calving.records.jsontext import write
from calving.records.values import objects
from calving.transforms.columns import Sided, check_options, required
from calving.transforms.interface import UnfitTypeError


def snake(name: str) -> str:
    """``order_id`` for ``orderId``, ``OrderID`` and ``order id``; ``http_url`` for ``HTTPUrl``. Underscores at the
    beginning stay.
    """
    plain = "".join(each if each.isalnum() else "_" for each in name)
    words = plain[:1]
    for (before, here), after in zip(pairwise(plain), [*plain[2:], ""], strict=False):
        begins = here.isupper() and before.isalnum() and (not before.isupper() or after.islower())
        words += f"_{here}" if begins else "" if here == before == "_" and words.strip("_") else here
    return words.lower()


_STYLES = {"lower": str.lower, "snake": snake}


class FieldNames(Sided):
    """All names of fields in the same ``style``: ``lower`` (lower case), or ``snake`` (lower case, with an underscore
    before each word). Also those inside objects and lists; keys of maps are values, and stay.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("style",), "FieldNames")
        style = required(options, "style", "FieldNames")
        if style not in _STYLES:
            raise ConfigError(f"transform FieldNames: style is lower or snake, not '{style}'")
        self._named = _STYLES[style]

    def former(self, names: frozenset[str]) -> frozenset[str] | None:
        return None

    def change(self, column: pa.Array, *, typed: bool) -> pa.Array:
        """:raises UnfitTypeError: two fields would have one name."""
        return self._renamed(column)

    def _renamed(self, column: Any) -> pa.Array:
        kind, nulls = column.type, column.is_null() if column.null_count else None
        if isinstance(column, pa.StructArray):
            names = self._names(field.name for field in kind)
            children = [*map(self._renamed, children_of(column))]
            fields = [f.with_name(n).with_type(c.type) for f, n, c in zip(kind, names, children, strict=True)]
            return struct(children, pa.struct(fields), nulls, len(column))
        if isinstance(column, pa.MapArray):  # before lists, of which Arrow has it as one
            keys, items = entries(column)
            items = self._renamed(items)
            renamed = pa.map_(kind.key_field, kind.item_field.with_type(items.type))
            return maps(offsets_of(column), keys, items, renamed, nulls)
        if isinstance(column, pa.ListArray):
            items = self._renamed(items_of(column))
            return lists(offsets_of(column), items, pa.list_(kind.value_field.with_type(items.type)), nulls)
        if kind == JSON:  # arrays of several kinds of values
            texts = (None if value is None else write(self._value(value)) for value in objects(column))
            return pa.array([*texts], JSON)
        made: pa.Array = column
        return made

    def _value(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return dict(zip(self._names(value), map(self._value, value.values()), strict=True))
        return [*map(self._value, value)] if isinstance(value, list) else value

    def _names(self, names: Iterable[str]) -> list[str]:
        """:raises UnfitTypeError: two of them become one."""
        made: dict[str, str] = {}
        for name in names:
            if made.setdefault(new := self._named(name), name) != name:
                raise UnfitTypeError(f"the fields '{made[new]}' and '{name}' would both be '{new}'")
        return [*made]
