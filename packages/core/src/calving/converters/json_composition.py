"""One JSON Schema made of several: by references within and between documents, and by ``allOf``, ``oneOf``, ``anyOf``,
``then`` and ``else``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote, urljoin

from calving.converters.extent import Extent

_MOST_REFERENCES = 500
"""The most references that may lead to one schema."""

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

    def all_of(self, nodes: Sequence[SchemaNode]) -> SchemaNode:
        """One schema for values that have to fit several."""
        if len(nodes) == 1:
            return nodes[0]
        index = [node.schema["connect.index"] for node in nodes if "connect.index" in _words(node.schema)]
        return self.part({"allOf": [*nodes], **({"connect.index": index[0]} if index else {})})


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
        self._anchors_within: dict[tuple[int, str], Any] = {}
        """Those of a document and of all documents within it."""

    def _ensure_index(self) -> None:
        """Find all names. Most schemas need none of them."""
        if not self._uris:
            self._by_uri |= self._others
            for uri, document in (("", self._first), *self._others.items()):
                self._index(document, uri)

    def _index(self, document: Any, uri: str) -> None:
        """Find each ``$id`` and ``$anchor``. A schema with an ``$id`` is a document within the document."""
        self._uris.setdefault(id(document), uri)
        dialect = str(document.get("$schema")) if isinstance(document, dict) else ""
        id_word = "id" if "draft-04" in dialect else "$id"
        waiting = [(document, uri, document)]
        while waiting:
            node, base, root = waiting.pop()
            if isinstance(node, dict):
                own, anchor = node.get(id_word), node.get("$anchor")
                if isinstance(own, str):
                    named, _, fragment = own.partition("#")
                    anchor = fragment or anchor
                    if named:
                        base, root = _joined(base, named), node
                        self._by_uri.setdefault(base, node)
                        self._uris[id(node)] = base
                if isinstance(anchor, str):
                    self._anchors.setdefault((id(root), anchor), node)
                    self._anchors_within.setdefault((id(document), anchor), node)
            parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
            waiting += [(part, base, root) for part in parts if isinstance(part, dict | list)]

    def referred(self, reference: Any, place: SchemaNode) -> SchemaNode:
        """The schema to which a reference of the schema at ``place`` leads.

        :raises ValueError: it leads to nothing, to a schema that contains it, or through too many others.
        """
        if len(place.above) >= _MOST_REFERENCES:
            raise ValueError(f"$ref '{reference}': references lead through more than {_MOST_REFERENCES} others")
        name, _, pointer = str(reference).partition("#")
        root = self._document(name, place.root) if name else place.root
        key = id(root), pointer
        if key in place.above:
            raise ValueError(f"the schema contains itself ({reference}): a table cannot")
        return SchemaNode(self._at(root, pointer, reference), root, (*place.above, key))

    def _at(self, root: Any, pointer: str, reference: Any) -> Any:
        if pointer and not pointer.startswith("/"):
            self._ensure_index()
            for anchors in (self._anchors, self._anchors_within):
                if (id(root), pointer) in anchors:
                    return anchors[id(root), pointer]
        return _followed(root, pointer, reference)

    def _document(self, name: str, root: Any) -> Any:
        if name in self._others:
            return self._others[name]
        self._ensure_index()
        for uri in (name, _joined(self._uris.get(id(root), ""), name), name.removeprefix("./")):
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
        at most. Of most words that of the last part counts; properties and items have to fit all parts.

        :raises ValueError: a reference leads to nothing, or the parts are too many.
        """
        if _is_reference(place.schema):
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
        typed = [union for union in unions if any(map(_says_type, union))] or [*unions[-1:]]
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
            part = place.part(schema)
            while isinstance(part.schema, dict) and (is_composed(part.schema) or "$ref" in part.schema):
                with self._extent.level():
                    part = self.composed(part)
            if isinstance(part.schema, dict):
                found = part.schema
                self._extent.names(len(found) + len(found.get("properties", ())) + len(found.get("required", ())))
                yield part

    def is_null(self, place: SchemaNode) -> bool:
        """Whether a schema is the type of null alone."""
        return _is_null_type(_words(self._referred(place).schema))

    def _referred(self, place: SchemaNode) -> SchemaNode:
        while _is_reference(place.schema):
            place = self._documents.referred(place.schema["$ref"], place)
        return place

    def constants(self, place: SchemaNode) -> dict[str, Sequence[Any]]:
        """The values that properties of an object may have, where a schema lists them."""
        found: dict[str, Sequence[Any]] = {}
        for part in self._parts(place, [place]):
            for name, item in part.schema.get("properties", {}).items():
                schema = _words(self._referred(part.part(item)).schema)
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

    def add(self, part: SchemaNode) -> None:
        words = dict(part.schema)
        self.conditional += [part.part(schema) for schema in _take_conditions(words)]
        for name, item in words.pop("properties", {}).items():
            self.properties.setdefault(name, []).append(part.part(item))
        for word in _WITHIN & words.keys():
            self.within.setdefault(word, []).append(part.part(words.pop(word)))
        self.unions += [[part.part(branch) for branch in words.pop(word)] for word in _UNIONS if word in words]
        if "required" in words:
            words["required"] = [*self.words.get("required", ()), *words["required"]]
        self.words |= words | _narrower_type(self.words, words)


_UNIONS = ("oneOf", "anyOf")
_CONDITIONS = ("if", "then", "else")
_DEPENDENCIES = ("dependentSchemas", "dependencies")
_BESIDE = {"properties", "allOf", *_UNIONS, *_CONDITIONS, *_DEPENDENCIES}
"""Words that count beside a ``$ref``."""
_WITHIN = {"items", "additionalProperties"}
"""Words whose value is a schema of parts of a value."""
_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_TYPED = {"type", "properties", "items", "$ref", "allOf", *_UNIONS}
"""Words that say of which type a value is. Others only narrow the values of a type."""


def _words(schema: Any) -> Mapping[str, Any]:
    return schema if isinstance(schema, dict) else {}


def _is_reference(schema: Any) -> bool:
    """Whether a schema is a reference only. Most words beside ``$ref`` say nothing about a column."""
    return "$ref" in _words(schema) and _BESIDE.isdisjoint(schema)


def is_composed(schema: Mapping[str, Any]) -> bool:
    """Whether a schema has several parts, all of which a value must fit."""
    if "allOf" in schema or ("$ref" in schema and not _is_reference(schema)):
        return True
    unions = [word for word in _UNIONS if word in schema]
    return len(unions) > 1 or bool(unions and "properties" not in schema and _conditions(schema))


def _divided(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas all of which a value must fit: that of the schema's own words, and the others."""
    others = [{word: schema[word]} for word in ("$ref", *_UNIONS) if word in schema] + [*schema.get("allOf", ())]
    own = {word: item for word, item in schema.items() if word not in ("$ref", "allOf", *_UNIONS)}
    return [own, *others]


def _conditions(schema: Mapping[str, Any]) -> list[Any]:
    dependent = [schema[word].values() for word in _DEPENDENCIES if isinstance(schema.get(word), dict)]
    schemas = [part for parts in dependent for part in parts if isinstance(part, dict)]
    return [schema[word] for word in _CONDITIONS if word in schema] + schemas


def _take_conditions(schema: dict[str, Any]) -> list[Any]:
    found = _conditions(schema)
    for word in (*_CONDITIONS, *_DEPENDENCIES):
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
    return [branch for word in _UNIONS for branch in schema.get(word, ())] + _conditions(schema)


def type_branches(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas one of which says the type of a value: those of a union, unless the schema itself says the type.

    :raises ValueError: a type is not known.
    """
    union = next((list(schema[word]) for word in _UNIONS if word in schema), [])
    if union and "properties" not in schema and ("type" not in schema or any(map(_says_type, union))):
        return union
    kinds = schema.get("type")
    if isinstance(kinds, list):
        if wrong := [kind for kind in kinds if kind not in _TYPES]:
            raise ValueError(f"{wrong[0]!r:.60} is not a type of JSON Schema")
        return [{**schema, "type": kind} for kind in dict.fromkeys(kinds)]
    return [schema]


def _says_type(branch: Any) -> bool:
    schema = _words(branch.schema if isinstance(branch, SchemaNode) else branch)
    return not _is_null_type(schema) and not _TYPED.isdisjoint(schema)


def _is_null_type(schema: Mapping[str, Any]) -> bool:
    if "type" in schema:
        return schema["type"] in ("null", ["null"])
    return schema.get("const", ...) is None or schema.get("enum") == [None]
