"""Types of new columns: what docs/reference/types.md says that values need, and how needs of several records become one.

A kind is the name of a primitive type; ``{"struct": {...}}`` with ``required`` names beside it; ``{"list": kind}`` and
``{"map": [key, value]}`` with ``required`` where elements or values are never null. None says nothing.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from unicodedata import category

from tests.fuzz.forms import Clock, Day, Instant, Short, Single

Kind = Any


def of_value(value: Any) -> Kind:
    """The type that a schemaless value needs. Moments, bytes, and numbers of 32 bits, are of transforms."""
    match value:
        case bool():
            return "boolean"
        case Short():
            return "int"
        case Single():
            return "float"
        case Day():
            return "date"
        case Clock():
            return "time"
        case Instant():
            return "timestamptz"
        case int():
            return "long" if -(2**63) <= value < 2**63 else "decimal(38, 0)" if abs(value) < 10**38 else "string"
        case float() | Decimal():
            return "double"
        case str():
            return "string"
        case bytes():
            return "binary"
        case dict():
            fields = {name: kind for name, item in value.items() if (kind := of_value(item)) is not None}
            return {"struct": fields} if fields else None
        case list():
            element = None
            for item in value:
                element = merge(element, of_value(item))
            return None if element is None else {"list": element}
    return None


def folded(kind: Kind) -> Kind:
    """With names in lower case. What several names that become one need, is merged."""
    match kind:
        case {"struct": fields}:
            found: dict[str, Kind] = {}
            for name, inner in fields.items():
                found[name.lower()] = merge(found.get(name.lower()), folded(inner))
            return {"struct": found}
        case {"list": element}:
            return {"list": folded(element)}
    return kind


def paths(kind: Kind) -> list[tuple[str, ...]]:
    """Of everything inside a kind."""
    match kind:
        case {"struct": fields}:
            inner = fields
        case {"list": element}:
            inner = {"element": element}
        case {"map": [key, value]}:
            inner = {"key": key, "value": value}
        case _:
            return []
    return [(name, *rest) for name, item in inner.items() for rest in ((), *paths(item))]


def name_of(kind: Kind) -> str:
    """The name of a type, without its parameters."""
    name = kind if isinstance(kind, str) else next(iter(kind))
    return name.partition("(")[0].partition("[")[0]


def is_name(name: str) -> bool:
    """Whether a column may have this name."""
    return 0 < len(name.encode()) <= 255 and all(category(sign) != "Cc" for sign in name)


def depth(kind: Kind) -> int:
    """Levels of structs, lists and maps."""
    return max((len(path) for path in paths(kind)), default=0)


_NUMBERS = ("int", "long", "float", "double")


def merge(a: Kind, b: Kind) -> Kind:
    """The narrowest kind for both."""
    if a is None or b is None or a == b:
        return b if a is None else a
    if isinstance(a, dict) and isinstance(b, dict):
        return _merge_nested(a, b)
    if isinstance(a, str) and isinstance(b, str):
        if a in _NUMBERS and b in _NUMBERS:
            return "double" if {a, b} == {"long", "float"} else max(a, b, key=_NUMBERS.index)
        if "decimal" in a + b:
            return _merge_decimals(a, b)
    return "string"


def _merge_nested(a: Kind, b: Kind) -> Kind:
    both = {"required": True} if a.get("required") and b.get("required") else {}
    if "struct" in a and "struct" in b:
        names = [*a["struct"], *(n for n in b["struct"] if n not in a["struct"])]
        required = [n for n in a.get("required", ()) if n in b.get("required", ())]
        merged = {"struct": {n: merge(a["struct"].get(n), b["struct"].get(n)) for n in names}}
        return merged | ({"required": required} if required else {})
    if "list" in a and "list" in b:
        return {"list": merge(a["list"], b["list"])} | both
    if "map" in a and "map" in b:
        return {"map": [merge(x, y) for x, y in zip(a["map"], b["map"], strict=True)]} | both
    return "string"


def _merge_decimals(a: str, b: str) -> Kind:
    if {"double", "float"} & {a, b}:
        return "double"
    digits = []
    for kind in (a, b):
        if kind in ("int", "long"):
            digits.append((10, 0) if kind == "int" else (19, 0))
        elif kind.startswith("decimal"):
            precision, places = kind[8:-1].split(",")
            digits.append((int(precision), int(places)))
        else:
            return "string"
    scale = max(s for _, s in digits)
    whole = max(p - s for p, s in digits)
    return f"decimal({whole + scale}, {scale})" if whole + scale <= 38 else "string"
