"""Sentences about mistakes in a configuration, in place of those of the libraries that find them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

_UNITS = {"ms": "milliseconds", "timeout": "milliseconds", "bytes": "bytes", "seconds": "seconds"}
_BOUNDS = {
    "greater_than": "more than",
    "greater_than_equal": "at least",
    "less_than": "less than",
    "less_than_equal": "at most",
}


def wrong_value(key: str, error: Mapping[str, Any]) -> str:
    """What a key's value must be. ``error``: one of pydantic's."""
    kind, bounds = str(error["type"]), error.get("ctx", {})
    unit = next((name for end, name in _UNITS.items() if re.search(rf"[.-]{end}$", key)), "")
    of_unit = f" of {unit}" if unit else ""
    match kind.partition("_")[0]:
        case "int":
            return f"must be a whole number{of_unit}"
        case "float":
            return f"must be a number{of_unit}"
        case "bool":
            return "must be true or false"
        case "literal" | "enum":
            return f"must be {bounds.get('expected')}"
        case "greater" | "less":
            (bound,) = bounds.values()
            return f"must be {_BOUNDS[kind]} {bound} {unit}".rstrip()
        case "string" | "too" if "min_length" in bounds:
            return f"must have at least {bounds['min_length']} characters"
    return str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")


def missing(key: str, given: Iterable[str], prefix: str) -> str:
    """The end of a sentence about a missing key: the key that may have been meant for it."""
    near = difflib.get_close_matches(key, given, 1, 0.7)
    return f"; is '{prefix}{near[0]}' meant for it?" if near else ""


def meant(text: str, known: Collection[str], likeness: float, prefix: str = "") -> str:
    """The end of a sentence about an unknown text: the known one that may have been meant, with this prefix."""
    near = difflib.get_close_matches(text, known, 1, likeness)
    return f"; did you mean '{prefix}{near[0]}'?" if near else ""


def meant_key(key: str, known: Collection[str], prefix: str = "") -> str:
    """As ``meant``, for a key whose beginning may be missing."""
    ends = {".".join(parts[i:]): name for name in known for parts in [name.split(".")] for i in range(1, len(parts))}
    near = difflib.get_close_matches(key, ends, 1, 0.7)
    return meant(key, known, 0.6, prefix) or (f"; did you mean '{prefix}{ends[near[0]]}'?" if near else "")
