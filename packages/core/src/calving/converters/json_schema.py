"""JSON with a JSON Schema from a schema registry (Confluent's wire format)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from calving.converters import typed_json
from calving.converters.extent import Extent
from calving.converters.interface import Converter, Decoded, stage
from calving.converters.json_composition import (
    Composition,
    Documents,
    SchemaNode,
    alternatives,
    is_composed,
    is_null,
    type_branches,
)
from calving.converters.options import flag
from calving.converters.schemas import BySchema, References, SchemaReader, SchemaRegistry, by_schema, framed
from calving.converters.typed_json import Declared, Form, Read, declare, json_value
from calving.model.record_path import Limits
from calving.records.cells import Together
from calving.records.fields import Projection
from calving.records.inferred import JSON
from calving.records.semantics import plain_type

_UNION, _NUMBERED_UNION = "io.confluent.connect.json.OneOf.field.", "connect_union_field_"


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
        declared = _Shapes(Documents(root, others), self._union, extent).declared(SchemaNode(root, root))
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
    """Converts a schema to a column type by Kafka Connect's rules. ``extent`` bounds the column."""

    def __init__(self, documents: Documents, union: str, extent: Extent) -> None:
        self._composition = Composition(documents, extent)
        self._union_name, self._extent = union, extent

    def declared(self, place: SchemaNode, nullable: bool = False) -> Declared:
        """The declared type of a schema.

        :raises ValueError: no table can hold the schema's values, or the schema has too many columns or levels.
        """
        schema = place.schema
        if schema is True or schema == {}:
            self._extent.column()
            return declare(Form(JSON, typed_json.json_text), True, self._extent.cells)
        if not isinstance(schema, dict):
            raise ValueError(f"{typed_json.shown(schema)} is not a schema that a value can have")
        if is_composed(schema) or "$ref" in schema:
            return self.declared(self._composition.composed(place), nullable)
        branches = type_branches(schema)
        real = [branch for branch in branches if not is_null(branch)]
        nullable = nullable or len(real) < len(branches) or any(map(is_null, alternatives(schema)))
        if len(real) == 1 and real[0] is not schema:
            inner = place.part(real[0])
            if "default" in schema and isinstance(inner.schema, dict):
                inner = replace(inner, schema={**inner.schema, "default": schema["default"]})
            return self.declared(inner, nullable)
        self._extent.column()
        if not real:
            return declare(Form(pa.null(), _nothing), True, self._extent.cells)
        form = self._union([place.part(branch) for branch in real]) if len(real) > 1 else self._type(place)
        return declare(form, nullable, self._extent.cells, schema.get("default"))

    def _type(self, place: SchemaNode) -> Form:
        schema = place.schema
        kind, meant, title = _kind(schema), schema.get("connect.type"), str(schema.get("title"))
        match kind:
            case "object" if meant == "map" or "properties" in schema:
                with self._extent.level():
                    return self._object_form(place)
            case "array":
                with self._extent.level():
                    return self._array_form(place)
            case "number" | "integer" | "string" if meant == "bytes" and title == typed_json.DECIMAL:
                return typed_json.connect_decimal(schema.get("connect.parameters") or {})
        form = typed_json.LOGICALS.get((str(meant), title)) or _TYPES.get((kind, meant)) or _TYPES.get((kind, None))
        if form is None:
            raise ValueError(f"'{kind}' is not a type of JSON Schema")
        return typed_json.named(form, title)

    def _object_form(self, place: SchemaNode) -> Form:
        schema = place.schema
        if schema.get("connect.type") == "map":
            value = self.declared(place.part(schema.get("additionalProperties", True)))
            return typed_json.mapping(value, self._extent.cells)
        properties = {name: place.part(item) for name, item in schema["properties"].items()}
        required = {name for name in schema.get("required", ()) if isinstance(name, str)}
        fields = [
            (name, self.declared(item, nullable=name not in required))
            for name, item in sorted(properties.items(), key=_connect_index(len(properties)))
        ]
        optional = self._composition.optional_properties(place)
        fields += [(name, self._any(items)) for name, items in optional.items() if name not in properties]
        return typed_json.named(typed_json.struct(fields), schema.get("title"))

    def _any(self, places: Sequence[SchemaNode]) -> Declared:
        """The declared type of a property that has a schema in several branches. A default counts only in its own
        branch, so it is not used.
        """
        places = [replace(p, schema=_without_default(p.schema)) for p in places]
        declared = [self.declared(place, nullable=True) for place in places]
        if all(each.type == declared[0].type for each in declared):
            return declared[0]
        return declare(self._union(places), True, self._extent.cells)

    def _array_form(self, place: SchemaNode) -> Form:
        items = place.part(place.schema.get("items"))
        if not isinstance(items.schema, dict):
            raise ValueError("an array whose items have no schema of their own")
        if place.schema.get("connect.type") == "map":
            entry = items.schema["properties"]
            key, value = (self.declared(items.part(entry[name])) for name in ("key", "value"))
            return typed_json.pairs(key, value, _entry, self._extent.cells)
        return typed_json.array(self.declared(items), self._extent.cells)

    def _union(self, branches: Sequence[SchemaNode]) -> Form:
        """A struct with a field for each branch. A value sets the field of the branch that it fits, by Connect's
        rules.
        """
        with self._extent.level():
            fields = [
                (f"{self._union_name}{i}", self.declared(branch, nullable=True)) for i, branch in enumerate(branches)
            ]

        def read(value: Any) -> dict[str, Any]:
            best, most = None, 0
            for name, declared in fields:
                if _is_plainly(declared.form, value):
                    return {name: declared.read(value)}
                common = _common_fields(declared.type, value)
                if common > most:
                    best, most = (name, declared), common
            if best is None:
                raise ValueError(f"{typed_json.shown(value)} is of no branch of its oneOf or anyOf")
            return {best[0]: best[1].read(value)}

        return Form(pa.struct([declared.field(name) for name, declared in fields]), read)


def _without_default(schema: Any) -> Any:
    return {name: item for name, item in schema.items() if name != "default"} if isinstance(schema, dict) else schema


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

    def place(item: tuple[str, SchemaNode]) -> int:
        schema = item[1].schema
        index = schema.get("connect.index") if isinstance(schema, dict) else None
        return index if isinstance(index, int) else count

    return place


def _is_plainly(form: Form, value: Any) -> bool:
    """Whether a value has a branch's type, without looking deep into the value. As in Connect, an object has the type
    of a struct that names all its fields.
    """
    kind, value = plain_type(form.type), typed_json.narrowed(value)
    if kind == JSON:
        return form.read is not _object or isinstance(value, dict)
    if isinstance(value, dict) and isinstance(kind, pa.StructType):
        return _has_fields_of(kind, value)
    return any(fits(kind) for fits in _FITTING[type(value)])


_FITTING: Mapping[type, Sequence[Callable[[pa.DataType], bool]]] = {
    bool: (pa.types.is_boolean,),
    int: (pa.types.is_integer, pa.types.is_temporal, pa.types.is_floating, pa.types.is_decimal),
    Decimal: (pa.types.is_floating, pa.types.is_decimal),
    str: (pa.types.is_string, pa.types.is_binary, pa.types.is_decimal),
    list: (pa.types.is_list, pa.types.is_map),
    dict: (pa.types.is_map,),
}
"""The types of columns for the values of ``json_value``."""


def _has_fields_of(kind: pa.StructType, value: Mapping[str, Any]) -> bool:
    names = {field.name for field in kind}
    return value.keys() <= names and all(field.nullable or field.name in value for field in kind)


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
