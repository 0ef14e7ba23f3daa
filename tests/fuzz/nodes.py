"""Schemas that records bring with them: one tree for Avro and for Connect's envelope, and the values that it describes.

Values are plain: bool, int, float, ``Single``, str, bytes, ``Digits``, UUID, ``Day``, ``Clock``, ``Instant``, dict, list, and
``Pairs`` for maps.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from random import Random
from typing import Any

from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, StructType

from tests.fuzz import meanings, schemas
from tests.fuzz.forms import Clock, Day, Digits, Instant, Pairs, single
from tests.fuzz.kinds import Kind
from tests.fuzz.meanings import MEANINGS, SCALED
from tests.fuzz.texts import STRINGS

_KINDS = {
    **dict.fromkeys(("int8", "int16", "int"), "int"),
    **dict.fromkeys(("time-millis", "time-micros"), "time"),
    **dict.fromkeys(("timestamp-millis", "timestamp-micros", "timestamp-nanos"), "timestamptz"),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"), "timestamp"),
    "uuid-fixed": "uuid",
    "uint32": "long",
    "uint64": "decimal(20, 0)",
    "bytes": "binary",
    "enum": "string",
    "json": "string",
    "duration": "long",
    **dict.fromkeys((f"{what}-text" for what in ("struct", "value", "list-value", "any", "decimal")), "string"),
    "known-decimal": "decimal(20, 5)",
}
ENUM = ("RED", "GREEN", "BLUE")


@dataclass(frozen=True)
class Node:
    """``inner``: fields of a struct, the element of a list, the key and value of a map, the branches of a union."""

    kind: str
    optional: bool = False
    name: str = ""
    inner: tuple[Node, ...] = ()
    size: int = 0
    scale: int = 0
    loose: bool = False
    """Nothing that it needs is required."""
    mean: str = ""
    """The name of the schema, if it says what the values mean."""
    form: int = 0
    """Bits that choose among the ways in which a format can write the same."""
    default: Any = None
    """What a null becomes."""
    make: Callable[[Random, Node], Any] | None = dataclasses.field(default=None, repr=False, compare=False)
    """Makes the values of kinds that few formats have."""

    @property
    def wire(self) -> str:
        """The type of number that is written."""
        return _KINDS.get(self.kind, self.kind)

    def need(self) -> Kind:
        """The type that it needs of a new column."""
        strict = not self.loose
        if self.mean:
            return MEANINGS[self.mean].column
        match self.kind:
            case "struct":
                required = [n.name for n in self.inner if strict and not n.optional]
                return {"struct": {n.name: n.need() for n in self.inner}} | ({"required": required} if required else {})
            case "union" | "one-of":
                return {"struct": {n.name: n.need() for n in self.inner}}
            case "list":
                return {"list": self.inner[0].need()} | (
                    {} if self.loose or self.inner[0].optional else {"required": True}
                )
            case "map":
                key, value = self.inner
                return {"map": [key.need(), value.need()]} | (
                    {} if self.loose or value.optional else {"required": True}
                )
            case "decimal" | "decimal-fixed":
                return f"decimal({min(self.size, 38)}, {self.scale})"
            case "fixed":
                return f"fixed[{self.size}]"
        return _KINDS.get(self.kind, self.kind)


def record(random: Random, struct: StructType, converter: str) -> Node:
    """A record's schema that mostly fits a table, of types that the converter's format has."""
    found = _Builder(random, converter in ("envelope", "json-schema")).struct(struct, "", False)
    if converter == "avro" and random.random() < 0.3:
        found = replace(found, inner=(*found.inner, _union(random)))
    return replace(_protobuf(random, found), optional=False) if converter == "protobuf" else found


def _union(random: Random) -> Node:
    """A field of several types, of which some look alike."""
    created = Node("struct", name="Created", inner=(Node("long", name="id"),))
    deleted = Node("struct", name="Deleted", inner=(Node("long", name="id"),))
    plain = [Node(kind, name=kind) for kind in ("int", "long", "float", "double", "string", "bytes", "boolean")]
    branches = random.sample([created, deleted, *plain], random.choice((2, 3)))
    return Node("union", random.random() < 0.5, "either", tuple(branches))


_PROTOBUF = {
    **dict.fromkeys(("date", "time-millis"), "int"),
    **dict.fromkeys(("decimal", "decimal-fixed", "fixed", "uuid", "uuid-fixed"), "bytes"),
    **dict.fromkeys(("time-micros", "local-timestamp-millis", "local-timestamp-micros"), "long"),
    "local-timestamp-nanos": "long",
    **dict.fromkeys(("timestamp-millis", "timestamp-nanos"), "timestamp-micros"),
}


def _protobuf(random: Random, node: Node, inside: bool = False) -> Node:
    """The nearest that Protobuf has: no lists or maps directly inside others, names of letters, messages may be missing,
    lists and maps never are.
    """
    kind = _PROTOBUF.get(node.kind, node.kind)
    if node.mean == SCALED:
        return replace(node, optional=not inside, loose=True, inner=tuple(replace(n, loose=True) for n in node.inner))
    if kind == "string" and node.name != "key" and random.random() < 0.3:
        kind = "enum"
    if kind == "long" and random.random() < 0.3:
        kind = random.choice(("uint32", "uint64"))
    if inside and kind in ("list", "map"):
        return Node("string", name=node.name, loose=True)
    match kind:
        case "struct":
            inner = tuple(_protobuf(random, n) for n in node.inner if n.name.isascii() and n.name.isidentifier())
            return Node(kind, not inside, node.name, inner or (Node("long", name="n1", loose=True),), loose=True)
        case "list" | "map":
            return Node(kind, False, node.name, tuple(_protobuf(random, n, True) for n in node.inner), loose=True)
    optional = not inside and (node.optional or kind == "timestamp-micros")
    return Node(kind, optional, node.name, size=node.size, loose=True)


def changed(random: Random, node: Node) -> Node:
    """The same schema some time later: fields are gone, new, wider or optional."""
    inner = []
    for field in node.inner:
        choice = random.random()
        wider = {"int": "long", "float": "double"}.get(field.kind)
        if choice < 0.2:
            continue
        if choice < 0.5 and wider and not field.mean:
            field = replace(field, kind=wider)
        elif choice < 0.6 and not node.loose:
            field = replace(field, optional=not field.optional)
        inner.append(field)
    names = {n.name for n in inner}
    if "later" not in names:
        kinds = ("long", "string", "double") if node.loose else ("long", "string", "double", "date")
        inner.append(Node(random.choice(kinds), True, "later", loose=node.loose))
    return replace(node, inner=tuple(inner))


_ODD = ("HasField", "DESCRIPTOR", "ListFields", "Clear", "class", "None", "SerializeToString", "Extensions")
"""Names that mean something else to the libraries."""
_BUILT = ("decimal-fixed", "uuid-fixed", "time-micros", "timestamp-micros")


class _Builder:
    def __init__(self, random: Random, envelope: bool) -> None:
        self._random, self._envelope = random, envelope

    def struct(self, struct: StructType, name: str, optional: bool) -> Node:
        random = self._random
        inner = [
            self.node(f.field_type, f.name, random.random() < (0.1 if f.required else 0.7))
            for f in struct.fields
            if random.random() < 0.93
        ]
        while random.random() < 0.2 or not inner:
            extra = random.choice(("new", "extra", "n1", "n2", *_ODD))
            if all(n.name != extra for n in inner):
                inner.append(self.node(schemas.primitive(random), extra, random.random() < 0.8))
        return Node("struct", optional, name, tuple(inner))

    def node(self, kind: IcebergType, name: str, optional: bool) -> Node:
        random = self._random
        if random.random() < 0.06:
            kind = schemas.primitive(random)
        match kind:
            case StructType():
                return self.struct(kind, name, optional)
            case ListType():
                element = self.node(kind.element_type, "element", random.random() < 0.5)
                return Node("list", optional, name, (element,))
            case MapType():
                value = self.node(kind.value_type, "value", random.random() < 0.5)
                return Node("map", optional, name, (Node("string", name="key"), value))
        return replace(self._primitive(kind), name=name, optional=optional)

    def _primitive(self, kind: IcebergType) -> Node:
        random = self._random
        name = str(kind).partition("(")[0].partition("[")[0]
        if name in meanings.FOR and random.random() < (0.2 if name in ("string", "int", "long", "double") else 0.5):
            any_name = random.random() < 0.15
            return meant(random.choice((*MEANINGS, SCALED) if any_name else meanings.FOR[name]))
        if isinstance(kind, DecimalType):
            if not self._envelope and random.random() < 0.4:
                scale = min(kind.scale, 38)
                return Node(random.choice(("decimal", "decimal-fixed")), size=random.choice((38, 40, 64)), scale=scale)
            change = random.choice((0, 0, 0, 1, -1))
            scale = max(0, min(kind.scale + change, 38))
            precision = max(1, scale, min(38, kind.precision + random.choice((0, 0, 1, -1))))
            return Node("decimal", size=precision, scale=scale)
        if isinstance(kind, FixedType):
            return Node("bytes") if self._envelope else Node("fixed", size=len(kind))
        choices = {
            "boolean": ("boolean", "boolean", "string"),
            "int": ("int", "int", "int", "long", "int8", "int16") if self._envelope else ("int", "int", "int", "long"),
            "long": ("long", "long", "int", "double"),
            "float": ("float", "float", "double", "int"),
            "double": ("double", "double", "float", "long"),
            "string": ("string", "string", "string", "enum", "long", "double", "float", "boolean", "decimal", "uuid"),
            "binary": ("bytes", "bytes", "fixed"),
            "uuid": ("uuid", "uuid-fixed", "string", "fixed"),
            "date": ("date", "date", "int", "timestamp-millis"),
            "time": ("time-millis", "time-micros", "int"),
            "timestamp": ("local-timestamp-micros", "local-timestamp-millis", "local-timestamp-nanos", "long", "date"),
            "timestamptz": (
                "timestamp-micros",
                "timestamp-millis",
                "timestamp-nanos",
                "local-timestamp-millis",
                "long",
            ),
        }[name]
        chosen = random.choice(choices)
        if self._envelope:
            chosen = {
                "fixed": "bytes",
                "uuid": "string",
                "uuid-fixed": "string",
                "enum": "string",
                "time-micros": "time-millis",
                "timestamp-micros": "timestamp-millis",
                "local-timestamp-millis": "timestamp-millis",
                "local-timestamp-micros": "timestamp-millis",
                "timestamp-nanos": "timestamp-millis",
                "local-timestamp-nanos": "timestamp-millis",
            }.get(chosen, chosen)
        if chosen == "decimal":
            return Node("decimal", size=38, scale=random.choice((0, 2, 10)))
        return Node(chosen, size=random.choice((1, 4, 16)))


def meant(name: str) -> Node:
    inner = (Node("int", name="scale"), Node("bytes", name="value")) if name == SCALED else ()
    return Node(MEANINGS[name].written, inner=inner, mean=name)


def any_json(random: Random, is_object: bool) -> Any:
    """A value of JSON as text, without blanks."""
    plain: tuple[Any, ...] = (
        True,
        False,
        5,
        -(2**62),
        0.5,
        "x",
        "é",
        "",
        [],
        {},
        [1, None, "a"],
        {"a": {"b": [Decimal("1.25")]}},
        {"id": None},
    )
    found: Any = random.choice([each for each in plain if isinstance(each, dict) or not is_object])
    return found


def value(random: Random, node: Node, number: int | None = None) -> Any:
    """A value of a schema."""
    if (node.optional or node.default is not None) and random.random() < 0.15:
        return None
    if node.mean:
        return meanings.value(random, node.mean)
    if node.make is not None:
        return node.make(random, node)
    match node.kind:
        case "struct":
            return {n.name: value(random, n, number if n.name == "id" else None) for n in node.inner}
        case "union":
            chosen = random.choice(node.inner)
            return {n.name: value(random, n) if n is chosen else None for n in node.inner}
        case "list":
            return [value(random, node.inner[0]) for _ in range(random.choice((0, 1, 1, 2, 3)))]
        case "json":
            return any_json(random, node.size == 2)
        case "map" if node.inner[0].kind != "string":
            made = {value(random, node.inner[0]): None for _ in range(random.choice((0, 1, 2, 3)))}
            return Pairs((k, value(random, node.inner[1])) for k in made if k == k)
        case "map":
            keys = {f"{random.choice(STRINGS[:20])}{random.randint(0, 3)}" for _ in range(random.choice((0, 1, 2, 3)))}
            return Pairs((k, value(random, node.inner[1])) for k in sorted(keys))
        case "boolean":
            return random.random() < 0.5
        case "uint32" | "uint64":
            top = 2 ** int(node.kind[4:]) - 1
            return random.choice((0, random.randint(0, 100), random.randint(0, top), top))
        case "int8" | "int16" | "int" | "long":
            bits = {"int8": 8, "int16": 16, "int": 32, "long": 64}[node.kind]
            if number is not None:
                return number % 100
            low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
            return random.choice((random.randint(low, high), random.randint(-100, 100), low, high))
        case "float" | "double":
            found = random.choice(
                (random.uniform(-1e3, 1e3), random.uniform(-1e38, 1e38), 0.1, -0.0, 1e7, 16777217.0, 3.0)
            )
            if random.random() < 0.05:
                found = random.choice((float("nan"), float("inf"), float("-inf")))
            return single(found) if node.kind == "float" else found
        case "string":
            return random.choice(STRINGS) if random.random() < 0.5 else f"text {random.randint(0, 999)}"
        case "enum":
            return random.choice(ENUM)
        case "bytes" | "fixed":
            return random.randbytes(node.size if node.kind == "fixed" else random.choice((0, 1, 4, 16, 20)))
        case "decimal" | "decimal-fixed":
            digits = random.randint(1, node.size if random.random() < 0.1 else min(node.size, 38))
            unscaled = random.choice((1, -1)) * random.randint(0, 10**digits - 1)
            with localcontext(prec=100):
                return Digits(Decimal(unscaled).scaleb(-node.scale))
        case "uuid" | "uuid-fixed":
            return uuid.UUID(int=random.getrandbits(128))
        case "date":
            return Day(random.randint(-40_000, 60_000))
        case "time-millis" | "time-micros":
            micros = random.choice((0, 86_399_999_000, random.randint(0, 86_399_999) * 1000))
            return Clock(micros + (random.randint(0, 999) if node.kind == "time-micros" else 0))
    if node.kind.endswith("nanos"):
        low, high = -(1 << 63), (1 << 63) - 1
        nanos = random.choice(
            (random.randint(low, high), random.randint(-(10**18), 10**18), low + random.randint(0, 900), high)
        )
        return Instant(nanos // 1000, nanos)
    micros = random.randint(-(10**12), 4 * 10**12) * 1000
    return Instant(micros + (random.randint(0, 999) if node.kind.endswith("micros") else 0))
