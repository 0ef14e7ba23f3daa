"""Plans: the types with which Arrow's JSON reader reads each value of a block exactly as the exact path does.

The reader gets a type for every field. Values seen so far only decide which types are tried. For every JSON token that
Arrow accepts for a type, the exact path must give the same value. Arrow refuses all other tokens, or ``doubtful`` finds
their rows. So a wrong guess costs time, but never changes a value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from calving.records.arrays import items_of

JsonKind = Literal["boolean", "long", "double", "string", "object", "array"]
_KINDS: Mapping[type, JsonKind] = {
    bool: "boolean",
    int: "long",
    Decimal: "double",
    str: "string",
    dict: "object",
    list: "array",
}
READ = {"boolean": pa.bool_(), "long": pa.int64(), "string": pa.string()}
"""Types for which every token that Arrow accepts stays unchanged."""


Wanted = Mapping[str, Any] | None
"""Needed names, each with the needed names below it. The names below an array are the names in its elements. None:
all.
"""


class NoPlanError(Exception):
    """No type suits some field: the block takes the exact path."""


class Seen:
    """The types of one field seen so far: the types of its values in the order of their first occurrence, and the types
    of its fields and of its elements.
    """

    __slots__ = ("element", "fields", "kinds")

    def __init__(self) -> None:
        self.kinds: list[JsonKind] = []
        self.fields: dict[str, Seen] = {}
        self.element: Seen | None = None

    def look(self, value: Any, wanted: Wanted, room: int) -> int:
        """Add a value. Returns how many names and types are new. At most ``room`` names are added, and only ``wanted``
        names.
        """
        if value is None:
            return 0
        kind = _KINDS[type(value)]
        news = 0
        if kind not in self.kinds:
            self.kinds.append(kind)
            news = 1
        if kind == "object":
            for name, item in value.items():
                if wanted is not None and name not in wanted:
                    continue
                known = self.fields.get(name)
                if known is None:
                    if news >= room:
                        break
                    known = self.fields[name] = Seen()
                    news += 1
                news += known.look(item, None if wanted is None else wanted[name], room - news)
        elif kind == "array":
            if self.element is None:
                self.element = Seen()
                news += 1
            for item in value:
                news += self.element.look(item, wanted, room - news)
        return news


class Plan(ABC):
    """One way to read a block."""

    ignores_unknown = False
    """Whether Arrow ignores fields without a type. Otherwise it refuses values with such fields."""
    wanted: Wanted = None
    """The names whose types have to be seen."""

    @abstractmethod
    def type(self, seen: Seen) -> pa.StructType:
        """The struct type to read as. :raises NoPlanError: there is none."""

    @abstractmethod
    def doubtful(self, rows: pa.StructArray, values: Sequence[bytes]) -> list[int]:
        """The rows that the exact path may read differently."""


UNSEEN = Seen()


def rows_where(rows: pa.StructArray, test: Any) -> list[int]:
    """The rows in which ``test`` marks at least one double."""
    found: dict[int, None] = {}
    for i, field in enumerate(rows.type):
        mask = _mask(rows.field(i), field.type, test)
        if mask is not None:
            found |= dict.fromkeys(mask)
    return list(found)


def _mask(column: pa.Array, kind: pa.DataType, test: Any) -> list[int] | None:
    t = pa.types
    if t.is_floating(kind):
        found = test(column)
        return None if found is None else pc.indices_nonzero(found).to_pylist()
    if isinstance(column, pa.StructArray):
        return rows_where(column, test) or None
    if t.is_list(kind) and isinstance(column, pa.ListArray):
        inner = _mask(items_of(column), kind.value_type, test)
        if inner is None:
            return None
        parents = pc.list_parent_indices(column)
        return pc.take(parents, pa.array(inner, pa.int64())).unique().to_pylist()
    return None
