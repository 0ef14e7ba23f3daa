"""The file formats by name."""

from __future__ import annotations

from calving.data.formats.interface import FileFormat
from calving.data.formats.parquet import Parquet
from calving.errors import ConfigError

FORMATS: dict[str, FileFormat] = {Parquet.name: Parquet()}


def file_format(name: str, table: str) -> FileFormat:
    """:raises ConfigError: there is no such format."""
    found = FORMATS.get(name.lower())
    if found is None:
        raise ConfigError(
            f"table {table}: write.format.default = {name} is not supported; supported: {', '.join(FORMATS)}"
        )
    return found
