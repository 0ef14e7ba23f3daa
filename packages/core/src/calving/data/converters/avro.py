"""Avro: with a schema registry (Confluent's wire format), or with one fixed schema and nothing in front."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException

from calving.data.converters import building
from calving.data.converters.building import Reading, collect
from calving.data.converters.interface import Converter, Decoded, Wish, stage
from calving.data.converters.schemas import BODY, Registry, UnknownSchemaError, schema_id
from calving.data.records import Bad
from calving.errors import ConfigError

Schema = Any


class AvroConverter(Converter):
    """Every schema id is a shape of its own: values of several schemas in one batch go their ways side by side."""

    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None:
        self._stage = stage(is_key)
        self._readers: dict[int, _Reader] = {}
        self._fixed: _Reader | None = None
        self._registry: Registry | None = None
        if "schema" in options:
            try:
                self._fixed = _Reader(json.loads(options["schema"]), {}, 0)
            except (ValueError, SchemaParseException) as error:
                which = "key.converter.schema" if is_key else "value.converter.schema"
                raise ConfigError(f"{which} is not an Avro schema: {error}") from error
        else:
            self._registry = Registry(options, is_key=is_key)

    def decode(self, values: Sequence[bytes], wish: Wish | None) -> Decoded:
        decoded = Decoded()
        if self._fixed is not None:
            collect(decoded, self._fixed.reading, values, range(len(values)), self._stage, self._fixed.load)
            return decoded
        groups: dict[int, list[int]] = {}
        for i, value in enumerate(values):
            try:
                groups.setdefault(schema_id(value), []).append(i)
            except ValueError as error:
                decoded.bad.append(Bad(i, self._stage, "ValueError", str(error)))
        for number, places in groups.items():
            try:
                reader = self._reader(number)
            except (UnknownSchemaError, SchemaParseException, ValueError) as error:
                reason = f"Avro schema {number}: {error}"
                decoded.bad += [Bad(i, self._stage, type(error).__name__, reason) for i in places]
                continue
            collect(decoded, reader.reading, [values[i] for i in places], places, self._stage, reader.load)
        return decoded

    def _reader(self, number: int) -> _Reader:
        found = self._readers.get(number)
        if found is None and self._registry is not None:
            schema = self._registry.schema(number)
            named: dict[str, Any] = {}
            self._name(schema.references or (), named, self._registry)
            found = self._readers[number] = _Reader(json.loads(schema.schema_str), named, BODY)
        assert found is not None  # noqa: S101 - without a registry there is a fixed schema
        return found

    def _name(self, references: Sequence[Any], named: dict[str, Any], registry: Registry) -> None:
        for reference in references:
            schema = registry.referenced(reference.subject, reference.version)
            self._name(schema.references or (), named, registry)
            fastavro.parse_schema(_plain(json.loads(schema.schema_str)), named_schemas=named, _force=True)


class _Reader:
    """Reads values of one schema, whose body starts at ``skip``."""

    def __init__(self, schema: Schema, named: dict[str, Any], skip: int) -> None:
        parsed = fastavro.parse_schema(_plain(schema), named_schemas=named, _force=True)
        self.reading = _reading(parsed, named, ())
        read = fastavro.schemaless_reader
        self.load: Callable[[bytes], Any] = lambda value: read(BytesIO(value[skip:] if skip else value), parsed, None)


_KEPT = ("decimal", "uuid")
"""Logical types that fastavro resolves; numbers are faster as they are, and Arrow takes them so."""


def _plain(schema: Schema) -> Schema:
    """The schema with the logical types of numbers under another name, so that fastavro leaves the numbers alone."""
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _plain(item) if name in ("type", "items", "values") else item for name, item in schema.items()}
    if "fields" in found:
        found["fields"] = [{**field, "type": _plain(field["type"])} for field in found["fields"]]
    logical = found.get("logicalType")
    if logical is not None and logical not in _KEPT:
        found["calving.logical"] = found.pop("logicalType")
    return found


def _reading(schema: Schema, named: Mapping[str, Any], above: tuple[str, ...]) -> Reading:
    if isinstance(schema, list):
        return _union(schema, named, above)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return _reading(kind, named, above)
    if kind in named and kind not in _PRIMITIVES and not (isinstance(schema, dict) and "name" in schema):
        return _reading(named[kind], named, above)
    options = schema if isinstance(schema, dict) else {}
    logical = options.get("logicalType") or options.get("calving.logical")
    match kind:
        case "record" | "error":
            name = options["name"]
            if name in above:
                raise ValueError(f"the schema contains itself ({name}): a table cannot")
            fields = [(f["name"], _reading(f["type"], named, (*above, name))) for f in options["fields"]]
            return building.struct(fields, nullable=False)
        case "array":
            return building.array(_reading(options["items"], named, above), nullable=False)
        case "map":
            key = Reading(pa.string(), nullable=False)
            return building.mapping(key, _reading(options["values"], named, above), nullable=False)
        case "enum":
            return Reading(pa.string(), nullable=False)
        case "bytes" | "fixed" if logical == "decimal":
            return Reading(pa.decimal128(options["precision"], options.get("scale", 0)), nullable=False)
        case "fixed":
            return Reading(pa.binary(options["size"]), nullable=False)
    found = _LOGICALS.get((kind, logical)) or _PRIMITIVES.get(kind)
    if found is None:
        raise ValueError(f"type '{kind}' is not known")
    return Reading(found, nullable=kind == "null")


def _union(branches: Sequence[Schema], named: Mapping[str, Any], above: tuple[str, ...]) -> Reading:
    """Null and one type is that type, nullable; several are a struct with a field for each, as in Connect."""
    real = [branch for branch in branches if branch != "null"]
    if not real:
        return Reading(pa.null())
    readings = [_reading(branch, named, above) for branch in real]
    if len(real) == 1:
        return Reading(readings[0].type, readings[0].convert, len(real) < len(branches))
    names = [_branch_name(branch, named) for branch in real]
    kind = pa.struct([pa.field(n, r.type) for n, r in zip(names, readings, strict=True)])

    def convert(value: Any) -> Any:
        for name, reading in zip(names, readings, strict=True):
            if _is_of(value, reading.type):
                return {name: value if reading.convert is None else reading.convert(value)}
        raise ValueError(f"{value!r} is of no branch of the union")

    return Reading(kind, convert)


def _branch_name(branch: Schema, named: Mapping[str, Any]) -> str:
    if isinstance(branch, dict):
        return str(branch.get("name", branch["type"])).rpartition(".")[2]
    return str(branch).rpartition(".")[2]


def _is_of(value: Any, kind: pa.DataType) -> bool:
    t = pa.types
    match value:
        case bool():
            return bool(t.is_boolean(kind))
        case int():
            return bool(t.is_integer(kind) or t.is_timestamp(kind) or t.is_date(kind) or t.is_time(kind)) and not (
                t.is_int32(kind) and not -(2**31) <= value < 2**31
            )
        case float():
            return bool(t.is_floating(kind))
        case str():
            return bool(t.is_string(kind))
        case bytes():
            return bool(t.is_binary(kind) or t.is_fixed_size_binary(kind))
        case Decimal():
            return bool(t.is_decimal(kind))
        case UUID():
            return bool(kind == pa.uuid())
        case list():
            return bool(t.is_list(kind))
        case dict():
            if t.is_struct(kind):
                return set(value) == {f.name for f in kind}
            return bool(t.is_map(kind))
    return False


_PRIMITIVES: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICALS: Mapping[tuple[str, str | None], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
    ("string", "uuid"): pa.uuid(),
}
