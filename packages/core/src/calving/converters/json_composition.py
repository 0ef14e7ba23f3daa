"""One JSON Schema made of several: by references within and between documents, and by ``allOf``, ``oneOf``, ``anyOf``,
``then`` and ``else``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urljoin

from calving.converters.extent import Extent

Above = tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """A schema, with the document against which its references are resolved. ``above``: the references that lead to the
    schema.
    """

    schema: Any
    root: Any
    above: Above = ()

    def part(self, schema: Any) -> SchemaNode:
        """A schema within this one. One that was merged into this one keeps its own document."""
        return schema if isinstance(schema, SchemaNode) else SchemaNode(schema, self.root, self.above)


class Documents:
    """The documents that references can name: by the names of the registry's references, and by ``$id``."""

    def __init__(self, first: Any, others: Mapping[str, Any]) -> None:
        """``first``: the schema itself. ``others``: the documents to which it refers, by the names of its
        references.
        """
        self._first, self._others = first, others
        self._by_uri: dict[str, Any] = {}
        self._uris: dict[int, str] = {}
        self._anchors: dict[tuple[int, str], Any] = {}

    def _ensure_index(self) -> None:
        """Find all names. Most schemas need none of them."""
        if not self._uris:
            self._by_uri |= self._others
            for uri, document in (("", self._first), *self._others.items()):
                self._index(document, uri)

    def _index(self, document: Any, uri: str) -> None:
        """Find each ``$id`` and ``$anchor``. A schema with an ``$id`` is a document within the document."""
        self._uris.setdefault(id(document), uri)
        waiting = [(document, uri, document)]
        while waiting:
            node, base, root = waiting.pop()
            if isinstance(node, dict):
                own, anchor = node.get("$id"), node.get("$anchor")
                if isinstance(own, str):
                    named, _, fragment = own.partition("#")
                    anchor = fragment or anchor
                    if named:
                        base, root = _joined(base, named), node
                        self._by_uri.setdefault(base, node)
                        self._uris[id(node)] = base
                if isinstance(anchor, str):
                    for home in (root, document):
                        self._anchors.setdefault((id(home), anchor), node)
            parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
            waiting += [(part, base, root) for part in parts if isinstance(part, dict | list)]

    def referred(self, reference: Any, place: SchemaNode) -> SchemaNode:
        """The schema to which a reference of the schema at ``place`` leads.

        :raises ValueError: it leads to nothing, or to a schema that contains it.
        """
        name, _, pointer = str(reference).partition("#")
        root = self._document(name, place.root) if name else place.root
        key = id(root), pointer
        if key in place.above:
            raise ValueError(f"the schema contains itself ({reference}): a table cannot")
        return SchemaNode(self._at(root, pointer, reference), root, (*place.above, key))

    def _at(self, root: Any, pointer: str, reference: Any) -> Any:
        if pointer and not pointer.startswith("/"):
            self._ensure_index()
            if (id(root), pointer) in self._anchors:
                return self._anchors[id(root), pointer]
        return _followed(root, pointer, reference)

    def _document(self, name: str, root: Any) -> Any:
        if name in self._others:
            return self._others[name]
        self._ensure_index()
        for uri in (name, _joined(self._uris.get(id(root), ""), name)):
            if uri in self._by_uri:
                return self._by_uri[uri]
        raise ValueError(f"$ref '{name}': the schema has no reference of the name '{name}'")


def _joined(base: str, uri: str) -> str:
    """The URI that a relative one means. A base without a scheme, such as ``money.json``, is a path."""
    try:
        return urljoin(base, uri)
    except ValueError:  # no URI: the name alone counts
        return uri


def _followed(root: Any, pointer: str, reference: Any) -> Any:
    """What a JSON Pointer refers to."""
    node = root
    for part in filter(None, unquote(pointer).split("/")):
        step = part.replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(step)] if isinstance(node, list) else node[step]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise ValueError(f"$ref '{reference}' refers to nothing") from error
    return node


class Composition:
    """Combines the schemas that one value must fit together. ``extent`` bounds them, because a part may be used several
    times.
    """

    def __init__(self, documents: Documents, extent: Extent) -> None:
        self._documents, self._extent = documents, extent

    def composed(self, place: SchemaNode) -> SchemaNode:
        """The schema that a reference or several parts come to: one without ``$ref`` and ``allOf``, and with one union
        at most. Words of a later part replace those of an earlier one; properties are put together.

        :raises ValueError: a reference leads to nothing, or the parts are too many.
        """
        schema = place.schema
        if _is_reference(schema):
            return self._documents.referred(schema["$ref"], place)
        merged, schemas = _divided(schema)
        properties, required = dict(merged.pop("properties", {})), list(merged.pop("required", ()))
        unions: list[list[SchemaNode]] = []
        for part in self._parts(place, schemas):
            words = dict(part.schema)
            properties |= {name: part.part(item) for name, item in words.pop("properties", {}).items()}
            self._extent.check(len(properties))
            required += words.pop("required", ())
            unions += [[part.part(branch) for branch in words.pop(word)] for word in _UNIONS if word in words]
            merged |= {word: part.part(item) if word in _WITHIN else item for word, item in words.items()}
        branches, have_properties = self._union(unions)
        if branches:
            merged["oneOf"] = branches
        if properties or have_properties:
            merged |= {"properties": properties, "required": required}
        return replace(place, schema=merged)

    def _union(self, unions: Sequence[list[SchemaNode]]) -> tuple[list[SchemaNode], bool]:
        """The branches of unions all of which a value must fit, and whether it may have properties of several."""
        typed = [union for union in unions if any(map(_says_type, union))] or [*unions[-1:]]
        branches = [branch for union in typed for branch in union]
        if len(typed) > 1 and any("properties" in part.schema for part in self._parts(branches[0], branches)):
            return branches, True
        return (typed[-1] if typed else []), False

    def _parts(self, place: SchemaNode, schemas: Iterable[Any]) -> Iterator[SchemaNode]:
        """Schemas within one, in a form that can be merged; without those that say nothing."""
        for schema in schemas:
            self._extent.column()
            part = place.part(schema)
            while isinstance(part.schema, dict) and (is_composed(part.schema) or "$ref" in part.schema):
                with self._extent.level():
                    part = self.composed(part)
            if isinstance(part.schema, dict):
                found = part.schema
                self._extent.names(len(found) + len(found.get("properties", ())) + len(found.get("required", ())))
                yield part

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
                found.setdefault(name, []).append(part.part(item))
            self._extent.check(len(found))
            with self._extent.level():
                self._collect(part, found)


_UNIONS = ("oneOf", "anyOf")
_CONDITIONS = ("then", "else")
_WITHIN = ("items", "additionalProperties", *_CONDITIONS)
"""Words whose value is a schema."""
_TYPED = {"type", "properties", "items", "enum", "const", "$ref", "allOf", *_UNIONS}
"""Words that say of which type a value is. Others only narrow the values of a type."""


def _is_reference(schema: Mapping[str, Any]) -> bool:
    """Whether a schema is a reference only. Most words beside ``$ref`` say nothing about a column."""
    return "$ref" in schema and {"properties", "allOf", *_UNIONS}.isdisjoint(schema)


def is_composed(schema: Mapping[str, Any]) -> bool:
    """Whether a schema has several parts, all of which a value must fit."""
    return "allOf" in schema or ("$ref" in schema and not _is_reference(schema)) or schema.keys() >= set(_UNIONS)


def _divided(schema: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The words of a schema for a value itself, and the other schemas that the value must fit."""
    others = [{word: schema[word]} for word in ("$ref", *_UNIONS) if word in schema] + [*schema.get("allOf", ())]
    return {word: item for word, item in schema.items() if word not in ("$ref", "allOf", *_UNIONS)}, others


def alternatives(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas within a schema that values may fit or not."""
    branches = [branch for word in _UNIONS for branch in schema.get(word, ())]
    return branches + [schema[word] for word in _CONDITIONS if word in schema]


def type_branches(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas one of which says the type of a value: those of a union, unless the schema itself says the type."""
    union = next((list(schema[word]) for word in _UNIONS if word in schema), [])
    if union and "properties" not in schema and ("type" not in schema or any(map(_says_type, union))):
        return union
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return [{**schema, "type": kind} for kind in kinds]
    return [schema]


def _says_type(branch: Any) -> bool:
    schema = branch.schema if isinstance(branch, SchemaNode) else branch
    return isinstance(schema, dict) and not is_null(schema) and not _TYPED.isdisjoint(schema)


def is_null(branch: Any) -> bool:
    """Whether a branch is the type of null alone."""
    schema = branch.schema if isinstance(branch, SchemaNode) else branch
    return isinstance(schema, dict) and schema.get("type") == "null"
