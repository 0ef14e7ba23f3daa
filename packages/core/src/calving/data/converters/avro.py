"""Avro: with a schema registry (Confluent's wire format), or with one fixed schema and nothing in front."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from calving.data.converters.avro_schema import Columns, Named, Naming, Schema, branch_unions, branched, plain, record
from calving.data.converters.building import bad, collect
from calving.data.converters.interface import Converter, Decoded, Wish, stage
from calving.data.converters.options import flag, full
from calving.data.converters.schemas import BODY, Registry, schema_id
from calving.errors import ConfigError, Unavailable


class AvroConverter(Converter):
    """Every schema id is a shape of its own: values of several schemas in one batch go their ways side by side."""

    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None:
        self._stage = stage(is_key)
        self._naming = Naming(
            flag(options, "enhanced.avro.schema.support", False, is_key=is_key),
            flag(options, "generalized.sum.type.support", False, is_key=is_key),
        )
        self._readers: dict[int, _Reader] = {}
        self._fixed: _Reader | None = None
        self._registry: Registry | None = None
        if "schema" in options:
            try:
                self._fixed = _Reader(json.loads(options["schema"]), {}, 0, self._naming)
            except (ValueError, SchemaParseException, KeyError, TypeError) as error:
                raise ConfigError(f"{full('schema', is_key)} is not an Avro schema for a table: {error}") from error
        else:
            self._registry = Registry(options, is_key=is_key)

    def decode(self, values: Sequence[bytes], wish: Wish | None) -> Decoded:
        decoded = Decoded()
        if self._fixed is not None:
            collect(decoded, self._fixed.type, values, range(len(values)), self._stage, self._fixed.load)
            return decoded
        groups: dict[int, list[int]] = {}
        for i, value in enumerate(values):
            try:
                groups.setdefault(schema_id(value), []).append(i)
            except ValueError as error:
                decoded.bad.append(bad(i, self._stage, error))
        for number, places in groups.items():
            try:
                reader = self._reader(number)
            except (Unavailable, ConfigError):
                raise
            except Exception as error:  # whatever is wrong with a schema, its values cannot be read
                decoded.bad += [bad(i, self._stage, error, f"Avro schema {number}: ") for i in places]
                continue
            collect(decoded, reader.type, [values[i] for i in places], places, self._stage, reader.load)
        return decoded

    def _reader(self, number: int) -> _Reader:
        found = self._readers.get(number)
        if found is None and self._registry is not None:
            schema = self._registry.schema(number)
            named: Named = {}
            self._name(schema.references or (), named, self._registry, set())
            found = self._readers[number] = _Reader(json.loads(schema.schema_str), named, BODY, self._naming)
        assert found is not None  # noqa: S101 - without a registry there is a fixed schema
        return found

    def _name(self, references: Sequence[Any], named: Named, registry: Registry, done: set[tuple[str, int]]) -> None:
        for reference in references:
            key = reference.subject, reference.version
            if key not in done:
                done.add(key)
                schema = registry.referenced(*key)
                self._name(schema.references or (), named, registry, done)
                fastavro.parse_schema(plain(json.loads(schema.schema_str)), named_schemas=named, _force=True)


class _Reader:
    """Reads values of one schema, whose body starts at ``skip``."""

    def __init__(self, schema: Schema, named: Named, skip: int, naming: Naming) -> None:
        parsed = fastavro.parse_schema(plain(schema), named_schemas=named, _force=True)
        reading = Columns(named, naming).reading(parsed)
        for one in (*named.values(), parsed):
            branch_unions(one, naming)
        read, convert = fastavro.schemaless_reader, reading.convert
        raw: Callable[[bytes], Any]
        if isinstance(parsed, dict) and "__fastavro_parsed" in parsed:
            raw = lambda value: read(BytesIO(value[skip:]), parsed, None)  # noqa: E731 - called once for each value
        else:
            # Into a record, because fastavro parses what is none anew for each value.
            root = record("value", branched(parsed, naming)) | {"__fastavro_parsed": True, "__named_schemas": named}
            raw = lambda value: read(BytesIO(value[skip:]), root, None)["value"]  # noqa: E731

        def converted(value: bytes) -> Any:
            found = raw(value)
            return None if found is None or convert is None else convert(found)

        self.type = reading.type
        self.load = raw if convert is None else converted
