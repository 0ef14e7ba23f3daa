"""What a file format is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyiceberg.io import OutputStream
from pyiceberg.schema import Schema

from calving.writing.properties import WriteProperties

_OPEN_BYTES = 64 * 1024
"""What an open file costs even if it is empty."""
_PART_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Ending:
    """What only the format knows of a file: bytes, bytes by column id, and the offsets it can be split at."""

    size: int
    column_sizes: Mapping[int, int] | None = None
    split_offsets: tuple[int, ...] | None = None


class FileWriter(ABC):
    """Writes one data file."""

    @abstractmethod
    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows in the table's Arrow schema."""

    @abstractmethod
    def size(self) -> int:
        """Bytes written so far, about."""

    def held(self) -> int:
        """Bytes in memory, about: object stores take large parts of a file at once."""
        return _OPEN_BYTES + min(self.size(), _PART_BYTES)

    @abstractmethod
    def close(self) -> Ending:
        """Finish the file."""


class FileFormat(ABC):
    """One format, as one table is written in it."""

    name: ClassVar[str]
    """What manifests call it, in lower case: parquet, orc or avro. Also the suffix of its files."""

    @abstractmethod
    def __init__(self, schema: Schema, properties: WriteProperties) -> None:
        """``properties`` are the table's.

        :raises ConfigError: the format cannot hold such a schema, or what a property asks for is not installed.
        """

    def check(self, rows: pa.RecordBatch) -> None:  # noqa: B027 - most formats hold every value
        """Whether files can hold the rows, which have the table's Arrow schema.

        :raises BadRecordError: they cannot hold a value.
        """

    @abstractmethod
    def open(self, out: OutputStream) -> FileWriter:
        """A writer of one file. It does not close ``out``."""
