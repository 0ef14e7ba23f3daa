"""What a file format is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyiceberg.io import OutputStream
from pyiceberg.schema import Schema

from calving.model.files import DataFile, PartitionTuple


class FileWriter(ABC):
    """Writes one data file."""

    @abstractmethod
    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows in the table's Arrow schema."""

    @abstractmethod
    def size(self) -> int:
        """Bytes written so far, about."""

    @abstractmethod
    def close(self, location: str, spec_id: int, partition: PartitionTuple) -> DataFile:
        """Finish the file, and describe it."""


class FileFormat(ABC):
    """One format: its name in the spec (lower case, also the suffix), and its writer."""

    name: ClassVar[str]

    @abstractmethod
    def open(self, out: OutputStream, schema: Schema, properties: Mapping[str, str]) -> FileWriter:
        """A writer that honours the table's ``properties``. It does not close ``out``."""
