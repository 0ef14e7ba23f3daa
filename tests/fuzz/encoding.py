"""Schemas and values of ``nodes`` as Connect's JSON envelope, and what the formats of a registry share."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any
from zlib import crc32

from tests.fuzz.forms import Digits
from tests.fuzz.meanings import bare
from tests.fuzz.nodes import Node

_CONNECT = "org.apache.kafka.connect.data."


def schema_id(text: str) -> int:
    """The registry's id of a schema."""
    return crc32(text.encode()) & 0x7FFFFFFF


class SchemaText(str):
    """A schema of a registry. ``references``: the names and texts of the schemas to which it refers. ``drawn``: what is
    rare in it.
    """

    references: tuple[tuple[str, str], ...]
    drawn: frozenset[str]

    def __new__(
        cls, text: str, references: tuple[tuple[str, str], ...] = (), drawn: frozenset[str] = frozenset()
    ) -> SchemaText:
        made = super().__new__(cls, text)
        made.references, made.drawn = references, drawn
        return made


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


def unscaled(value: Decimal, scale: int) -> bytes:
    with localcontext(prec=100):
        number = int(value.scaleb(scale))
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


CONNECT_TYPES = {
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
CONNECT_NAMES = {kind: _CONNECT + name for kind, name in _LOGICAL.items()}


def connect_schema(node: Node) -> SchemaText:
    """A schema as Connect's JSON converter writes it."""
    drawn: set[str] = set()
    return SchemaText(
        json.dumps(_connect(node, drawn), separators=(",", ":"), ensure_ascii=False), drawn=frozenset(drawn)
    )


def _connect(node: Node, drawn: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": CONNECT_TYPES[node.kind], "optional": node.optional}
    if node.name:  # an element's or a key's does no harm
        found["field"] = node.name
    if node.kind in CONNECT_NAMES:
        found["name"] = CONNECT_NAMES[node.kind]
        found["version"] = 1
    if node.mean:
        found["name"] = node.mean
        found["version"] = 1
    match node.kind:
        case "struct":
            found["fields"] = [_connect(n, drawn) for n in node.inner]
        case "list":
            found["items"] = _connect(node.inner[0], drawn)
        case "map":
            found["keys"], found["values"] = (_connect(n, drawn) for n in node.inner)
            drawn |= {"envelope map of other keys"} if is_paired(node) else set()
        case "decimal":
            found["parameters"] = {"scale": str(node.scale), "connect.decimal.precision": str(node.size)}
    if node.default is not None:
        found["default"] = payload(node, node.default)
        drawn.add("envelope default" + (" of an optional field" if node.optional else ""))
    return found


ENTRIES = 1
"""The size of a map whose entries are objects in JSON."""


def is_paired(node: Node) -> bool:
    return node.inner[0].kind != "string"


def envelope(schema: str, node: Node) -> Callable[[Any], bytes]:
    """Makes values with their schema in front."""

    def encode(value: Any) -> bytes:
        text = json.dumps(payload(node, value), separators=(",", ":"), ensure_ascii=False)
        return f'{{"schema":{schema},"payload":{text}}}'.encode()

    return encode


def payload(node: Node, value: Any) -> Any:
    if value is None:
        return None
    value = bare(value)
    match node.kind:
        case "struct":
            return {
                n.name: payload(n, value[n.name]) for n in node.inner if value[n.name] is not None or not n.form & 8
            }
        case "list":
            return [payload(node.inner[0], item) for item in value]
        case "one-of":
            return value.written
        case "json":
            return json.loads(json.dumps(value, default=float))
        case "map" if is_paired(node) and node.size == ENTRIES:
            return [{"key": payload(node.inner[0], k), "value": payload(node.inner[1], v)} for k, v in value]
        case "map" if is_paired(node):
            return [[payload(node.inner[0], k), payload(node.inner[1], v)] for k, v in value]
        case "map":
            return {k: payload(node.inner[1], v) for k, v in value}
    match value:
        case Digits():
            return base64.b64encode(unscaled(value, node.scale)).decode()
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        case float():
            return float(value)
    return on_wire(node, value)
