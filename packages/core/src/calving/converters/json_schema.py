"""JSON with a JSON Schema from a schema registry (Confluent's wire format)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from calving.converters import typed_json
from calving.converters.declared_defaults import told
from calving.converters.interface import Converter, Decoded, flag, stage
from calving.converters.json_composition import Composition, alternatives, is_composed, type_branches
from calving.converters.json_references import Documents, SchemaNode, is_reference
from calving.converters.json_unions import Branch, Union, count_values, fit, object_text
from calving.converters.references import References
from calving.converters.schema_bounds import Extent
from calving.converters.schemas import BySchema, SchemaReader, SchemaRegistry, by_schema, framed
from calving.converters.typed_json import Declared, Form, Read, declare, json_value
from calving.model.record_path import Limits
from calving.records.cells import Together
from calving.records.fields import Projection
from calving.records.inferred import JSON

_UNION, _NUMBERED_UNION = "io.confluent.connect.json.OneOf.field.", "connect_union_field_"


class JsonSchemaConverter(Converter):
    """Decodes JSON with a JSON Schema. Properties become columns with their names. A property that is not required is
    optional: if it is absent, it is missing, or has its default.

    Types are checked. Constraints (such as ``minimum`` and ``pattern``) are not checked, as in Kafka Connect by
    default.
    """

    def __init__(self, options: Mapping[str, str], *, is_key: bool, limits: Limits | None = None) -> None:
        self._stage = stage(is_key)
        self._limits = limits or Limits()
        numbered = flag(options, "generalized.sum.type.support", is_key=is_key)
        self._union = _NUMBERED_UNION if numbered else _UNION
        self._registry = SchemaRegistry(options, is_key=is_key)
        self._readers = BySchema(self._reader)

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        together = Together(self._limits.cells, len(values))
        presence = () if projection is None else projection.presence
        named = "JSON Schema {}".format
        return by_schema(values, self._stage, framed, self._readers.of, named, together, presence=presence)

    def _reader(self, number: int) -> SchemaReader:
        followed, others = References(self._registry, self._limits), dict[str, Any]()
        schema = followed.schema(number)
        self._refer(schema.references or (), others, followed)
        root = json.loads(schema.schema_str, parse_float=Decimal)
        extent = Extent(self._limits)
        declared = _Shapes(Documents(root, others), self._union, extent).declared(SchemaNode(root, root))
        return SchemaReader(
            declared.type, partial(_load, declared.read), extent.cells, extent.size(len(schema.schema_str))
        )

    def _refer(self, references: Iterable[Any], found: dict[str, Any], followed: References) -> None:
        for reference in references:
            if reference.name not in found:
                with followed.into(reference) as schema:
                    found[reference.name] = json.loads(schema.schema_str, parse_float=Decimal)
                    self._refer(schema.references or (), found, followed)


def _load(read: Read, body: bytes) -> Any:
    return read(json_value(body.decode()))


class _Shapes:
    """Converts a schema to a column type by Kafka Connect's rules. ``extent`` bounds the column."""

    def __init__(self, documents: Documents, union: str, extent: Extent) -> None:
        self._composition = Composition(documents, extent)
        self._union_name, self._extent = union, extent
        self._enums: dict[int, tuple[Sequence[Any], str, bool]] = {}
        self._kept: list[Any] = []
        """Schemas that are known by their ``id``."""
        self._in_branch = False
        """Whether the schema is of a property that only a branch names."""

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
        if is_reference(schema):
            end = self._composition.composed(place)
            key = id(end.schema), id(end.root), nullable, self._in_branch
            return self._extent.once(key, lambda: self.declared(end, nullable))
        if is_composed(schema) or "$ref" in schema:
            self._kept.append(schema)
            key = id(schema), id(place.root), nullable, self._in_branch
            return self._extent.once(key, lambda: self.declared(self._composition.composed(place), nullable))
        return self._of_types(place, schema, nullable)

    def _of_types(self, place: SchemaNode, schema: dict[str, Any], nullable: bool) -> Declared:
        """The declared type of a schema by its types: of one, of several, or of none but null."""
        self._extent.names(len(alternatives(schema)) + len(schema.get("required", ())))
        count_values(schema.get("default"), self._extent.names)
        branches = [place.part(branch) for branch in type_branches(schema)]
        real = [branch for branch in branches if branch.schema is not False and not self._composition.is_null(branch)]
        nulls = [*branches, *map(place.part, alternatives(schema))]
        nullable = nullable or self._enum(schema)[1] or any(map(self._composition.is_null, nulls))
        if len(real) == 1 and real[0].schema is not schema:
            inner = real[0]
            if "default" in schema and isinstance(inner.schema, dict):
                inner = replace(inner, schema={**inner.schema, "default": schema["default"]})
            return self.declared(inner, nullable)
        self._extent.column()
        if not real:
            return declare(Form(pa.null(), _nothing), True, self._extent.cells)
        if len(real) == 1:
            return self._with_default(self._type(place), nullable, schema)
        form, has_null = self._union(real)
        return self._with_default(form, nullable or has_null, schema)

    def _with_default(self, form: Form, nullable: bool, schema: Mapping[str, Any]) -> Declared:
        """The declared type of a form, with the schema's default. One that is not of the type replaces nothing, because
        to JSON Schema it is a remark.
        """
        if self._in_branch or (default := schema.get("default")) is None:
            return declare(form, nullable, self._extent.cells)
        with suppress(ValueError, ArithmeticError):
            return declare(form, nullable, self._extent.cells, default)
        return told(declare(form, nullable, self._extent.cells), default)

    def _type(self, place: SchemaNode) -> Form:
        schema = place.schema
        kind, meant, title = self._kind(schema), schema.get("connect.type"), _title(schema)
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

    def _kind(self, schema: Mapping[str, Any]) -> str:
        """The type of a schema, even if the schema does not name it."""
        if "type" in schema:
            return str(schema["type"])
        for word, kind in (("properties", "object"), ("items", "array")):
            if word in schema:
                return kind
        return self._enum(schema)[0]

    def _enum(self, schema: Mapping[str, Any]) -> tuple[str, bool]:
        """The type of the values that a schema lists, and whether null is among them. A list is read once, because many
        properties may refer to one long list.
        """
        if "enum" not in schema:
            return _kind_of([schema["const"]] if "const" in schema else ()), False
        values = schema["enum"]
        if id(values) not in self._enums:
            self._enums[id(values)] = values, _kind_of(values), None in values
        return self._enums[id(values)][1:]

    def _object_form(self, place: SchemaNode) -> Form:
        schema = place.schema
        if schema.get("connect.type") == "map":
            value = self.declared(place.part(schema.get("additionalProperties", True)))
            return typed_json.mapping(value, self._extent.cells)
        self._extent.check(len(schema["properties"]))
        properties = {name: place.part(item) for name, item in schema["properties"].items() if item is not False}
        optional = self._composition.optional_properties(place)
        for name in properties.keys() & optional.keys():
            others = {"then": place.part({"anyOf": optional[name]})}
            properties[name] = place.part({**others, "allOf": [properties[name]], **_index(properties[name])})
        required = {name for name in schema.get("required", ()) if isinstance(name, str)}
        fields = [
            (name, self.declared(item, nullable=name not in required))
            for name, item in sorted(properties.items(), key=_connect_index(len(properties)))
        ]
        fields += [(name, self._any(nodes)) for name, nodes in optional.items() if name not in properties and nodes]
        return typed_json.named(typed_json.struct(fields), _title(schema))

    def _any(self, nodes: Sequence[SchemaNode]) -> Declared:
        """The declared type of a property that has a schema in several branches. A default counts only in its own
        branch, so none is used.
        """
        before, self._in_branch = self._in_branch, True
        try:
            declared = [self.declared(node, nullable=True) for node in nodes]
            if any(each.type != declared[0].type for each in declared):
                return declare(self._union(nodes)[0], True, self._extent.cells)
        finally:
            self._in_branch = before
        first, cells = declared[0], self._extent.cells
        if len(declared) == 1:
            return first

        def read(value: Any) -> Any:
            fitting = (each for each in declared if fit(each, value, cells) is not None)
            return next(fitting, first).read(value)

        return declare(replace(first.form, read=read), True, self._extent.cells)

    def _array_form(self, place: SchemaNode) -> Form:
        items = place.part(place.schema.get("items", True))
        if place.schema.get("connect.type") == "map":
            items = self._composition.whole(items)
            entry = items.schema["properties"]
            key, value = (self.declared(items.part(entry[name])) for name in ("key", "value"))
            return typed_json.pairs(key, value, _entry, self._extent.cells)
        if not isinstance(items.schema, dict) or "prefixItems" in place.schema:  # any items, or a schema for each place
            items = place.part(True)
        return typed_json.array(self.declared(items), self._extent.cells)

    def _union(self, nodes: Sequence[SchemaNode]) -> tuple[Form, bool]:
        """A struct with a field for each branch, and whether a branch may be null."""
        with self._extent.level():
            branches = [
                Branch(f"{self._union_name}{i}", self.declared(node), self._composition.constants(node))
                for i, node in enumerate(nodes)
            ]
        kind = pa.struct([pa.field(branch.name, branch.declared.type) for branch in branches])
        return Form(kind, Union(branches, self._extent.cells)), any(branch.declared.nullable for branch in branches)


def _kind_of(values: Iterable[Any]) -> str:
    kinds = {_KINDS.get(type(value)) for value in values if value is not None}
    if kinds == {"integer", "number"}:
        return "number"
    return kinds.pop() or "anything" if len(kinds) == 1 else "anything"


_KINDS = {str: "string", bool: "boolean", int: "integer", Decimal: "number"}


def _title(schema: Mapping[str, Any]) -> str:
    title = schema.get("title")
    return title if isinstance(title, str) else ""


def _index(node: SchemaNode) -> dict[str, Any]:
    index = node.schema.get("connect.index") if isinstance(node.schema, dict) else None
    return {"connect.index": index} if isinstance(index, int) else {}


def _connect_index(count: int) -> Any:
    """The sort key for properties: first those with an index of Connect, by index; then the others, in their order."""
    return lambda item: _index(item[1]).get("connect.index", count)


def _entry(entry: Any) -> tuple[Any, Any]:
    if not isinstance(entry, dict) or entry.keys() != {"key", "value"}:
        raise ValueError(f"{typed_json.shown(entry)} is not an entry of key and value")
    return entry["key"], entry["value"]


def _nothing(value: Any) -> Any:
    raise ValueError(f"{typed_json.shown(value)} is not null")


_TYPES: Mapping[tuple[str, str | None], Form] = {
    ("boolean", None): Form(pa.bool_(), typed_json.boolean),
    ("integer", None): Form(pa.int64(), typed_json.whole(64)),
    ("number", None): Form(pa.float64(), typed_json.double),
    ("string", None): Form(pa.string(), typed_json.text),
    ("string", "bytes"): Form(pa.binary(), typed_json.binary),
    ("object", None): Form(JSON, object_text),
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
