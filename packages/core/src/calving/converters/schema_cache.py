"""Keeps what was made of schemas, within a bound on memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

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
