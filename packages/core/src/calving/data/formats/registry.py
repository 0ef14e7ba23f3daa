"""The file formats by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from calving.data.formats.interface import FileFormat


def _parquet() -> FileFormat:
    from calving.data.formats.parquet import Parquet

    return Parquet()


def _orc() -> FileFormat:
    from calving.data.formats.orc import Orc

    return Orc()


def _avro() -> FileFormat:
    from calving.data.formats.avro import Avro

    return Avro()


# Imported when used: a worker process loads what its tables need.
FORMATS: Mapping[str, Callable[[], FileFormat]] = {"parquet": _parquet, "orc": _orc, "avro": _avro}


def file_format(name: str) -> FileFormat:
    """The format that ``write.format.default`` names."""
    return FORMATS[name]()
