"""What schemas have rarely: types that come again, other ways to write the same, maps with keys other than text, defaults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from pyiceberg.types import IcebergType, ListType, MapType, StructType

from tests.fuzz import json_branches, nodes, protobuf_known
from tests.fuzz.encoding import ENTRIES
from tests.fuzz.fates import Dead
from tests.fuzz.forms import Digits, Pairs
from tests.fuzz.nodes import Node
from tests.fuzz.oracle import Typed
from tests.fuzz.protobuf import Form, is_wrapped

_AGAIN = {
    "json-schema": ("struct", "one-of", "list", "long", "string"),
    "avro": ("struct", "enum", "fixed", "decimal-fixed", "uuid-fixed", "union"),
}
_KEYS = {
    "avro": ("int", "long", "boolean", "double", "bytes", "enum", "date", "uuid", "decimal", "fixed"),
    "json-schema": ("int", "long", "boolean", "double", "date", "string"),
    "protobuf": ("int", "long", "uint32", "uint64", "boolean"),
    "envelope": ("int8", "int16", "int", "long", "boolean", "double", "float", "bytes", "date", "decimal"),
}
_DEFAULTS = ("envelope", "json-schema")


class Unreadable(Exception):
    """The value is none of its schema."""


def dressed(random: Random, node: Node, struct: StructType, converter: str) -> Node:
    """A record's schema with more of what its format can say. ``struct``: the table's columns."""
    node = _keyed(random, node, struct, converter)
    node = _formed(random, node, defaults=converter in _DEFAULTS)
    if converter == "protobuf":
        node = _of_protobuf(random, node, proto2=bool(node.form & Form.PROTO2))
    return _more(random, node, converter)


def _of_protobuf(random: Random, node: Node, *, proto2: bool) -> Node:
    """Wrapped values may be missing. In Protobuf 2 each single field may, or is required. Some are of a oneof."""
    inner = []
    for n in node.inner:
        of_message = node.kind == "struct" and n.kind not in ("list", "map")
        if of_message and not node.mean and n.kind != "struct":
            optional = random.random() < 0.8 if proto2 else n.optional or is_wrapped(n) or n.kind == "timestamp-micros"
            n = replace(n, optional=optional)
        if of_message and n.kind == "struct" and proto2:
            n = replace(n, optional=random.random() < 0.8)
        inner.append(_of_protobuf(random, n, proto2=proto2))
    if node.kind == "struct" and not node.mean and random.random() < 0.4:
        places = [i for i, n in enumerate(inner) if n.kind not in ("list", "map")]
        for place in random.sample(places, 2) if len(places) > 1 else ():
            inner[place] = replace(inner[place], optional=True, scale=1)
    return replace(node, inner=tuple(inner))


def _more(random: Random, node: Node, converter: str) -> Node:
    """With fields whose types are in the schema already."""
    branches = [*_BRANCHES] if converter == "avro" and random.random() < 0.5 else []
    inner = [
        replace(n, inner=(*n.inner, *(b for b in branches if all(b.name != i.name for i in n.inner))))
        if n.kind == "union"
        else n
        for n in node.inner
    ]
    if converter == "json-schema":
        inner += [json_branches.drawn(random, "one_of")] if random.random() < 0.5 else []
        inner += [Node("json", True, "any", size=random.randrange(4), form=1)] if random.random() < 0.4 else []
        places = Node("list", True, "places", (Node("json", True, "element"),), size=random.choice((1, 2)), form=1)
        inner += [places] if random.random() < 0.3 else []
    if converter == "protobuf" and random.random() < 0.6:
        chosen = random.sample(protobuf_known.KINDS, 2)
        inner += [protobuf_known.drawn(random, kind, f"known_{i}") for i, kind in enumerate(chosen)]
    kinds = _AGAIN.get(converter, ("struct",))
    there = [n for n in _within(replace(node, inner=tuple(inner))) if n.kind in kinds]
    for name in random.sample(("again", "agains", "by_name"), random.randint(1, 3)) if there else ():
        made = replace(random.choice(there), optional=random.random() < 0.5)
        if converter == "protobuf":
            made = replace(made, optional=name == "again", scale=0)
        text = Node("string", name="key")
        more = {
            "again": made,
            "agains": Node("list", inner=(replace(made, name="element"),), form=made.form),
            "by_name": Node("map", inner=(text, replace(made, name="value"))),
        }
        inner.append(replace(more[name], name=name, loose=node.loose))
    return replace(node, inner=tuple(inner))


_BRANCHES = (
    Node("enum", name="Color"),
    Node("fixed", name="Raw", size=4),
    Node("list", name="array", inner=(Node("long", name="element"),)),
    Node("map", name="map", inner=(Node("string", name="key"), Node("int", name="value"))),
)


def _within(node: Node) -> Iterator[Node]:
    """All that a schema has inside."""
    for inner in node.inner if node.kind not in ("union", "one-of") else ():
        yield inner
        yield from _within(inner)


def _keyed(random: Random, node: Node, kind: IcebergType | None, converter: str) -> Node:
    """Some maps get other keys, if there is such a column of the types that its keys are mostly made of."""
    inner = []
    for n in node.inner:
        match kind:
            case StructType():
                of = next((f.field_type for f in kind.fields if f.name == n.name), None)
            case ListType():
                of = kind.element_type
            case MapType():
                of = kind.value_type if n is node.inner[1] else None
            case _:
                of = None
        inner.append(_keyed(random, n, of, converter))
    if node.kind == "map" and converter in _KEYS and random.random() < 0.5:
        wanted = str(kind.key_type).partition("(")[0].partition("[")[0] if isinstance(kind, MapType) else ""
        chosen = wanted if wanted in _KEYS[converter] and random.random() < 0.7 else random.choice(_KEYS[converter])
        size = 16 if chosen == "decimal" else random.choice((1, 4, 16))
        inner[0] = Node(chosen, name="key", size=size, scale=3 if chosen == "decimal" else 0)
        node = replace(node, size=ENTRIES if converter == "json-schema" else 0)
    return replace(node, inner=tuple(inner))


def _formed(random: Random, node: Node, *, defaults: bool, inside: bool = False) -> Node:
    """``inside``: it is the key of a map, or an element."""
    is_keyed = node.kind in ("list", "map", "union")
    inner = tuple(_formed(random, n, defaults=defaults, inside=is_keyed) for n in node.inner if n.kind != "")
    node = replace(node, inner=inner, form=random.randrange(1 << 16))
    if defaults and node.name and random.random() < 0.25 and not (inside and node.name == "key"):
        node = replace(node, default=nodes.value(random, replace(node, optional=False)))
    return node


def arrived(node: Node, value: Any) -> Typed | Dead:
    """What a record's value is to the sink."""
    try:
        return Typed(received(node, value), node)
    except Unreadable:
        return Dead("VALUE_CONVERTER")


def received(node: Node, value: Any) -> Any:
    """A value as it arrives: a null becomes the default.

    :raises Unreadable: a value is missing, or a decimal has more digits than a table's columns.
    """
    if value is None:
        if node.default is not None:
            return received(node, node.default)
        if not node.optional:
            raise Unreadable(node.name)
        return None
    match value:
        case _ if node.kind == "json" or node.kind in protobuf_known.TYPES:
            return value
        case Digits() if not node.mean:
            if len(value.as_tuple().digits) > 38:
                raise Unreadable(node.name)
        case json_branches.OneOf():
            return value
        case dict() if node.kind == "union":
            return {n.name: None if value[n.name] is None else received(n, value[n.name]) for n in node.inner}
        case dict():
            return {n.name: received(n, value[n.name]) for n in node.inner}
        case Pairs():
            key, item = node.inner
            return Pairs((received(key, k), received(item, v)) for k, v in value)
        case list():
            return [received(node.inner[0], item) for item in value]
    return value
