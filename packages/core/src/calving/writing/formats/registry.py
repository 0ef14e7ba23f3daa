"""The file formats by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyiceberg.schema import Schema

from calving.writing.formats.interface import FileFormat
from calving.writing.properties import WriteProperties


def _parquet() -> type[FileFormat]:
    from calving.writing.formats.parquet import Parquet

    return Parquet


def _orc() -> type[FileFormat]:
    from calving.writing.formats.orc import Orc

    return Orc


def _avro() -> type[FileFormat]:
    from calving.writing.formats.avro import Avro

    return Avro


# Imported when used: a worker process loads what its tables need.
FORMATS: Mapping[str, Callable[[], type[FileFormat]]] = {"parquet": _parquet, "orc": _orc, "avro": _avro}


def file_format(schema: Schema, properties: WriteProperties) -> FileFormat:
    """The format that ``write.format.default`` names, for one table.

    :raises ConfigError: the format cannot hold such a schema, or what a property asks for is not installed.
    """
    return FORMATS[properties.file_format]()(schema, properties)
