"""JSON with Kafka Connect's envelope: ``{"schema": ..., "payload": ...}`` (Connect's JsonConverter, schemas.enable).

Producers write the same schema around every payload, byte for byte. So the bytes before and after a payload are parsed
only once for each spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from calving.converters import typed_json
from calving.converters.building import bad, collect, misfit
from calving.converters.declared_defaults import told
from calving.converters.interface import Converter, Decoded, flag, stage
from calving.converters.native import Frame, decode_framed
from calving.converters.native_typed import payload_decoder
from calving.converters.references import check_text
from calving.converters.schema_bounds import MOST, Extent, SchemaCache
from calving.converters.schemas import bare
from calving.converters.typed_json import STRUCTURE, Declared, Form, json_value
from calving.errors import ConfigError
from calving.model.record_path import Limits
from calving.records.cells import Cells, Together
from calving.records.failures import pass_on
from calving.records.fields import Projection
from calving.records.jsontext import check_start, parse
from calving.records.values import Values

_AT_MOST = 1_000
_BLANKS = " \t\n\r"


class _Schema:
    """Reads payloads of one schema. Without a schema, ``declared`` is None, and ``parse`` is that of schemaless
    JSON. ``refused``: why no value of the schema can be read.
    """

    def __init__(
        self,
        declared: Declared | None,
        cells: Cells,
        parse: Callable[[str], Any] = json_value,
        size: int = 0,
        refused: Exception | None = None,
    ) -> None:
        self.declared, self.cells, self.parse, self.size, self._refused = declared, cells, parse, size, refused
        self.decoder = None if declared is None else payload_decoder(declared.form, cells.most)

    def check(self) -> None:
        """:raises Exception: the schema is refused. That took long once, and is not tried again."""
        if self._refused is not None:
            raise copy(self._refused)


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
        nesting = self._limits.nesting
        self._schemaless = _Schema(None, Cells(self._limits.cells), lambda text: parse(text.encode(), nesting))
        self._defaults = flag(options, "replace.null.with.default", is_key=is_key)
        self._schemas: SchemaCache[str, _Schema] = SchemaCache()
        self._spellings: list[_Spelling] = []
        self._spelled = 0
        """Bytes of memory of the spellings and their schemas."""
        self._last: _Spelling | None = None
        self._fixed: _Schema | None = None
        if content := options.get("schema.content"):
            try:
                self._fixed = self._schema(content)
                self._fixed.check()
            except Exception as error:
                which = "key.converter" if is_key else "value.converter"
                raise ConfigError(f"{which}.schema.content is not a Connect schema: {error}") from error

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        return decode_framed(values, self._frame, self._decode, self._limits.cells)

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

    def _decode(self, values: Sequence[bytes], together: Together) -> Decoded:
        decoded = Decoded()
        groups: dict[_Schema, tuple[list[int], list[Any]]] = {}
        for i, value in enumerate(values):
            try:
                schema, payload = self._open(value)
                schema.check()
            except Exception as error:  # of any library
                pass_on(error)
                decoded.bad.append(bad(i, self._stage, error, "not a Connect envelope: "))
                continue
            group = groups.get(schema)
            if group is None:
                group = groups[schema] = [], []
            group[0].append(i)
            group[1].append(payload)
        for schema, (places, payloads) in groups.items():
            if schema.declared is None:
                decoded.values.append(Values(payloads, False, places))
            else:
                declared = schema.declared
                collect(
                    decoded=decoded,
                    kind=declared.type,
                    values=payloads,
                    places=places,
                    stage=self._stage,
                    load=declared.read,
                    cells=schema.cells,
                    together=together,
                )
        return decoded

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
        if (spelling := self._spelling(value)) is not None:
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
        self._learn(_Spelling(text[:start].encode(), text[end:].encode(), schema))
        return schema, payload

    def _learn(self, spelling: _Spelling) -> None:
        size = len(spelling.head) + len(spelling.tail) + spelling.schema.size
        if len(self._spellings) >= _AT_MOST or self._spelled + size > MOST:
            self._spellings.clear()
            self._spelled = 0
        self._spellings.append(spelling)
        self._spelled += size

    def _schema(self, text: str) -> _Schema:
        known = self._schemas.get(text)
        if known is None:
            try:
                known = self._made(text)
            except Exception as error:  # of any library
                pass_on(error)
                known = _Schema(None, Cells(self._limits.cells), size=len(text), refused=bare(error))
            self._schemas.put(text, known)
        return known

    def _made(self, text: str) -> _Schema:
        check_text(len(text), self._limits)
        schema, extent = json_value(text), Extent(self._limits)
        if schema is None:
            return self._schemaless
        declared = _declared(schema, self._defaults, extent)
        return _Schema(declared, extent.cells, size=extent.size(len(text)))


def _members(text: str) -> dict[str, tuple[int, int]]:
    """The places of the values of an object's fields. Of several fields with one name, the last counts.

    :raises ValueError, RecursionError: the text is not a JSON object.
    """
    bounds: dict[str, tuple[int, int]] = {}
    at = _after(text, _skip(text, 0), "{")
    while True:
        name, at = STRUCTURE.raw_decode(text, at)
        if not isinstance(name, str):
            raise ValueError("it is not a JSON object")
        start = _after(text, _skip(text, at), ":")
        _, end = STRUCTURE.raw_decode(text, start)
        bounds[name] = start, end
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            break
        at = _after(text, at, ",")
    if _skip(text, at + 1) != len(text):
        raise ValueError("there is more behind the object")
    return bounds


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
    except KeyError as error:
        kind = typed_json.shown(schema["type"])
        raise ValueError(f"{kind} is not described as Connect does: {error} is missing") from error
    except (TypeError, AttributeError) as error:  # a part of it is of another type
        raise ValueError(f"{typed_json.shown(schema)} is not described as Connect does") from error
    default, nullable = schema.get("default"), schema.get("optional") is True
    if defaults or default is None:
        return typed_json.declare(form, nullable, extent.cells, default)
    return told(typed_json.declare(form, nullable, extent.cells), default)


def _type(schema: Mapping[str, Any], defaults: bool, extent: Extent) -> Form:
    kind, name = schema["type"], str(schema.get("name"))
    match kind:
        case "struct" | "array" | "map":
            with extent.level():
                return _nested(schema, lambda part: _declared(part, defaults, extent), extent)
        case "bytes" if name == typed_json.DECIMAL:
            return typed_json.connect_decimal(schema.get("parameters") or {})
    form = typed_json.LOGICALS.get((kind, name)) or _PRIMITIVES.get(kind)
    if form is None:
        raise ValueError(f"{typed_json.shown(kind)} is not a Connect type")
    return typed_json.named(form, name)


def _nested(schema: Mapping[str, Any], declared: Callable[[Any], Declared], extent: Extent) -> Form:
    if schema["type"] == "struct":
        extent.check(len(schema["fields"]))
        form = typed_json.struct([(field["field"], _of_field(field, declared)) for field in schema["fields"]])
        return typed_json.named(form, str(schema.get("name")))
    if schema["type"] == "array":
        return typed_json.array(declared(schema["items"]), extent.cells)
    key, value = declared(schema["keys"]), declared(schema["values"])
    if schema["keys"]["type"] == "string":
        return typed_json.mapping(value, extent.cells)
    return typed_json.pairs(key, value, _pair, extent.cells)


def _of_field(field: Mapping[str, Any], declared: Callable[[Any], Declared]) -> Declared:
    """The declared type of a struct's field.

    :raises ValueError: as ``declared``; the error names the field.
    """
    name = field["field"]
    if type(name) is not str:
        raise ValueError(f"a field whose name is {typed_json.shown(name)}")
    try:
        return declared(field)
    except ValueError as error:
        raise misfit(name, error) from error


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
