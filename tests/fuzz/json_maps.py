"""Texts for JsonToMapTransform, and what it makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

from calving.model.record_path import TransformSpec
from tests.fuzz.chain import CHANGES, SINK, Options, Record, Refused
from tests.fuzz.forms import Pairs, java_double
from tests.fuzz.nodes import Node
from tests.fuzz.oracle import Typed


def texts(random: Random, names: Sequence[str], count: int) -> tuple[list[bytes | None], list[Any]]:
    """Texts, of which most are JSON objects, and their values."""
    names = ["a1", "b1", "c1", *(name for name in names if name != "id")][:6]
    raws: list[bytes | None] = []
    # Each type of records takes time.
    alike = [_object(random, names) for _ in range(30 if count >= 500 else 0)]
    for number in range(count):
        value = {"id": number % 100, **(random.choice(alike) if alike else _object(random, names))}
        if "text" in value:  # no two records are the same
            value["text"] = f"{value['text']} {number}"
        raws.append(json.dumps(value, ensure_ascii=random.random() < 0.5).encode())
        if random.random() < 0.02:
            raws[-1] = random.choice((b"[1]", b"{", b"5", b'"x"', b"", None, b'{"id":1}x'))
    text = Node("string", True)
    return raws, [None if raw is None else Typed(raw.decode(), text) for raw in raws]


def _object(random: Random, names: Sequence[str]) -> dict[str, Any]:
    found = {name: _any(random, 2) for name in random.sample(names, random.randint(0, len(names)))}
    return found | ({"text": random.choice(("x", "é", '"'))} if random.random() < 0.8 else {})


def _any(random: Random, depth: int) -> Any:
    plain = (None, True, False, 5, -(2**40), 2**70, 0.1, 1.5, "x", "", "é", 2**31)
    if depth and random.random() < 0.3:
        return {name: _any(random, depth - 1) for name in random.sample("xyz", random.randint(0, 3))}
    if depth and random.random() < 0.3:
        alike = random.choice(((1, 2**40), (True,), ("x", "y"), (0.5,), (None,), plain))
        items = [random.choice(alike) for _ in range(random.randint(0, 3))]
        return items if random.random() < 0.8 else [{"k": item} for item in items]
    return random.choice(plain)


def step(random: Random) -> TransformSpec:
    options = random.choice(({}, {}, {"json.root": "true"}, {"json.root": "false"}))
    return TransformSpec("json", random.choice(("", SINK)) + "JsonToMapTransform", options)


_MAP = Node("map", True, inner=(Node("string", name="key"), Node("string", True, "value")))


def _parsed(record: Record, options: Options) -> Record:
    value = record.value.value if isinstance(record.value, Typed) else record.value
    if not isinstance(value, str):
        raise Refused("no text")
    try:
        fields = json.loads(value, parse_float=Decimal)
    except ValueError:
        raise Refused("no JSON") from None
    if not isinstance(fields, dict):
        raise Refused("no object")
    made = {"payload": (_texts(fields), _MAP)} if options.get("json.root") == "true" else {}
    if not made:
        kinds = {name: _kind(item) for name, item in fields.items()}
        made = {name: (_fit(fields[name], kind), kind) for name, kind in kinds.items() if kind is not None}
    inner = tuple(replace(kind, name=name) for name, (_, kind) in made.items())
    return replace(record, value=Typed({name: item for name, (item, _) in made.items()}, Node("struct", inner=inner)))


def _kind(value: Any) -> Node | None:
    match value:
        case None:
            return None
        case bool():
            return Node("boolean", True)
        case int():
            bits = next((kind for kind, n in (("int", 31), ("long", 63)) if -(1 << n) <= value < 1 << n), None)
            return Node(bits, True) if bits else Node("decimal", True, size=38)
        case Decimal():
            return Node("double", True)
        case str():
            return Node("string", True)
        case dict():
            return _MAP if value else None
    if not value:
        return None
    if all(isinstance(item, dict) for item in value):
        return Node("list", True, inner=(replace(_MAP, name="element"),))
    kinds = [_kind(item) for item in value]
    same = kinds[0] is not None and all(kind == kinds[0] for kind in kinds)
    element = kinds[0] if same and kinds[0] is not None and kinds[0].kind != "map" else Node("string", True)
    return Node("list", True, inner=(replace(element, name="element"),))


def _fit(value: Any, kind: Node) -> Any:
    match kind.kind:
        case "map":
            return _texts(value)
        case "list":
            return [_fit(item, kind.inner[0]) for item in value]
        case "string":
            return _text(value)
        case "double":
            return float(value)
    return value


def _texts(value: dict[str, Any]) -> Pairs:
    return Pairs((name, _text(item)) for name, item in value.items())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    match value:
        case Decimal():
            return java_double(float(value))
        case dict():
            return "{" + ",".join(f"{_json(name)}:{_json(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


CHANGES["JsonToMapTransform"] = _parsed
