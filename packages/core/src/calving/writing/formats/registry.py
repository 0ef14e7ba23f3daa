"""The file formats by name: calving's own, and writers of the same formats that packages register."""

from __future__ import annotations

from pyiceberg.schema import Schema

from calving.errors import ConfigError
from calving.plugins import Registry
from calving.writing.formats.interface import FileFormat
from calving.writing.properties import FORMAT, WriteProperties

_HERE = "calving.writing.formats."
FORMATS = Registry(
    "format", {"parquet": _HERE + "parquet:Parquet", "orc": _HERE + "orc:Orc", "avro": _HERE + "avro:Avro"}
)
"""calving's own formats. A manifest can name these formats and no others."""


def file_format(schema: Schema, properties: WriteProperties) -> FileFormat:
    """The format that ``write.format.default`` names, for one table.

    :raises ConfigError: there is no such format, it writes files that Iceberg does not know, it cannot hold this
        schema, or a package for a property is not installed.
    """
    name = properties.file_format
    try:
        kind: type[FileFormat] = FORMATS.find(name, FileFormat)
    except ConfigError as error:
        raise ConfigError(f"property {FORMAT} = {name}: {error}") from error
    if kind.name not in FORMATS.own:
        known = ", ".join(FORMATS.own)
        raise ConfigError(f"property {FORMAT} = {name}: it writes {kind.name} files; Iceberg's are: {known}")
    return kind(schema, properties)
