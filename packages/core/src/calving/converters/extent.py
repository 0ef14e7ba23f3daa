"""Bounds the column that a schema describes. A short schema can describe more columns than fit into memory: each of its
definitions may use the one before it twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from calving.model.record_path import Limits


class Extent:
    """Counts the columns and levels of one schema while its column's type is made."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._columns = self._levels = 0

    def column(self) -> None:
        """Count a column: a field, an element, a key or a value. What is used several times counts each time.

        :raises ValueError: the schema has too many columns.
        """
        self._columns += 1
        if self._columns > self._limits.columns:
            raise ValueError(f"its columns are more than iceberg.limits.columns = {self._limits.columns}")

    @contextmanager
    def level(self) -> Iterator[None]:
        """Count a level of structs, lists and maps around the columns within.

        :raises ValueError: the schema has too many levels.
        """
        self._levels += 1
        if self._levels > self._limits.nesting:
            raise ValueError(f"it is nested deeper than iceberg.limits.nesting = {self._limits.nesting}")
        try:
            yield
        finally:
            self._levels -= 1
