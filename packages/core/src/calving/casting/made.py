"""Texts that are made of nested values for text columns: their size is bounded."""

from __future__ import annotations

import math
from typing import Any

from calving.casting.texts import TooMuchTextError, string
from calving.model.record_path import Limits
from calving.records.arrays import Scaled
from calving.records.cells import CELL, TOGETHER, FullBlockError


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
