"""What a conversion finds out about values, and the texts that it makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.casting.texts import TooMuchTextError, string
from calving.model.record_path import Limits
from calving.model.tables import SchemaChange
from calving.records.arrays import Scaled
from calving.records.cells import CELL, TOGETHER, FullBlockError


@dataclass
class Findings:
    """The reason for each bad value, by index, and schema changes for the others.

    ``typed``: the values come with a schema. ``with_nulls``: a field of the schema brings its column also if all its
    values are null. ``cells`` and ``records``: as ``MadeTexts`` takes them.
    """

    reasons: dict[int, str] = field(default_factory=dict)
    changes: list[SchemaChange] = field(default_factory=list)
    typed: bool = False
    with_nulls: bool = False
    cells: int = Limits().cells
    records: int = 1

    @cached_property
    def texts(self) -> MadeTexts:
        """The texts that are made of nested values."""
        return MadeTexts(self.cells, self.records)

    def take(self, inner: Findings, parents: Callable[[], pa.Array]) -> None:
        """Add the findings about elements of lists; ``parents``: the row of each element."""
        self.changes += inner.changes
        if inner.reasons:
            rows = parents().to_pylist()
            for i, reason in inner.reasons.items():
                self.reasons.setdefault(rows[i], reason)


class MadeTexts:
    """Makes and counts the texts of records that are converted together.

    The texts of a record may have a character for each byte of the cells that a record may have.
    """

    def __init__(self, cells: int = Limits().cells, records: int = 1) -> None:
        """``cells``: the most of a record. ``records``: how many there are; one alone never has too much together."""
        self._cells = cells
        self._together = cells * CELL * TOGETHER if records > 1 else math.inf
        self._left: dict[int, int] = {}
        self._record = 0

    def start(self, record: int) -> None:
        """The texts that follow are of the record at this place. Each column of a record comes by itself.

        :raises FullBlockError: the records so far have too much text together: convert fewer of them at once.
        """
        self._record = record
        if self._together < 0:
            raise FullBlockError

    @property
    def too_much(self) -> str:
        return f"the texts of its objects and arrays take more than {CELL} times iceberg.limits.cells = {self._cells}"

    def of(self, value: Any) -> str:
        """The text of an object or an array of the present record.

        :raises TooMuchTextError: the record has too much text: ``too_much`` says so.
        :raises ValueError: the value has no text form.
        """
        left = self._left.get(self._record, self._cells * CELL)
        text = string(value.number if isinstance(value, Scaled) else value, left)
        if len(text) > left:  # a decimal that brings its scale is long, too
            raise TooMuchTextError
        self._left[self._record] = left - len(text)
        self._together -= len(text)
        return text


def missing_rows(column: pa.Array) -> Sequence[int]:
    """Places of the nulls."""
    return pc.indices_nonzero(column.is_null()).to_pylist()
