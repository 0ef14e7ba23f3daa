"""The interface of file formats, and the formats by name: calving's own, and writers of the same formats that packages
register.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyiceberg.io import OutputStream
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DoubleType, FloatType, IntegerType, LongType, StringType

from calving.errors import ConfigError
from calving.plugins import Registry
from calving.writing.properties import FORMAT, WriteProperties

BYTES = (BinaryType, StringType)
"""The types of columns whose bounds a format may find for short values only."""
BOUNDED = (*BYTES, IntegerType, LongType, FloatType, DoubleType)
"""The types of columns whose bounds a format may find."""
_OPEN_BYTES = 64 * 1024
"""Estimated memory of an open file without rows, bytes."""
_PART_BYTES = 10 * 1024 * 1024


Bounds = tuple[Any, Any]
"""The least and the largest value. NaN is no bound; infinities are."""


@dataclass(frozen=True, slots=True)
class Part:
    """So many ``rows`` of a file, for example a row group, and their bounds by column id. None: the column has values
    in these rows, and the format does not know their bounds. A column without values, or with NaN alone, may be absent.
    """

    rows: int
    bounds: Mapping[int, Bounds | None]


@dataclass(frozen=True, slots=True)
class Ending:
    """A finished file's size in bytes, its bytes by column id, the offsets at which readers can split it, and its parts
    in the order of their rows. A format without ``measures_up_to`` tells no parts.
    """

    size: int
    column_sizes: Mapping[int, int] | None = None
    split_offsets: tuple[int, ...] | None = None
    parts: Sequence[Part] = ()


class FileWriter(ABC):
    """Writes one data file."""

    @abstractmethod
    def write(self, rows: pa.Table) -> None:
        """Add rows in the table's Arrow schema. They come in one batch or several."""

    @abstractmethod
    def size(self) -> int:
        """Approximate number of bytes written so far."""

    def held(self) -> int:
        """Approximate number of bytes in memory, including buffers for the parts of an object store's upload."""
        return _OPEN_BYTES + min(self.size(), _PART_BYTES)

    @abstractmethod
    def close(self) -> Ending:
        """Finish the file. Call it once."""


class FileFormat(ABC):
    """One file format, with the settings of one table."""

    name: ClassVar[str]
    """The format's name in manifests, in lower case (parquet, orc, avro), and the suffix of its files."""
    holds_variants: ClassVar[bool] = False
    """Whether its files can hold variants: structs of ``metadata`` and ``value`` in the table's Arrow schema. Otherwise
    no schema has any.
    """
    measures_up_to: ClassVar[int] = 0
    """The format finds the bounds of ``BOUNDED`` columns: of all numbers, and of a ``BYTES`` column unless a call of
    ``FileWriter.write`` brings a value of more than so many bytes. ``Ending.parts`` has them; no part has rows of two
    calls. 0: the format finds none.
    """

    @abstractmethod
    def __init__(self, schema: Schema, properties: WriteProperties) -> None:
        """``properties`` are the table's.

        :raises ConfigError: the format cannot hold this schema, or a package for a property is not installed.
        """

    def check(self, rows: pa.RecordBatch) -> None:  # noqa: B027 - most formats hold every value
        """Check that a file can hold these rows, which have the table's Arrow schema.

        :raises BadRecordError: a value has no representation in this format.
        """

    def check_compared(self, name: str, column: pa.Array) -> None:  # noqa: B027 - most formats give every value back
        """Check that the values of an id column or order column can be read from a file again, to compare them.

        :raises BadRecordError: a value of the column ``name`` cannot be read again.
        """

    @abstractmethod
    def open(self, out: OutputStream) -> FileWriter:
        """A writer of one file. It does not close ``out``."""


_HERE = "calving.writing.formats."
FORMATS = Registry(
    "format", {"parquet": _HERE + "parquet:Parquet", "orc": _HERE + "orc:Orc", "avro": _HERE + "avro:Avro"}
)
"""calving's own formats. A manifest can name these formats and no others."""


def format_of(properties: WriteProperties) -> type[FileFormat]:
    """The format that ``write.format.default`` names.

    :raises ConfigError: there is no such format, it writes files that Iceberg does not know, or a package for it is not
        installed.
    """
    name = properties.file_format
    try:
        kind: type[FileFormat] = FORMATS.find(name, FileFormat)
    except ConfigError as error:
        raise ConfigError(f"property {FORMAT} = {name}: {error}") from error
    if kind.name not in FORMATS.own:
        known = ", ".join(FORMATS.own)
        raise ConfigError(f"property {FORMAT} = {name}: it writes {kind.name} files; Iceberg's are: {known}")
    return kind
