"""One JSON Schema made of several: by references within and between documents, and by ``allOf``, ``oneOf``, ``anyOf``,
``then`` and ``else``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calving.converters.json_references import (
    CONDITIONS,
    DEPENDENCIES,
    UNIONS,
    Documents,
    SchemaNode,
    is_reference,
    words_of,
)
from calving.converters.schema_bounds import Extent


class Composition:
    """Combines the schemas that one value must fit together. ``extent`` bounds them, because a part may be used several
    times.
    """

    def __init__(self, documents: Documents, extent: Extent) -> None:
        self._documents, self._extent = documents, extent
        self._kept: list[Any] = []
        """Schemas that are known by their ``id``."""

    def composed(self, place: SchemaNode) -> SchemaNode:
        """The schema that a reference or several parts come to: one without ``$ref`` and ``allOf``, and with one union
        at most. Of most words that of the last part counts; properties and items have to fit all parts.

        :raises ValueError: a reference leads to nothing, or the parts are too many.
        """
        if is_reference(place.schema):
            return self._documents.referred(place.schema["$ref"], place)
        merged = _Merged()
        for part in self._parts(place, _divided(place.schema)):
            merged.add(part)
            self._extent.check(len(merged.properties))
        branches, have_properties = self._union(merged.unions)
        words = merged.words | {word: place.all_of(nodes) for word, nodes in merged.within.items()}
        if branches:
            words["oneOf"] = branches
        if merged.conditional and branches and not merged.properties and not have_properties:
            have_properties = self._are_objects(place, branches)
        if merged.conditional and (have_properties or merged.properties or not branches):
            words["then"] = place.part({"anyOf": merged.conditional})
        if merged.properties or have_properties:
            words["properties"] = {name: place.all_of(nodes) for name, nodes in merged.properties.items()}
        return replace(place, schema=words)

    def _union(self, unions: Sequence[list[SchemaNode]]) -> tuple[list[SchemaNode], bool]:
        """The branches of unions all of which a value must fit, and whether it may have properties of several."""
        typed = _different([union for union in unions if any(map(_says_type, union))]) or [*unions[-1:]]
        branches = [branch for union in typed for branch in union]
        if len(typed) > 1 and any("properties" in part.schema for part in self._parts(branches[0], branches)):
            return branches, True
        return (typed[-1] if typed else []), False

    def _are_objects(self, place: SchemaNode, branches: Sequence[SchemaNode]) -> bool:
        real = [branch for branch in branches if not self.is_null(branch)]
        return all("properties" in part.schema for part in self._parts(place, real))

    def _parts(self, place: SchemaNode, schemas: Iterable[Any]) -> Iterator[SchemaNode]:
        """Schemas within one, in a form that can be merged; without those that say nothing."""
        for schema in schemas:
            self._extent.column()
            part = self.whole(place.part(schema))
            if isinstance(part.schema, dict):
                self._extent.names(_length(part.schema))
                yield part

    def whole(self, place: SchemaNode) -> SchemaNode:
        """The schema itself, or what its references and parts come to.

        :raises ValueError: as ``composed``.
        """
        while isinstance(place.schema, dict) and (is_composed(place.schema) or "$ref" in place.schema):
            place = self._composed_part(place)
        return place

    def _composed_part(self, part: SchemaNode) -> SchemaNode:
        """As ``composed``, one level deeper. Many parts may refer to one: it is composed once."""

        def make() -> SchemaNode:
            with self._extent.level():
                return self.composed(part)

        self._kept.append(part.schema)
        return self._extent.once(("part", id(part.schema), id(part.root)), make)

    def is_null(self, place: SchemaNode) -> bool:
        """Whether a schema is the type of null alone."""
        return _is_null_type(words_of(self._referred(place).schema))

    def _referred(self, place: SchemaNode) -> SchemaNode:
        return self._documents.referred(place.schema["$ref"], place) if is_reference(place.schema) else place

    def constants(self, place: SchemaNode) -> dict[str, Sequence[Any]]:
        """The values that properties of an object may have, where a schema lists them."""
        found: dict[str, Sequence[Any]] = {}
        for part in self._parts(place, [place]):
            for name, item in part.schema.get("properties", {}).items():
                schema = words_of(self._referred(part.part(item)).schema)
                if "const" in schema or "enum" in schema:
                    found[name] = schema.get("enum", [schema.get("const")])
        return found

    def optional_properties(self, place: SchemaNode) -> dict[str, list[SchemaNode]]:
        """The properties that stand in alternatives within an object, with their schemas there: a value may have them
        or not.
        """
        found: dict[str, list[SchemaNode]] = {}
        self._collect(place, found)
        return found

    def _collect(self, place: SchemaNode, found: dict[str, list[SchemaNode]]) -> None:
        for part in self._parts(place, alternatives(place.schema)):
            for name, item in part.schema.get("properties", {}).items():
                if item is not False:  # in this branch the property is never there
                    found.setdefault(name, []).append(part.part(item))
            self._extent.check(len(found))
            with self._extent.level():
                self._collect(part, found)


@dataclass(slots=True)
class _Merged:
    """The words of several schemas that a value must fit together."""

    words: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, list[SchemaNode]] = field(default_factory=dict)
    within: dict[str, list[SchemaNode]] = field(default_factory=dict)
    unions: list[list[SchemaNode]] = field(default_factory=list)
    conditional: list[SchemaNode] = field(default_factory=list)
    required: list[Any] = field(default_factory=list)
    """The names of all parts in one list: copies for each of many parts would be long."""

    def add(self, part: SchemaNode) -> None:
        words = dict(part.schema)
        self.conditional += [part.part(schema) for schema in _take_conditions(words)]
        for name, item in words.pop("properties", {}).items():
            self.properties.setdefault(name, []).append(part.part(item))
        for word in _WITHIN & words.keys():
            self.within.setdefault(word, []).append(part.part(words.pop(word)))
        self.unions += [[part.part(branch) for branch in words.pop(word)] for word in UNIONS if word in words]
        if "required" in words:
            self.required += words["required"]
            words["required"] = self.required
        self.words |= words | _narrower_type(self.words, words)


def _different(unions: Sequence[list[SchemaNode]]) -> list[list[SchemaNode]]:
    """The unions without those that say the same as one before: a value that fits one fits both."""
    if len(unions) < 2:
        return [*unions]
    same = {(id(u[0].root), *(id(branch.schema) for branch in u)): u for u in reversed(unions)}
    texts = {(key[0], json.dumps([b.schema for b in u], default=str)): u for key, u in same.items()}
    return [*reversed(texts.values())]


_WITHIN = {"items", "additionalProperties"}
"""Words whose value is a schema of parts of a value."""
_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_TYPED = {"type", "properties", "items", "$ref", "allOf", *UNIONS}
"""Words that say of which type a value is. Others only narrow the values of a type."""


def is_composed(schema: Mapping[str, Any]) -> bool:
    """Whether a schema has several parts, all of which a value must fit."""
    if "allOf" in schema or ("$ref" in schema and not is_reference(schema)):
        return True
    unions = [word for word in UNIONS if word in schema]
    return len(unions) > 1 or bool(unions and "properties" not in schema and _conditions(schema))


def _length(schema: Mapping[str, Any]) -> int:
    """How many names and schemas are taken from a schema that is merged with others."""
    listed = [schema.get("properties", ()), schema.get("required", ()), *(schema.get(word, ()) for word in UNIONS)]
    kinds = schema["type"] if isinstance(schema.get("type"), list) else ()
    return len(schema) + sum(map(len, listed)) + len(kinds) + len(_conditions(schema))


def _divided(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas all of which a value must fit: that of the schema's own words, and the others."""
    others = [{word: schema[word]} for word in ("$ref", *UNIONS) if word in schema] + [*schema.get("allOf", ())]
    own = {word: item for word, item in schema.items() if word not in ("$ref", "allOf", *UNIONS)}
    return [own, *others]


def _conditions(schema: Mapping[str, Any]) -> list[Any]:
    dependent = [schema[word].values() for word in DEPENDENCIES if isinstance(schema.get(word), dict)]
    schemas = [part for parts in dependent for part in parts if isinstance(part, dict)]
    return [schema[word] for word in CONDITIONS if word in schema] + schemas


def _take_conditions(schema: dict[str, Any]) -> list[Any]:
    found = _conditions(schema)
    for word in (*CONDITIONS, *DEPENDENCIES):
        schema.pop(word, None)
    return found


def _narrower_type(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The type of a value that has both types, if both schemas name theirs."""
    if "type" not in one or "type" not in other:
        return {}
    kinds = [kind if isinstance(kind, list) else [kind] for kind in (one["type"], other["type"])]
    wide = [{*each, *(["integer"] if "number" in each else [])} for each in kinds]
    both = [kind for kind in dict.fromkeys([*kinds[0], *kinds[1]]) if kind in wide[0] and kind in wide[1]]
    return {"type": both[0] if len(both) == 1 else both} if both else {}


def alternatives(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas within a schema that values may fit or not."""
    return [branch for word in UNIONS for branch in schema.get(word, ())] + _conditions(schema)


def type_branches(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas one of which says the type of a value: those of a union, unless the schema itself says the type.

    :raises ValueError: a type is not known.
    """
    union = next((list(schema[word]) for word in UNIONS if word in schema), [])
    if union and "properties" not in schema and ("type" not in schema or any(map(_says_type, union))):
        return union
    kinds = schema.get("type")
    if isinstance(kinds, list):
        if wrong := [kind for kind in kinds if kind not in _TYPES]:
            raise ValueError(f"{wrong[0]!r:.60} is not a type of JSON Schema")
        return [{**schema, "type": kind} for kind in dict.fromkeys(kinds)]
    return [schema]


def _says_type(branch: Any) -> bool:
    schema = words_of(branch.schema if isinstance(branch, SchemaNode) else branch)
    return not _is_null_type(schema) and not _TYPED.isdisjoint(schema)


def _is_null_type(schema: Mapping[str, Any]) -> bool:
    if "type" in schema:
        return schema["type"] in ("null", ["null"])
    return schema.get("const", ...) is None or schema.get("enum") == [None]
