"""Avro: with a schema registry (Confluent's wire format), or with one fixed schema and no header."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from calving.converters.avro_schema import Columns, Named, Naming, Schema, branch_unions, branched, plain, record
from calving.converters.building import collect
from calving.converters.extent import Extent
from calving.converters.interface import Converter, Decoded, stage
from calving.converters.native import Frame, decode_framed
from calving.converters.native_typed import record_decoder
from calving.converters.options import flag, full
from calving.converters.schemas import BODY, BySchema, Reader, References, Registry, by_schema, framed, schema_id
from calving.errors import ConfigError, UnavailableError
from calving.model.record_path import Limits
from calving.records.fields import Projection


class AvroConverter(Converter):
    """Decodes Avro. Each schema id is its own shape, so one batch may have values of several schemas."""

    def __init__(self, options: Mapping[str, str], *, is_key: bool, limits: Limits | None = None) -> None:
        self._stage = stage(is_key)
        self._limits = limits or Limits()
        self._naming = Naming(
            flag(options, "enhanced.avro.schema.support", False, is_key=is_key),
            flag(options, "generalized.sum.type.support", False, is_key=is_key),
        )
        self._readers = BySchema(self._reader)
        self._fixed: Reader | None = None
        self._registry: Registry | None = None
        if "schema" in options:
            try:
                self._fixed = _reader(json.loads(options["schema"]), {}, self._naming, self._limits)
            except (ValueError, SchemaParseException, KeyError, TypeError) as error:
                raise ConfigError(f"{full('schema', is_key)} is not an Avro schema for a table: {error}") from error
        else:
            self._registry = Registry(options, is_key=is_key)

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        frames: dict[bytes, Frame | None] = {}
        return decode_framed(values, lambda value: self._frame(value, frames), self._decode)

    def _frame(self, value: bytes, known: dict[bytes, Frame | None]) -> Frame | None:
        """The frame of a value, and of other values of its schema; None if they are read one by one, or if the value is
        bad.
        """
        head = value[:BODY] if self._fixed is None else b""
        if head not in known:
            known[head] = None
            try:
                reader = self._fixed or self._readers.of(schema_id(value))
            except (UnavailableError, ConfigError):
                raise
            except Exception:  # whatever the error of a value or its schema is, reading values one by one reports it
                return None
            if reader.decoder is not None:
                known[head] = Frame(reader.decoder, reader.type, head)
        return known[head]

    def _decode(self, values: Sequence[bytes]) -> Decoded:
        """Decode values one by one."""
        if self._fixed is None:
            return by_schema(values, self._stage, framed, self._readers.of, "Avro schema {}".format)
        decoded = Decoded()
        collect(decoded, self._fixed.type, values, range(len(values)), self._stage, self._fixed.load)
        return decoded

    def _reader(self, number: int) -> Reader:
        assert self._registry is not None  # noqa: S101 - without a registry there is a fixed schema
        schema = self._registry.schema(number)
        named: Named = {}
        self._name(schema.references or (), named, References(self._registry), set())
        return _reader(json.loads(schema.schema_str), named, self._naming, self._limits)

    def _name(self, references: Sequence[Any], named: Named, followed: References, done: set[tuple[str, int]]) -> None:
        for reference in references:
            key = reference.subject, reference.version
            if key not in done:
                done.add(key)
                with followed.into(reference) as schema:
                    self._name(schema.references or (), named, followed, done)
                fastavro.parse_schema(plain(json.loads(schema.schema_str)), named_schemas=named, _force=True)


def _reader(schema: Schema, named: Named, naming: Naming, limits: Limits) -> Reader:
    """The reader of a schema's bodies."""
    parsed = fastavro.parse_schema(plain(schema), named_schemas=named, _force=True)
    reading = Columns(named, naming, Extent(limits)).reading(parsed)
    decoder = record_decoder(parsed, named)
    for one in (*named.values(), parsed):
        branch_unions(one, naming)
    read: Callable[[BytesIO, Schema, None], Any] = fastavro.schemaless_reader
    convert = reading.convert
    raw: Callable[[bytes], Any]
    if isinstance(parsed, dict) and "__fastavro_parsed" in parsed:
        raw = lambda body: read(BytesIO(body), parsed, None)  # noqa: E731 - called once for each value
    else:
        # Wrap the schema in a record, because fastavro parses any other schema again for each value.
        root = record("value", branched(parsed, naming)) | {"__fastavro_parsed": True, "__named_schemas": named}
        raw = lambda body: read(BytesIO(body), root, None)["value"]  # noqa: E731

    def converted(body: bytes) -> Any:
        found = raw(body)
        return None if found is None or convert is None else convert(found)

    return Reader(reading.type, raw if convert is None else converted, decoder)
