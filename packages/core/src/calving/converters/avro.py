"""Avro: with a schema registry (Confluent's wire format), or with one fixed schema and no header."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from calving.avro_binary import checker
from calving.converters.avro_schema import AvroColumns, Named, Naming, branch_unions, branched, record
from calving.converters.avro_types import Schema, plain
from calving.converters.building import collect
from calving.converters.interface import Converter, Decoded, flag, full, stage
from calving.converters.native import Frame, decode_framed
from calving.converters.native_typed import record_decoder
from calving.converters.references import References
from calving.converters.schema_bounds import Extent
from calving.converters.schemas import (
    BODY,
    BySchema,
    SchemaReader,
    SchemaRegistry,
    by_schema,
    framed,
    schema_id,
)
from calving.errors import ConfigError, UnavailableError
from calving.model.record_path import Limits
from calving.records.cells import Cells, Together, cells_of
from calving.records.fields import Projection


class AvroConverter(Converter):
    """Decodes Avro. Each schema id is its own shape, so one batch may have values of several schemas."""

    def __init__(self, options: Mapping[str, str], *, is_key: bool, limits: Limits | None = None) -> None:
        self._stage = stage(is_key)
        self._limits = limits or Limits()
        self._naming = Naming(
            flag(options, "enhanced.avro.schema.support", is_key=is_key),
            flag(options, "generalized.sum.type.support", is_key=is_key),
        )
        self._readers = BySchema(self._reader)
        self._fixed: SchemaReader | None = None
        self._registry: SchemaRegistry | None = None
        if "schema" in options:
            try:
                self._fixed = _reader(options["schema"], {}, self._naming, self._limits, is_fixed=True)
            except json.JSONDecodeError as error:
                raise ConfigError(
                    f"{full('schema', is_key)}: it is no JSON: write the schema's text itself, not the name of its file"
                    f" ({error})"
                ) from error
            except UnknownType as error:
                raise ConfigError(f"{full('schema', is_key)}: Avro has no type {error}: correct it") from error
            except (ValueError, SchemaParseException, KeyError, TypeError) as error:
                raise ConfigError(f"{full('schema', is_key)} is not an Avro schema for a table: {error}") from error
        else:
            self._registry = SchemaRegistry(options, is_key=is_key)

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        frames: dict[bytes, Frame | None] = {}
        return decode_framed(values, lambda value: self._frame(value, frames), self._decode, self._limits.cells)

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

    def _decode(self, values: Sequence[bytes], together: Together) -> Decoded:
        """Decode values one by one."""
        if self._fixed is None:
            return by_schema(values, self._stage, framed, self._readers.of, "Avro schema {}".format, together)
        decoded = Decoded()
        fixed = self._fixed
        collect(
            decoded=decoded,
            kind=fixed.type,
            values=values,
            places=range(len(values)),
            stage=self._stage,
            load=fixed.load,
            cells=fixed.cells,
        )
        return decoded

    def _reader(self, number: int) -> SchemaReader:
        assert self._registry is not None  # noqa: S101 - without a registry there is a fixed schema
        followed, named = References(self._registry, self._limits), Named()
        schema = followed.schema(number)
        self._name(schema.references or (), named, followed, set())
        return _reader(schema.schema_str, named, self._naming, self._limits)

    def _name(self, references: Sequence[Any], named: Named, followed: References, done: set[tuple[str, int]]) -> None:
        for reference in references:
            key = reference.subject, reference.version
            if key not in done:
                done.add(key)
                with followed.into(reference) as schema:
                    self._name(schema.references or (), named, followed, done)
                fastavro.parse_schema(plain(json.loads(schema.schema_str)), named_schemas=named, _force=True)


def _reader(text: str, named: Named, naming: Naming, limits: Limits, *, is_fixed: bool = False) -> SchemaReader:
    """The reader of a schema's bodies. The schema is fixed if the bodies' records do not name it."""
    parsed = fastavro.parse_schema(plain(json.loads(text)), named_schemas=named, _force=True)
    extent = Extent(limits)
    columns = AvroColumns(named, naming, extent)
    reading, cells = columns.reading(parsed), Cells(limits.cells)
    counters = {schema: partial(cells.elements, cells=each) for schema, each in columns.elements.items()}
    decoder, check = record_decoder(parsed, named, limits.cells), checker(parsed, named, counters)
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

    own = cells_of(reading.type)

    def load(body: bytes) -> Any:
        cells.start(own)
        end = check(body)  # it counts the elements, too: fastavro's objects take more memory than their columns
        if end < len(body):
            raise ValueError(_behind(body, end) + (_FRAMED if is_fixed and body[0] == 0 and len(body) >= BODY else ""))
        value = raw(body)
        return value if value is None or convert is None else convert(value)

    return SchemaReader(reading.type, load, extent.cells, extent.size(len(text)), decoder)


def _behind(body: bytes, end: int) -> str:
    """The error of bytes behind a value. Java ignores them, but they mean that the schema is not the value's, or that
    there are several values.
    """
    return f"{len(body) - end} of its {len(body)} bytes stand behind the value: it was written with another schema"


_FRAMED = (
    "; it may begin with the prefix of a schema registry: the converter's option schema.registry.url instead of schema"
    " reads it"
)
