"""JSON with Kafka Connect's envelope: ``{"schema": ..., "payload": ...}`` (Connect's JsonConverter, schemas.enable).

Producers write the same schema around every payload, byte for byte. So the bytes before and after a payload are parsed
only once for each spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from calving.converters import typed_json
from calving.converters.building import bad, collect
from calving.converters.extent import Extent
from calving.converters.interface import Converter, Decoded, stage
from calving.converters.json_columns import Reader
from calving.converters.native import Decoder, Frame, decode_framed
from calving.converters.native_typed import payload_decoder
from calving.converters.options import flag
from calving.converters.typed_json import STRUCTURE, Declared, Form, json_value
from calving.errors import ConfigError
from calving.model.record_path import Limits
from calving.records.fields import Projection
from calving.records.jsontext import check_start, parse
from calving.records.values import Values

_AT_MOST = 1_000
_BLANKS = " \t\n\r"


class _Schema:
    """Reads payloads of one schema. Without a schema, ``declared`` is None, and ``parse`` is that of schemaless
    JSON.
    """

    def __init__(self, declared: Declared | None, parse: Callable[[str], Any] = json_value) -> None:
        self.declared, self.parse = declared, parse
        self._reader: Reader | None = None
        self.decoder: Decoder | None = None
        if declared is not None:
            self.decoder = payload_decoder(declared.form)
            with suppress(ValueError):
                self._reader = Reader(declared.form)
        self._resting = 0

    def read_many(self, payloads: Sequence[bytes]) -> Iterator[tuple[range, pa.Array | None]]:
        """Pieces of the payloads, with their rows; None if the payloads of a piece have to be read one by one."""
        reader, refused, pieces = self._reader, 0, 0
        if self._resting:
            reader, self._resting = None, self._resting - 1
        for at in range(0, len(payloads), _PIECE):
            piece = range(at, min(at + _PIECE, len(payloads)))
            rows = None if reader is None else reader.read(payloads[at : piece.stop])
            pieces += 1
            refused += rows is None
            yield piece, rows
        if reader is not None and refused * 2 > pieces:
            self._resting = _REST


_PIECE = 1_000
"""How many payloads are read at once."""
_REST = 4
"""If most pieces of a block had to be read one by one, this many later blocks are read so without a try."""


@dataclass(frozen=True, slots=True)
class _Spelling:
    """The bytes before and after the payload."""

    head: bytes
    tail: bytes
    schema: _Schema


class EnvelopeConverter(Converter):
    """Decodes all types and logical types of Connect. If the schema is null, the payload is schemaless JSON.

    A null becomes the default if the schema has a default (``replace.null.with.default``, as in Connect). A value that
    is not of its declared type, or beyond its range, makes a bad record.
    """

    def __init__(self, options: Mapping[str, str], *, is_key: bool, limits: Limits | None = None) -> None:
        self._stage = stage(is_key)
        self._limits = limits or Limits()
        self._schemaless = _Schema(None, lambda text: parse(text.encode(), self._limits.nesting))
        self._defaults = flag(options, "replace.null.with.default", True, is_key=is_key)
        self._schemas: dict[str, _Schema] = {}
        self._spellings: list[_Spelling] = []
        self._last: _Spelling | None = None
        self._fixed: _Schema | None = None
        if content := options.get("schema.content"):
            try:
                self._fixed = self._schema(content)
            except Exception as error:
                which = "key.converter" if is_key else "value.converter"
                raise ConfigError(f"{which}.schema.content is not a Connect schema: {error}") from error

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        return decode_framed(values, self._frame, self._decode)

    def _frame(self, value: bytes) -> Frame | None:
        """The frame of a value, and of other values of its spelling; None if they are read one by one, or if the value
        is bad.
        """
        if self._fixed is not None:
            spelling: _Spelling | None = _Spelling(b"", b"", self._fixed)
        else:
            spelling = self._spelling(value)
            if spelling is None:
                with suppress(Exception):  # whatever its error is, reading it alone reports it
                    self._open(value)
                spelling = self._spelling(value)
        if spelling is None or spelling.schema.decoder is None or spelling.schema.declared is None:
            return None
        return Frame(spelling.schema.decoder, spelling.schema.declared.type, spelling.head, spelling.tail)

    def _decode(self, values: Sequence[bytes]) -> Decoded:
        decoded = Decoded()
        rest = sorted(self._decode_many(values, decoded))
        groups: dict[_Schema, tuple[list[int], list[Any]]] = {}
        for i in rest:
            try:
                schema, payload = self._open(values[i])
            except Exception as error:  # whatever the error is, this value causes it
                decoded.bad.append(bad(i, self._stage, error, "not a Connect envelope: "))
                continue
            found = groups.get(schema)
            if found is None:
                found = groups[schema] = [], []
            found[0].append(i)
            found[1].append(payload)
        for schema, (places, payloads) in groups.items():
            if schema.declared is None:
                decoded.values.append(Values(payloads, False, places))
            else:
                collect(decoded, schema.declared.type, payloads, places, self._stage, schema.declared.read)
        return decoded

    def _decode_many(self, values: Sequence[bytes], decoded: Decoded) -> list[int]:
        """Decode values that can be read together, and return the indices of the others."""
        groups, rest = self._by_schema(values)
        for schema, (places, payloads) in groups.items():
            read: list[pa.Array] = []
            kept: list[int] = []
            for piece, rows in schema.read_many(payloads):
                here = places[piece.start : piece.stop]
                if rows is None:
                    rest += here
                else:
                    read.append(rows)
                    kept += here
            if read:
                column = read[0] if len(read) == 1 else pa.concat_arrays(read)
                decoded.values.append(Values(column, True, kept))
        return rest

    def _by_schema(
        self, values: Sequence[bytes]
    ) -> tuple[Mapping[_Schema, tuple[Sequence[int], Sequence[bytes]]], list[int]]:
        """Payloads whose surroundings are known, with their places, and the places of the other values."""
        if self._fixed is not None:
            return {self._fixed: (range(len(values)), values)}, []
        groups: dict[_Schema, tuple[list[int], list[bytes]]] = {}
        rest: list[int] = []
        for i, value in enumerate(values):
            spelling = self._spelling(value)
            if spelling is None:
                rest.append(i)
                continue
            found = groups.get(spelling.schema)
            if found is None:
                found = groups[spelling.schema] = [], []
            found[0].append(i)
            found[1].append(value[len(spelling.head) : len(value) - len(spelling.tail)])
        return groups, rest

    def _spelling(self, value: bytes) -> _Spelling | None:
        """The bytes around the value's payload, if this spelling is known."""
        last = self._last
        if last is None or not (value.startswith(last.head) and value.endswith(last.tail)):
            last = next((s for s in self._spellings if value.startswith(s.head) and value.endswith(s.tail)), None)
            self._last = last
        return last

    def _open(self, value: bytes) -> tuple[_Schema, Any]:
        """A value's schema, and its payload as JSON.

        :raises Exception: the value is no envelope.
        """
        if self._fixed is not None:
            return self._fixed, self._fixed.parse(value.decode())
        spelling = self._spelling(value)
        if spelling is not None:
            payload = value[len(spelling.head) : len(value) - len(spelling.tail)]
            with suppress(Exception):  # otherwise the payload ends elsewhere, or the value is bad: read it as a whole
                return spelling.schema, spelling.schema.parse(payload.decode())
        return self._read(value.decode())

    def _read(self, text: str) -> tuple[_Schema, Any]:
        check_start(text)
        if text.strip(_BLANKS) == "null":
            return self._schemaless, None
        members = _members(text)
        if members.keys() != {"schema", "payload"}:
            raise ValueError("it is not an object of schema and payload; is schemas.enable = false meant?")
        schema = self._schema(text[slice(*members["schema"])])
        start, end = members["payload"]
        payload = schema.parse(text[start:end])
        if len(self._spellings) >= _AT_MOST:
            self._spellings.clear()
        self._spellings.append(_Spelling(text[:start].encode(), text[end:].encode(), schema))
        return schema, payload

    def _schema(self, text: str) -> _Schema:
        found = self._schemas.get(text)
        if found is None:
            schema = json_value(text)
            made = (
                self._schemaless if schema is None else _Schema(_declared(schema, self._defaults, Extent(self._limits)))
            )
            if len(self._schemas) >= _AT_MOST:
                self._schemas.clear()
            found = self._schemas[text] = made
        return found


def _members(text: str) -> dict[str, tuple[int, int]]:
    """The places of the values of an object's fields. Of several fields with one name, the last counts.

    :raises ValueError, RecursionError: the text is not a JSON object.
    """
    found: dict[str, tuple[int, int]] = {}
    at = _after(text, _skip(text, 0), "{")
    while True:
        name, at = STRUCTURE.raw_decode(text, at)
        if not isinstance(name, str):
            raise ValueError("it is not a JSON object")
        start = _after(text, _skip(text, at), ":")
        _, end = STRUCTURE.raw_decode(text, start)
        found[name] = start, end
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            break
        at = _after(text, at, ",")
    if _skip(text, at + 1) != len(text):
        raise ValueError("there is more behind the object")
    return found


def _after(text: str, at: int, mark: str) -> int:
    """The start of the next token after ``mark``."""
    if text[at : at + 1] != mark:
        raise ValueError(f"it is not a JSON object: '{mark}' is missing at character {at}")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _declared(schema: Any, defaults: bool, extent: Extent) -> Declared:
    """The declared type of a Connect schema. ``defaults``: whether defaults replace nulls.

    :raises ValueError: the schema is no Connect schema, or has too many columns or levels.
    """
    extent.column()
    if not isinstance(schema, dict) or "type" not in schema:
        raise ValueError("a schema without a type")
    try:
        form = _type(schema, defaults, extent)
    except (KeyError, TypeError) as error:
        raise ValueError(f"'{schema['type']}' is not described as Connect does: {error}") from error
    default = schema.get("default") if defaults else None
    return typed_json.declare(form, schema.get("optional") is True, default)


def _type(schema: Mapping[str, Any], defaults: bool, extent: Extent) -> Form:
    kind, name = schema["type"], str(schema.get("name"))
    match kind:
        case "struct" | "array" | "map":
            with extent.level():
                return _nested(schema, lambda part: _declared(part, defaults, extent))
        case "bytes" if name == typed_json.DECIMAL:
            return typed_json.connect_decimal(schema.get("parameters") or {})
    found = typed_json.LOGICALS.get((kind, name)) or _PRIMITIVES.get(kind)
    if found is None:
        raise ValueError(f"'{kind}' is not a Connect type")
    return typed_json.named(found, name)


def _nested(schema: Mapping[str, Any], declared: Callable[[Any], Declared]) -> Form:
    if schema["type"] == "struct":
        form = typed_json.struct([(field["field"], declared(field)) for field in schema["fields"]])
        return typed_json.named(form, str(schema.get("name")))
    if schema["type"] == "array":
        return typed_json.array(declared(schema["items"]))
    key, value = declared(schema["keys"]), declared(schema["values"])
    if schema["keys"]["type"] == "string":
        return typed_json.mapping(value)
    return typed_json.pairs(key, value, _pair)


def _pair(entry: Any) -> tuple[Any, Any]:
    if type(entry) is not list or len(entry) != 2:
        raise ValueError(f"{typed_json.shown(entry)} is not a pair of key and value")
    return entry[0], entry[1]


_PRIMITIVES: Mapping[str, Form] = {
    "boolean": Form(pa.bool_(), typed_json.boolean),
    "int8": Form(pa.int8(), typed_json.whole(8)),
    "int16": Form(pa.int16(), typed_json.whole(16)),
    "int32": Form(pa.int32(), typed_json.whole(32)),
    "int64": Form(pa.int64(), typed_json.whole(64)),
    "float": Form(pa.float32(), typed_json.float32),
    "double": Form(pa.float64(), typed_json.double),
    "string": Form(pa.string(), typed_json.text),
    "bytes": Form(pa.binary(), typed_json.binary),
}
