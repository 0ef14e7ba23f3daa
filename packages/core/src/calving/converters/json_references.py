"""The schemas to which the references of a JSON Schema lead, within its document and in others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urljoin

UNIONS = ("oneOf", "anyOf")
CONDITIONS = ("if", "then", "else")
DEPENDENCIES = ("dependentSchemas", "dependencies")
_BESIDE = {"properties", "allOf", *UNIONS, *CONDITIONS, *DEPENDENCIES}
"""Words that count beside a ``$ref``."""
_MOST_REFERENCES = 500
"""The most references that may lead to one schema."""
_LONGEST_URI = 2_000
"""Characters. Each ``$id`` within another one may make the URI longer."""

Above = frozenset[tuple[int, str]]
"""The references that lead to a schema, each by its document and pointer."""


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """A schema, with the document against which its references are resolved, and the references that lead to it."""

    schema: Any
    root: Any
    above: Above = frozenset()

    def part(self, schema: Any) -> SchemaNode:
        """A schema within this one. One that was merged into this one keeps its own document."""
        return schema if isinstance(schema, SchemaNode) else SchemaNode(schema, self.root, self.above)

    def all_of(self, nodes: Sequence[SchemaNode]) -> SchemaNode:
        """One schema for values that have to fit several."""
        if len(nodes) == 1:
            return nodes[0]
        index = [node.schema["connect.index"] for node in nodes if "connect.index" in words_of(node.schema)]
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
        self._referred: dict[tuple[int, str], SchemaNode] = {}
        """The schema to which each reference of a document leads in the end."""

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
        own = id(place.root), str(reference)
        if own not in self._referred:
            self._referred[own] = self._end(str(reference), place.root)
        end = self._referred[own]
        _check_length(reference, place.above, end.above)
        if not end.above.isdisjoint(place.above):
            raise ValueError(f"the schema contains itself ({reference}): a table cannot")
        return replace(end, above=end.above | place.above)

    def _end(self, reference: str, root: Any) -> SchemaNode:
        """The schema at the end of a chain of references. They are followed only once: many properties may refer to
        one long chain.
        """
        above: set[tuple[int, str]] = set()
        while True:
            name, _, pointer = reference.partition("#")
            root = self._document(name, root) if name else root
            _check_length(reference, above)
            if (id(root), pointer) in above:
                raise ValueError(f"the schema contains itself ({reference}): a table cannot")
            above.add((id(root), pointer))
            schema = self._at(root, pointer, reference)
            if not is_reference(schema):
                return SchemaNode(schema, root, frozenset(above))
            reference = str(schema["$ref"])

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


def _check_length(reference: object, *parts: Collection[object]) -> None:
    if sum(map(len, parts)) >= _MOST_REFERENCES:
        raise ValueError(f"$ref '{reference}': references lead through more than {_MOST_REFERENCES} others")


def _joined(base: str, uri: str) -> str:
    """The URI that a relative one means. A base without a scheme, such as ``money.json``, is a path. Where the URI
    would be too long, the relative one counts.
    """
    if len(base) + len(uri) > _LONGEST_URI:
        return uri
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


def words_of(schema: Any) -> Mapping[str, Any]:
    return schema if isinstance(schema, dict) else {}


def is_reference(schema: Any) -> bool:
    """Whether a schema is a reference only. Most words beside ``$ref`` say nothing about a column."""
    return "$ref" in words_of(schema) and _BESIDE.isdisjoint(schema)
