"""What a file format is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyiceberg.io import OutputStream
from pyiceberg.schema import Schema

from calving.data.properties import WriteProperties


@dataclass(frozen=True, slots=True)
class Layout:
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

    @abstractmethod
    def close(self) -> Layout:
        """Finish the file."""


class FileFormat(ABC):
    """One format: its name in the spec (lower case, also the suffix), and its writer."""

    name: ClassVar[str]

    @abstractmethod
    def open(self, out: OutputStream, schema: Schema, properties: WriteProperties) -> FileWriter:
        """A writer that honours the table's ``properties``. It does not close ``out``.

        :raises ConfigError: what a property asks for is not installed.
        """
