"""Schemas and values of ``nodes`` as Avro in Confluent's wire format, and as Connect's JSON envelope."""

from __future__ import annotations

import base64
import itertools
import json
import math
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from io import BytesIO
from typing import Any
from zlib import crc32

import fastavro

from tests.fuzz.forms import Digits
from tests.fuzz.meanings import bare
from tests.fuzz.nodes import ENUM, Node

_CONNECT = "org.apache.kafka.connect.data."


def schema_id(text: str) -> int:
    """The registry's id of a schema."""
    return crc32(text.encode()) & 0x7FFFFFFF


def avro_schema(node: Node) -> str:
    """As JSON."""
    return json.dumps(_avro(node, itertools.count()))


def _avro(node: Node, numbers: Iterator[int]) -> Any:
    found = _avro_type(node, numbers)
    if node.kind == "union":
        return ["null", *found] if node.optional else found
    return ["null", found] if node.optional else found


def _avro_type(node: Node, numbers: Iterator[int]) -> Any:
    meant = {"connect.name": node.mean, "connect.version": 1} if node.mean else {}
    match node.kind:
        case "struct":
            name = node.name if node.name in ("Created", "Deleted") else f"R{next(numbers)}"
            return {"type": "record", "name": name, "fields": [_field(n, numbers) for n in node.inner]} | meant
        case "union":
            return [_avro_type(n, numbers) for n in node.inner]
        case "list":
            return {"type": "array", "items": _avro(node.inner[0], numbers)}
        case "map":
            return {"type": "map", "values": _avro(node.inner[1], numbers)}
        case "enum":
            return {"type": "enum", "name": f"E{next(numbers)}", "symbols": list(ENUM)}
        case "fixed":
            return {"type": "fixed", "name": f"F{next(numbers)}", "size": node.size}
        case "decimal":
            return {"type": "bytes", "logicalType": "decimal", "precision": node.size, "scale": node.scale}
        case "decimal-fixed":
            form = {"type": "fixed", "name": f"F{next(numbers)}", "size": _fixed_size(node)}
            return form | {"logicalType": "decimal", "precision": node.size, "scale": node.scale}
        case "uuid":
            return {"type": "string", "logicalType": "uuid"}
        case "uuid-fixed":
            return {"type": "fixed", "name": f"F{next(numbers)}", "size": 16, "logicalType": "uuid"}
        case "date" | "time-millis":
            return {"type": "int", "logicalType": node.kind}
        case (
            "time-micros"
            | "timestamp-millis"
            | "timestamp-micros"
            | "local-timestamp-millis"
            | "local-timestamp-micros"
            | "timestamp-nanos"
            | "local-timestamp-nanos"
        ):
            return {"type": "long", "logicalType": node.kind}
    return {"type": node.kind} | meant if meant else node.kind


def _fixed_size(node: Node) -> int:
    """Bytes of a decimal."""
    most: int = 10**node.size
    return most.bit_length() // 8 + 1


def _field(node: Node, numbers: Iterator[int]) -> Any:
    return {"name": node.name, "type": _avro(node, numbers)}


def avro(schema: str, node: Node) -> Callable[[Any], bytes]:
    """Makes values, with their header."""
    parsed = fastavro.parse_schema(_raw_types(json.loads(schema)))
    header = struct.pack(">bI", 0, schema_id(schema))

    def encode(value: Any) -> bytes:
        out = BytesIO()
        fastavro.schemaless_writer(out, parsed, _avro_value(node, value))
        return header + out.getvalue()

    return encode


def _raw_types(schema: Any) -> Any:
    """Without logical types: values are given as they are on the wire."""
    match schema:
        case dict():
            return {k: _raw_types(v) for k, v in schema.items() if k not in ("logicalType", "precision", "scale")}
        case list():
            return [_raw_types(item) for item in schema]
    return schema


def _avro_value(node: Node, value: Any) -> Any:
    if value is None:
        return None
    value = bare(value)
    match node.kind:
        case "struct":
            return {n.name: _avro_value(n, value[n.name]) for n in node.inner}
        case "union":
            chosen = next(n for n in node.inner if value[n.name] is not None)
            return chosen.name, _avro_value(chosen, value[chosen.name])
        case "list":
            return [_avro_value(node.inner[0], item) for item in value]
        case "map":
            return {k: _avro_value(node.inner[1], v) for k, v in value}
        case "decimal":
            return _unscaled(value, node.scale)
        case "decimal-fixed":
            raw = _unscaled(value, node.scale)
            return raw.rjust(_fixed_size(node), b"\xff" if raw[0] & 0x80 else b"\0")
        case "uuid":
            return str(value)
        case "uuid-fixed":
            return value.bytes
    return on_wire(node, value)


def on_wire(node: Node, value: Any) -> Any:
    """Numbers of temporal kinds; others as they are."""
    match node.kind:
        case "date":
            return value.days
        case "time-millis" | "timestamp-millis" | "local-timestamp-millis":
            return value.micros // 1000
        case "time-micros" | "timestamp-micros" | "local-timestamp-micros":
            return value.micros
        case "timestamp-nanos" | "local-timestamp-nanos":
            return value.nanos
    return value


def _unscaled(value: Decimal, scale: int) -> bytes:
    with localcontext(prec=100):
        number = int(value.scaleb(scale))
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


_CONNECT_TYPES = {
    "boolean": "boolean",
    "int8": "int8",
    "int16": "int16",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "date": "int32",
    "time-millis": "int32",
    "timestamp-millis": "int64",
    "decimal": "bytes",
    "list": "array",
    "map": "map",
    "struct": "struct",
}
_LOGICAL = {"date": "Date", "time-millis": "Time", "timestamp-millis": "Timestamp", "decimal": "Decimal"}


def connect_schema(node: Node) -> str:
    """A schema as Connect's JSON converter writes it."""
    return json.dumps(_connect(node), separators=(",", ":"), ensure_ascii=False)


def _connect(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {"type": _CONNECT_TYPES[node.kind], "optional": node.optional}
    if node.name:  # an element's or a key's does no harm
        found["field"] = node.name
    if node.kind in _LOGICAL:
        found["name"] = _CONNECT + _LOGICAL[node.kind]
        found["version"] = 1
    if node.mean:
        found["name"] = node.mean
        found["version"] = 1
    match node.kind:
        case "struct":
            found["fields"] = [_connect(n) for n in node.inner]
        case "list":
            found["items"] = _connect(node.inner[0])
        case "map":
            found["keys"], found["values"] = map(_connect, node.inner)
        case "decimal":
            found["parameters"] = {"scale": str(node.scale), "connect.decimal.precision": str(node.size)}
    return found


def envelope(schema: str, node: Node) -> Callable[[Any], bytes]:
    """Makes values with their schema in front."""

    def encode(value: Any) -> bytes:
        text = json.dumps(payload(node, value), separators=(",", ":"), ensure_ascii=False)
        return f'{{"schema":{schema},"payload":{text}}}'.encode()

    return encode


def json_schema(node: Node) -> str:
    """As Confluent's JSON Schema converter registers it."""
    return json.dumps(_json_type(node), ensure_ascii=False)


def _json_type(node: Node) -> dict[str, Any]:
    kind = _CONNECT_TYPES[node.kind]
    found: dict[str, Any] = {"type": _JSON_TYPES.get(kind, kind)}
    if kind not in ("boolean", "string", "array", "struct"):
        found["connect.type"] = _JSON_NAMES.get(kind, kind)
    if node.kind in _LOGICAL:
        found["title"] = _CONNECT + _LOGICAL[node.kind]
    if node.mean:
        found["title"] = node.mean
    match node.kind:
        case "struct":
            found["properties"] = {n.name: _json_type(n) | {"connect.index": i} for i, n in enumerate(node.inner)}
            found["required"] = [n.name for n in node.inner]
        case "list":
            found["items"] = _json_type(node.inner[0])
        case "map":
            found["additionalProperties"] = _json_type(node.inner[1])
        case "decimal":
            found["connect.parameters"] = {"scale": str(node.scale), "connect.decimal.precision": str(node.size)}
    return {"oneOf": [{"type": "null"}, found]} if node.optional else found


_JSON_TYPES = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "integer"),
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("map", "struct"), "object"),
    "bytes": "string",
}
_JSON_NAMES = {"float": "float32", "double": "float64"}


def with_json_schema(schema: str, node: Node) -> Callable[[Any], bytes]:
    """Makes values, with their header."""
    header = struct.pack(">bI", 0, schema_id(schema))
    return lambda value: header + json.dumps(payload(node, value), ensure_ascii=False).encode()


def payload(node: Node, value: Any) -> Any:
    if value is None:
        return None
    value = bare(value)
    match node.kind:
        case "struct":
            return {n.name: payload(n, value[n.name]) for n in node.inner}
        case "list":
            return [payload(node.inner[0], item) for item in value]
        case "map":
            return {k: payload(node.inner[1], v) for k, v in value}
    match value:
        case Digits():
            return base64.b64encode(_unscaled(value, node.scale)).decode()
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        case float():
            return float(value)
    return on_wire(node, value)
