"""Values in Avro's binary encoding. Anybody may have written those that are read."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import fastavro

from calving.avro_binary import checker


class Datum(NamedTuple):
    """A value, and the bytes behind it."""

    value: Any
    rest: bytes


class BinaryEncoding:
    """Reads and writes values of one schema of Avro, which refers to no other."""

    def __init__(self, schema: Any) -> None:
        named: dict[str, Any] = {}
        self._schema = fastavro.parse_schema(schema, named_schemas=named)
        self._check = checker(self._schema, named)

    def read(self, data: bytes) -> Datum:
        """The value at the beginning of these bytes.

        :raises Exception: there is none.
        """
        end = self._check(data)
        return Datum(fastavro.schemaless_reader(io.BytesIO(data), self._schema, None), data[end:])

    def write(self, value: Any) -> bytes:
        """The bytes of a value. A pair names the branch of a union beside its value, as in fastavro."""
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._schema, value)
        return out.getvalue()
