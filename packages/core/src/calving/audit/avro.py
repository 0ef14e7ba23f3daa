"""Avro files as they are: numbers stay numbers, because a date or a timestamp may be one that Python does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import fastavro

from calving.audit.storage import DamagedFileError

AvroRecord = Mapping[str, Any]


class AvroFile:
    """An open Avro file: its schema without logical types, the metadata in its header, and its records."""

    def __init__(self, stream: Any) -> None:
        """:raises DamagedFileError: it is no Avro file, or its codec is not installed."""
        with decoding():
            self._blocks = fastavro.block_reader(stream)
            self.metadata: Mapping[str, Any] = self._blocks.metadata
            self.schema: Any = _plain(self._blocks.writer_schema)
            self._parsed = fastavro.parse_schema(self.schema)

    def count(self) -> int:
        """The number of records, without decoding them. Reads the file to its end; errors as of ``records``."""
        with decoding():
            return sum(block.num_records for block in self._blocks)

    def records(self) -> Iterator[AvroRecord]:
        """:raises DamagedFileError: the rest of the file cannot be decoded."""
        with decoding():
            for block in self._blocks:
                content = block.bytes_  # type: ignore[attr-defined]
                for _ in range(block.num_records):
                    yield fastavro.schemaless_reader(content, self._parsed)  # type: ignore[misc]


@contextmanager
def decoding() -> Iterator[None]:
    """Names what a library says of a file's bytes.

    :raises DamagedFileError: the library refuses them.
    """
    try:
        yield
    except (DamagedFileError, GeneratorExit):
        raise
    except Exception as error:  # libraries raise exceptions of every class
        raise DamagedFileError(f"it cannot be decoded: {type(error).__name__}: {error}") from error


def names_by_id(schema: Any) -> dict[int, str]:
    """The names of a record's fields by field id: writers do not agree on all names."""
    return {field["field-id"]: field["name"] for field in schema["fields"] if "field-id" in field}


def field_type(schema: Any, name: str) -> Any:
    """The type of a record's field, without the null of an optional one."""
    kind = next(field["type"] for field in schema["fields"] if field["name"] == name)
    return not_null(kind)


def not_null(kind: Any) -> Any:
    """The type of a value that is not null."""
    return next(each for each in kind if each != "null") if isinstance(kind, list) else kind


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: each for key, each in schema.items() if key not in ("logicalType", "precision", "scale", "default")}
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = _plain(kept[key])
    if "fields" in kept:
        kept["fields"] = [_plain(each) for each in kept["fields"]]
    return kept
