"""JSON with a JSON Schema from a schema registry (Confluent's wire format)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from calving.converters import typed_json
from calving.converters.extent import Extent
from calving.converters.interface import Converter, Decoded, stage
from calving.converters.options import flag
from calving.converters.schemas import BySchema, References, SchemaReader, SchemaRegistry, by_schema, framed
from calving.converters.typed_json import Declared, Form, Read, declare, json_value
from calving.model.record_path import Limits
from calving.records.cells import Together
from calving.records.fields import Projection
from calving.records.inferred import JSON
from calving.records.semantics import plain_type

_UNION, _NUMBERED_UNION = "io.confluent.connect.json.OneOf.field.", "connect_union_field_"
Above = tuple[tuple[int, str], ...]


class JsonSchemaConverter(Converter):
    """Decodes JSON with a JSON Schema. Properties become columns with their names. A property that is not required is
    optional: if it is absent, it is null, or has its default.

    Types are checked. Constraints (such as ``minimum`` and ``pattern``) are not checked, as in Kafka Connect by
    default.
    """

    def __init__(self, options: Mapping[str, str], *, is_key: bool, limits: Limits | None = None) -> None:
        self._stage = stage(is_key)
        self._limits = limits or Limits()
        numbered = flag(options, "generalized.sum.type.support", False, is_key=is_key)
        self._union = _NUMBERED_UNION if numbered else _UNION
        self._registry = SchemaRegistry(options, is_key=is_key)
        self._readers = BySchema(self._reader)

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        together = Together(self._limits.cells, len(values))
        return by_schema(values, self._stage, framed, self._readers.of, "JSON Schema {}".format, together)

    def _reader(self, number: int) -> SchemaReader:
        schema = self._registry.schema(number)
        others: dict[str, Any] = {}
        self._refer(schema.references or (), others, References(self._registry))
        root = json.loads(schema.schema_str)
        extent = Extent(self._limits)
        declared = _Shapes(others, self._union, extent).declared(root, root)
        return SchemaReader(
            declared.type, partial(_load, declared.read), extent.cells, extent.size(len(schema.schema_str))
        )

    def _refer(self, references: Iterable[Any], found: dict[str, Any], followed: References) -> None:
        for reference in references:
            if reference.name not in found:
                with followed.into(reference) as schema:
                    found[reference.name] = json.loads(schema.schema_str)
                    self._refer(schema.references or (), found, followed)


def _load(read: Read, body: bytes) -> Any:
    return read(json_value(body.decode()))


class _Shapes:
    """Converts a schema to a column type by Kafka Connect's rules. ``others``: the referenced documents, by name.
    ``extent`` bounds the column.
    """

    def __init__(self, others: Mapping[str, Any], union: str, extent: Extent) -> None:
        self._others, self._union_name, self._extent = others, union, extent

    def declared(self, schema: Any, root: Any, above: Above = (), nullable: bool = False) -> Declared:
        """The declared type of a schema. ``root``: the document that contains the schema. ``above``: the references
        that lead to it.

        :raises ValueError: no table can hold the schema's values, or the schema has too many columns or levels.
        """
        if schema is True or schema == {}:
            self._extent.column()
            return declare(Form(JSON, typed_json.json_text), True, self._extent.cells)
        if not isinstance(schema, dict):
            raise ValueError(f"{typed_json.shown(schema)} is not a schema that a value can have")
        if "$ref" in schema:
            target, root, key = self._referred(schema["$ref"], root)
            if key in above:
                raise ValueError(f"the schema contains itself ({schema['$ref']}): a table cannot")
            return self.declared(target, root, (*above, key), nullable)
        if "allOf" in schema:
            merged, root, above = self._merged(schema, root, above)
            return self.declared(merged, root, above, nullable)
        branches = _branches(schema)
        real = [branch for branch in branches if not _is_null(branch)]
        nullable = nullable or len(real) < len(branches)
        if len(real) == 1 and real[0] is not schema:
            inner = real[0]
            if "default" in schema and isinstance(inner, dict):
                inner = {**inner, "default": schema["default"]}
            return self.declared(inner, root, above, nullable)
        self._extent.column()
        if not real:
            return declare(Form(pa.null(), _nothing), True, self._extent.cells)
        form = self._union(real, root, above) if len(real) > 1 else self._type(schema, root, above)
        return declare(form, nullable, self._extent.cells, schema.get("default"))

    def _referred(self, reference: str, root: Any) -> tuple[Any, Any, tuple[int, str]]:
        """The schema to which a reference leads, the document that contains it, and a key that identifies it."""
        name, _, pointer = reference.partition("#")
        if name and name != root.get("$id"):
            if name not in self._others:
                raise ValueError(f"$ref '{reference}': the schema has no reference of the name '{name}'")
            root = self._others[name]
        node = root
        for part in filter(None, unquote(pointer).split("/")):
            step = part.replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(step)] if isinstance(node, list) else node[step]
            except (KeyError, IndexError, ValueError, TypeError) as error:
                raise ValueError(f"$ref '{reference}' refers to nothing") from error
        return node, root, (id(root), pointer)

    def _merged(self, schema: Mapping[str, Any], root: Any, above: Above) -> tuple[Any, Any, Above]:
        """One schema that combines all parts of ``allOf``."""
        merged: dict[str, Any] = {name: item for name, item in schema.items() if name != "allOf"}
        properties, required = dict(schema.get("properties", {})), list(schema.get("required", ()))
        below: dict[tuple[int, str], None] = {}
        for part in schema["allOf"]:
            self._extent.column()
            home, way = root, above
            while isinstance(part, dict) and "$ref" in part:
                part, home, key = self._referred(part["$ref"], home)
                if key in way:
                    raise ValueError("the schema contains itself: a table cannot")
                way = (*way, key)
            if not isinstance(part, dict):
                continue
            if "allOf" in part:
                part, home, way = self._merged(part, home, way)
            below |= dict.fromkeys(way)
            if home is not root:
                raise ValueError("allOf with parts of other documents is not supported")
            self._extent.names(len(part) + len(part.get("properties", ())) + len(part.get("required", ())))
            properties |= part.get("properties", {})
            required += part.get("required", ())
            merged |= part
        if properties:
            merged |= {"properties": properties, "required": required}
        return merged, root, (*{**dict.fromkeys(above), **below},)

    def _type(self, schema: Mapping[str, Any], root: Any, above: Above) -> Form:
        kind, meant, title = _kind(schema), schema.get("connect.type"), str(schema.get("title"))
        match kind:
            case "object" if meant == "map" or "properties" in schema:
                with self._extent.level():
                    return self._object_form(schema, root, above)
            case "array":
                with self._extent.level():
                    return self._array_form(schema, root, above)
            case "number" | "integer" | "string" if meant == "bytes" and title == typed_json.DECIMAL:
                return typed_json.connect_decimal(schema.get("connect.parameters") or {})
        form = typed_json.LOGICALS.get((str(meant), title)) or _TYPES.get((kind, meant)) or _TYPES.get((kind, None))
        if form is None:
            raise ValueError(f"'{kind}' is not a type of JSON Schema")
        return typed_json.named(form, title)

    def _object_form(self, schema: Mapping[str, Any], root: Any, above: Above) -> Form:
        if schema.get("connect.type") == "map":
            return typed_json.mapping(
                self.declared(schema.get("additionalProperties", True), root, above), self._extent.cells
            )
        properties = schema["properties"]
        required = {name for name in schema.get("required", ()) if isinstance(name, str)}
        fields = [
            (name, self.declared(item, root, above, nullable=name not in required))
            for name, item in sorted(properties.items(), key=_connect_index(len(properties)))
        ]
        return typed_json.named(typed_json.struct(fields), schema.get("title"))

    def _array_form(self, schema: Mapping[str, Any], root: Any, above: Above) -> Form:
        if schema.get("connect.type") == "map":
            entry = schema["items"]["properties"]
            key, value = (self.declared(entry[name], root, above) for name in ("key", "value"))
            return typed_json.pairs(key, value, _entry, self._extent.cells)
        if not isinstance(schema.get("items"), dict):
            raise ValueError("an array whose items have no schema of their own")
        return typed_json.array(self.declared(schema["items"], root, above), self._extent.cells)

    def _union(self, branches: Sequence[Any], root: Any, above: Above) -> Form:
        """A struct with a field for each branch. A value sets the field of the branch that it fits, by Connect's
        rules.
        """
        with self._extent.level():
            fields = [
                (f"{self._union_name}{i}", self.declared(branch, root, above, nullable=True))
                for i, branch in enumerate(branches)
            ]

        def read(value: Any) -> dict[str, Any]:
            best, most = None, 0
            for name, declared in fields:
                if _is_plainly(declared.type, value):
                    return {name: declared.read(value)}
                common = _common_fields(declared.type, value)
                if common > most:
                    best, most = (name, declared), common
            if best is None:
                raise ValueError(f"{typed_json.shown(value)} is of no branch of its oneOf or anyOf")
            return {best[0]: best[1].read(value)}

        return Form(pa.struct([declared.field(name) for name, declared in fields]), read)


def _branches(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas that a value may have, one or several."""
    for word in ("oneOf", "anyOf"):
        if word in schema:
            return list(schema[word])
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return [{**schema, "type": kind} for kind in kinds]
    return [schema]


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _kind(schema: Mapping[str, Any]) -> str:
    """The type of a schema, even if the schema does not name it."""
    if "type" in schema:
        return str(schema["type"])
    for word, kind in (("properties", "object"), ("items", "array"), ("enum", "string"), ("const", "string")):
        if word in schema:
            return kind
    return "anything"


def _connect_index(count: int) -> Any:
    """The sort key for properties: first those with an index of Connect, by index; then the others, in their order."""

    def place(item: tuple[str, Any]) -> int:
        index = item[1].get("connect.index") if isinstance(item[1], dict) else None
        return index if isinstance(index, int) else count

    return place


def _is_plainly(kind: pa.DataType, value: Any) -> bool:
    """Whether a value has a branch's type, without looking inside the value."""
    t, kind = pa.types, plain_type(kind)
    match typed_json.narrowed(value):
        case bool():
            plainly = t.is_boolean(kind)
        case int():
            plainly = t.is_integer(kind) or t.is_temporal(kind) or t.is_floating(kind) or t.is_decimal(kind)
        case str():
            plainly = t.is_string(kind) or t.is_binary(kind) or t.is_decimal(kind)
        case list():
            plainly = t.is_list(kind) or t.is_map(kind)
        case dict():
            plainly = t.is_map(kind)
        case _:
            plainly = t.is_floating(kind) or t.is_decimal(kind)
    return bool(plainly or kind == JSON)


def _common_fields(kind: pa.DataType, value: Any) -> int:
    kind = plain_type(kind)
    if not pa.types.is_struct(kind) or not isinstance(value, dict):
        return 0
    return sum(1 + _common_fields(field.type, value[field.name]) for field in kind if field.name in value)


def _entry(entry: Any) -> tuple[Any, Any]:
    if not isinstance(entry, dict) or entry.keys() != {"key", "value"}:
        raise ValueError(f"{typed_json.shown(entry)} is not an entry of key and value")
    return entry["key"], entry["value"]


def _object(value: Any) -> str:
    if not isinstance(value, dict):
        raise ValueError(f"{typed_json.shown(value)} is not an object")
    return typed_json.json_text(value)


def _nothing(value: Any) -> Any:
    raise ValueError(f"{typed_json.shown(value)} is not null")


_TYPES: Mapping[tuple[str, str | None], Form] = {
    ("boolean", None): Form(pa.bool_(), typed_json.boolean),
    ("integer", None): Form(pa.int64(), typed_json.whole(64)),
    ("number", None): Form(pa.float64(), typed_json.double),
    ("string", None): Form(pa.string(), typed_json.text),
    ("string", "bytes"): Form(pa.binary(), typed_json.binary),
    ("object", None): Form(JSON, _object),
    ("anything", None): Form(JSON, typed_json.json_text),
    **{
        ("integer", f"int{bits}"): Form(kind, typed_json.whole(bits))
        for bits, kind in ((8, pa.int8()), (16, pa.int16()), (32, pa.int32()), (64, pa.int64()))
    },
    **{
        (kind, name): found
        for kind in ("number", "integer")
        for name, found in (
            ("float32", Form(pa.float32(), typed_json.float32)),
            ("float64", Form(pa.float64(), typed_json.double)),
        )
    },
}
"""By type and ``connect.type``."""
