"""JSON with Kafka Connect's envelope: ``{"schema": ..., "payload": ...}`` (Connect's JsonConverter, schemas.enable).

Producers write the same schema in front of every payload, byte for byte, so it is parsed once for each way it is
written.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from calving.data.conversion.kinds import JSON
from calving.data.converters import building
from calving.data.converters.building import Reading, collect
from calving.data.converters.interface import Converter, Decoded, Wish, stage
from calving.data.records import Bad, load_json

_LOGICAL = "org.apache.kafka.connect.data."
_SCHEMAS_AT_MOST = 1_000


class EnvelopeConverter(Converter):
    """All types and logical types of Connect. A schema of null is schemaless: its payloads are JSON text."""

    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None:
        self._stage = stage(is_key)
        self._readings: dict[bytes, Reading] = {}

    def decode(self, values: Sequence[bytes], wish: Wish | None) -> Decoded:
        decoded = Decoded()
        groups: dict[bytes, list[int]] = {}
        rest: list[int] = []
        last = next(iter(self._readings), b"")
        for i, value in enumerate(values):
            if last and value.startswith(last):
                groups.setdefault(last, []).append(i)
                continue
            prefix = next((p for p in self._readings if value.startswith(p)), None) or self._learn(value)
            if prefix is None:
                rest.append(i)
            else:
                last = prefix
                groups.setdefault(prefix, []).append(i)
        for prefix, places in groups.items():
            size = len(prefix)
            payloads = [values[i][size:] for i in places]
            collect(decoded, self._readings[prefix], payloads, places, self._stage, _payload)
        for i in rest:
            self._whole(values[i], i, decoded)
        return decoded

    def _learn(self, value: bytes) -> bytes | None:
        """The bytes up to the payload, if the schema comes first and can be read."""
        if not value.startswith(b'{"schema":') or len(self._readings) >= _SCHEMAS_AT_MOST:
            return None
        try:
            text = value.decode()
            schema, end = json.JSONDecoder().raw_decode(text, len('{"schema":'))
            joint = ',"payload":'
            if not text.startswith(joint, end):
                return None
            reading = reading_of(schema)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            return None
        prefix = text[: end + len(joint)].encode()
        self._readings[prefix] = reading
        return prefix

    def _whole(self, value: bytes, place: int, decoded: Decoded) -> None:
        try:
            envelope = load_json(value.decode(), _Fraction)
            if envelope is None:
                collect(decoded, Reading(pa.null()), [None], [place], self._stage)
                return
            if not isinstance(envelope, dict) or set(envelope) != {"schema", "payload"}:
                raise ValueError("not an envelope of schema and payload; is value.converter.schemas.enable = false?")
            reading = reading_of(envelope["schema"])
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            decoded.bad.append(Bad(place, self._stage, type(error).__name__, f"not a Connect envelope: {error}"))
            return
        collect(decoded, reading, [envelope["payload"]], [place], self._stage)


class _Fraction(float):
    """A fraction that still knows its text, for decimals that come as numbers."""

    text: str

    def __new__(cls, text: str) -> _Fraction:
        made = super().__new__(cls, text)
        made.text = text
        return made


def _payload(raw: bytes) -> Any:
    if not raw.endswith(b"}"):
        raw = raw.rstrip()
        if not raw.endswith(b"}"):
            raise ValueError("not a Connect envelope: it does not end after its payload")
    return load_json(raw[:-1].decode(), _Fraction)


def reading_of(schema: Any) -> Reading:
    """How payloads of a Connect schema are read. :raises ValueError: it is none."""
    if schema is None:
        return Reading(JSON, lambda value: json.dumps(value))
    kind, nullable = schema["type"], bool(schema.get("optional", False))
    if "default" in schema:
        nullable = True  # a default stands for what is missing; a null is taken as one
    logical = str(schema.get("name") or "").removeprefix(_LOGICAL)
    match kind:
        case "struct":
            return building.struct([(f["field"], reading_of(f)) for f in schema["fields"]], nullable)
        case "array":
            return building.array(reading_of(schema["items"]), nullable)
        case "map":
            return building.mapping(reading_of(schema["keys"]), reading_of(schema["values"]), nullable)
        case "bytes" if logical == "Decimal":
            parameters = schema.get("parameters") or {}
            precision = int(parameters.get("connect.decimal.precision", 38))
            scale = int(parameters.get("scale", 0))
            return Reading(pa.decimal128(precision, scale), lambda value: _decimal(value, scale), nullable)
        case "bytes":
            return Reading(pa.binary(), lambda value: base64.b64decode(value, validate=True), nullable)
        case "string" if schema.get("name") == "uuid":
            return Reading(pa.string(), _text, nullable)
    found = _LOGICALS.get((kind, logical)) or _PRIMITIVES.get(kind)
    if found is None:
        raise ValueError(f"'{kind}' is not a Connect type")
    return Reading(found.type, found.convert, nullable)


def _decimal(value: Any, scale: int) -> Decimal:
    if isinstance(value, str):
        unscaled = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
        return Decimal(unscaled).scaleb(-scale)
    return Decimal(value.text if isinstance(value, _Fraction) else value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _double(value: Any) -> float:
    """Connect writes what JSON has no number for as text."""
    if isinstance(value, bool):
        raise ValueError("a boolean is not a number")
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is not a boolean")
    return value


_PRIMITIVES: Mapping[str, Reading] = {
    "boolean": Reading(pa.bool_(), _boolean),
    "int8": Reading(pa.int8()),
    "int16": Reading(pa.int16()),
    "int32": Reading(pa.int32()),
    "int64": Reading(pa.int64()),
    "float": Reading(pa.float32(), _double),
    "double": Reading(pa.float64(), _double),
    "string": Reading(pa.string()),
}
_LOGICALS: Mapping[tuple[str, str], Reading] = {
    ("int32", "Date"): Reading(pa.date32()),
    ("int32", "Time"): Reading(pa.time32("ms")),
    ("int64", "Timestamp"): Reading(pa.timestamp("ms", "UTC")),
}
