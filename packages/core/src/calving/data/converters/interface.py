"""What a converter is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.schema import Schema

from calving.data.fields import Json
from calving.data.spec import Evolution, Need


class BadValueError(ValueError):
    """One value cannot be taken. ``index`` is its place in the sequence that was handed in."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


@dataclass(slots=True)
class Converted:
    """Rows in the table's Arrow schema, or what the table needs before they can be made."""

    rows: pa.RecordBatch | None
    needs: list[Need] = field(default_factory=list)


class TableConverter(ABC):
    """Converts values for one table. Kept for a whole task, so it may learn how the values are written."""

    @abstractmethod
    def convert(self, values: Sequence[bytes]) -> Converted:
        """All ``values``, in order.

        :raises BadValueError: the first value that cannot be taken.
        """


class ValueConverter(ABC):
    """One format. Made with the converter's own options, their prefix removed."""

    @abstractmethod
    def __init__(self, options: Mapping[str, str]) -> None: ...

    @abstractmethod
    def for_table(self, table: str, schema: Schema, evolution: Evolution) -> TableConverter:
        """A converter to the rows of ``table``."""

    @abstractmethod
    def field_texts(self, values: Sequence[bytes], path: str) -> Sequence[str | None]:
        """The text of a dotted field of every value, None where it is missing or null.

        :raises BadValueError: a value cannot be decoded.
        """

    @abstractmethod
    def infer(self, values: Sequence[bytes]) -> Json | None:
        """The type of a table that takes all ``values``; None if they say nothing.

        :raises BadValueError: a value cannot be decoded.
        """
