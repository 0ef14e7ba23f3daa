"""Bounds on what schemas cost: on the column that one describes, and on the memory for what was made of all.

A short schema can describe more columns than fit into memory: each of its definitions may use the one before it twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from calving.model.record_path import Limits
from calving.records.cells import Cells

_LONGEST_SYMBOL = 255
_MOST_NAMES = 50_000
_COLUMN = 1_000
"""Bytes of memory of a column of a reader, with its types in Python, Arrow and Rust."""
_TEXT = 30
"""Bytes of memory of a byte of a schema, where it is parsed: that is what many small messages of Protobuf take."""


def check_symbols(symbols: Iterable[str]) -> None:
    """:raises ValueError: a symbol of an enum is too long: each record names it in one byte."""
    longest = max(map(len, symbols), default=0)
    if longest > _LONGEST_SYMBOL:
        raise ValueError(f"a symbol of an enum has {longest} characters, more than {_LONGEST_SYMBOL}")


T = TypeVar("T")


class _Part(NamedTuple):
    """What was made of a definition, and what it counts each time that it is used."""

    made: Any
    columns: int
    names: int
    levels: int


class Extent:
    """Counts the columns and levels of one schema while its column's type is made."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.cells = Cells(limits.cells)
        """Counts the cells of each record of the schema."""
        self._columns = self._levels = self._names = self._deepest = 0
        self._parts: dict[Hashable, _Part] = {}

    def column(self) -> None:
        """Count a column: a field, an element, a key or a value. What is used several times counts each time.

        :raises ValueError: the schema has too many columns.
        """
        self._columns += 1
        self.check(0)

    def check(self, count: int) -> None:
        """:raises ValueError: with so many columns more, the schema has too many."""
        if self._columns + count > self._limits.columns:
            raise ValueError(f"its columns are more than iceberg.limits.columns = {self._limits.columns}")

    def names(self, count: int) -> None:
        """Count names, branches and parts of defaults of a schema, each time that it is used.

        :raises ValueError: they are too many.
        """
        self._names += count
        if self._names > _MOST_NAMES:
            raise ValueError(f"its parts have more than {_MOST_NAMES} names together")

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` makes of the definition of this key. It is made once and counts each time: definitions that
        each use the one before twice have 2^n columns, but are refused after n of them.

        :raises ValueError: as ``make``, or with the definition the schema has too many columns, names or levels.
        """
        if (part := self._parts.get(key)) is None:
            columns, names, outer = self._columns, self._names, self._deepest
            self._deepest = self._levels
            made = make()
            part = _Part(made, self._columns - columns, self._names - names, self._deepest - self._levels)
            self._parts[key], self._deepest = part, max(outer, self._deepest)
            return made
        self.check(part.columns)
        self._columns += part.columns
        self.names(part.names)
        self._check_levels(self._levels + part.levels)
        made_before: T = part.made
        return made_before

    def size(self, text: int) -> int:
        """Bytes of memory that a reader of the columns so far takes, about, if the schema's text has so many."""
        return _COLUMN * self._columns + _TEXT * text

    @contextmanager
    def level(self) -> Iterator[None]:
        """Count a level of structs, lists and maps around the columns within.

        :raises ValueError: the schema has too many levels.
        """
        self._check_levels(self._levels + 1)
        self._levels += 1
        try:
            yield
        finally:
            self._levels -= 1

    def _check_levels(self, levels: int) -> None:
        if levels > self._limits.nesting:
            raise ValueError(f"it is nested deeper than iceberg.limits.nesting = {self._limits.nesting}")
        self._deepest = max(self._deepest, levels)


MOST = 256_000_000
"""Bytes of what a converter keeps."""


class WithSize(Protocol):
    """Something that takes about ``size`` bytes of memory."""

    @property
    def size(self) -> int: ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=WithSize)


class SchemaCache(Generic[K, V]):
    """Values by key. If they take more than ``most`` bytes together, those go that were used longest ago, but never the
    last one.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most, self._size = most, 0
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Keep a value under a new key."""
        self._values[key] = value
        self._size += value.size
        while self._size > self._most and len(self._values) > 1:
            _, oldest = self._values.popitem(last=False)
            self._size -= oldest.size
