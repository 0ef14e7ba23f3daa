"""Decodes values with a schema in Rust: payloads of Connect's envelope, and records of Avro."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from calving.converters.avro_schema import logical_type
from calving.converters.building import MOST_DIGITS
from calving.converters.native import (
    NO_NULL,
    NULL_VALUE,
    Decoder,
    Field,
    NoWayError,
    absence,
    avro_decoder,
    json_decoder,
)
from calving.converters.typed_json import Declared, Form
from calving.records.semantics import plain_type

_NESTING = 64
_CONNECT: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): "days",
    pa.time32("ms"): "millis_of_day",
    pa.timestamp("ms", "UTC"): "millis(utc)",
}
_AVRO: Mapping[tuple[str, str | None], str] = {
    ("int", "date"): "days",
    ("int", "time-millis"): "millis_of_day",
    ("long", "time-micros"): "micros_of_day",
    ("long", "timestamp-millis"): "millis(utc)",
    ("long", "timestamp-micros"): "micros(utc)",
    ("long", "timestamp-nanos"): "nanos(utc)",
    ("long", "local-timestamp-millis"): "millis()",
    ("long", "local-timestamp-micros"): "micros()",
    ("long", "local-timestamp-nanos"): "nanos()",
    ("string", "uuid"): "uuid",
}
_PLAIN_AVRO: Mapping[str, str] = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
}
_KEY = Field(("key",), "string", (), NO_NULL)


def payload_decoder(form: Form, cells: int) -> Decoder | None:
    """A decoder of JSON objects of a Connect schema; None if there is none."""
    if absence() is not None or not pa.types.is_struct(form.type):
        return None
    try:
        fields = _connect(("",), form).inner
    except NoWayError:
        return None
    return json_decoder(fields, closed=True, nesting=_NESTING, cells=cells)


def _connect(names: tuple[str, ...], form: Form) -> Field:
    kind = plain_type(form.type)
    if pa.types.is_struct(kind):
        field_names = [field.name for field in kind]
        if not field_names or len({*field_names}) < len(field_names):
            raise NoWayError
        inner = [_declared(name, part) for name, part in zip(field_names, form.parts, strict=True)]
        return Field(names, "struct", tuple(inner))
    if pa.types.is_list(kind):
        return Field(names, "list", (_declared("element", form.parts[0]),))
    if pa.types.is_map(kind) and form.parts:
        return Field(names, "map", (_KEY, _declared("value", form.parts[0])))
    if pa.types.is_decimal128(kind):
        return Field(names, _unscaled(kind.precision, kind.scale))
    if kind not in _CONNECT:
        raise NoWayError
    return Field(names, _CONNECT[kind])


def _declared(name: str, part: Declared) -> Field:
    """The field of a part. A null that a default replaces is refused."""
    null = NULL_VALUE if part.nullable and not part.replaced else NO_NULL
    return replace(_connect((name,), part.form), null=null)


def _unscaled(precision: int, scale: int, *size: int) -> str:
    if not 0 <= scale <= precision:
        raise NoWayError
    return f"unscaled({','.join(map(str, (precision, scale, *size)))})"


def record_decoder(schema: Any, named: Mapping[str, Any], cells: int) -> Decoder | None:
    """A decoder of records of a parsed Avro schema that a table can hold; None if there is none."""
    if absence() is not None or not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        return None
    try:
        fields = _Avro(named).kind(schema, ()).inner
    except NoWayError:
        return None
    return avro_decoder(fields, cells) if fields else None


@dataclass(frozen=True, slots=True)
class _Avro:
    """Avro's types. ``named`` are the types to which schemas refer."""

    named: Mapping[str, Any]

    def field(self, name: str, schema: Any) -> Field:
        if not isinstance(schema, list):
            return replace(self.kind(schema, (name,)), null=NO_NULL)
        nulls = [place for place, branch in enumerate(schema) if branch == "null"]
        if len(schema) != 2 or len(nulls) != 1:
            raise NoWayError
        return replace(self.kind(schema[1 - nulls[0]], (name,)), null=nulls[0])

    def kind(self, schema: Any, names: tuple[str, ...]) -> Field:
        options = schema if isinstance(schema, dict) else {}
        kind = options.get("type", schema)
        if isinstance(kind, dict):
            return self.kind(kind, names)
        if isinstance(kind, list):
            raise NoWayError
        if kind in self.named and "name" not in options:
            return self.kind(self.named[kind], names)
        if kind in ("record", "error"):
            if not options["fields"]:
                raise NoWayError
            return Field(names, "struct", tuple(self.field(f["name"], f["type"]) for f in options["fields"]))
        if kind == "array":
            return Field(names, "list", (self._element(options["items"]),))
        if kind == "map":
            return Field(names, "map", (_KEY, self.field("value", options["values"])))
        if kind == "enum":
            return Field(names, "choice", tuple(Field((symbol,), "string") for symbol in options["symbols"]))
        return Field(names, _simple(kind, options))

    def _element(self, items: Any) -> Field:
        entry = self.named.get(items) if isinstance(items, str) else items
        if isinstance(entry, dict) and entry.get("connect.internal.type") == "MapEntry":
            raise NoWayError
        return self.field("element", items)


def _simple(kind: str, options: Mapping[str, Any]) -> str:
    logical = logical_type(options)
    if kind in ("bytes", "fixed") and logical == "decimal":
        size = (options["size"],) if kind == "fixed" else ()
        return _unscaled(min(options.get("precision", MOST_DIGITS), MOST_DIGITS), options.get("scale", 0), *size)
    if kind == "fixed" and options["size"] > 0:
        return f"fixed({options['size']})"
    code = _AVRO.get((kind, logical)) or _PLAIN_AVRO.get(kind)
    if code is None:
        raise NoWayError
    return code
