"""Types of new columns: what docs/types.md says that values need, and how needs of several records become one.

A kind is ``long``, ``double``, ``boolean``, ``string``, ``decimal(38, 0)``; ``{"struct": {...}}``; ``{"list": kind}``; None
says nothing.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

Kind = Any


def of_value(value: Any) -> Kind:
    """What a schemaless value needs."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "long" if -(2**63) <= value < 2**63 else "decimal(38, 0)" if abs(value) < 10**38 else "string"
        case float() | Decimal():
            return "double"
        case str():
            return "string"
        case dict():
            fields = {name: kind for name, item in value.items() if (kind := of_value(item)) is not None}
            return {"struct": fields} if fields else None
        case list():
            element = None
            for item in value:
                element = merge(element, of_value(item))
            return None if element is None else {"list": element}
    return None


def merge(a: Kind, b: Kind) -> Kind:
    """The narrowest kind for both."""
    if a is None or b is None or a == b:
        return b if a is None else a
    if isinstance(a, dict) and isinstance(b, dict):
        if "struct" in a and "struct" in b:
            names = [*a["struct"], *(n for n in b["struct"] if n not in a["struct"])]
            return {"struct": {n: merge(a["struct"].get(n), b["struct"].get(n)) for n in names}}
        if "list" in a and "list" in b:
            return {"list": merge(a["list"], b["list"])}
        return "string"
    if isinstance(a, str) and isinstance(b, str):
        if "double" in (a, b) and {a, b} <= {"long", "double", "decimal(38, 0)"}:
            return "double"
        if {a, b} == {"long", "decimal(38, 0)"}:
            return "decimal(38, 0)"
    return "string"
