"""Calls in a query of the transform ``Sql`` that no bound holds for, or that read what is not in the record."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Node = Mapping[str, Any]
Constant = Callable[[Node], str | None]
"""Returns the text of an expression without columns; None if it has some."""

_OF_MACHINE = {"getenv", "glob", "vector_type"}
"""Functions that read what is not in the record. DuckDB would refuse them with each record only, or not at all."""

_OF_SQL = {"json_serialize_sql", "json_deserialize_sql", "json_serialize_plan"}
"""Functions that parse a text as a query."""

_DESCENDING = {"json_structure", "json_merge_patch", "json_contains", "json_pretty"}
"""Functions that would overflow the stack with JSON of many levels (``sql_texts``)."""
_PASSING = {
    *("->", "->>", "json", "json_extract", "json_extract_string", "to_json", "json_object", "json_array"),
    *("struct_extract", "struct_pack", "array_extract", "list_value", "row", "coalesce", "decode", "lower", "upper"),
}
"""Functions that make no JSON of more levels than their arguments have, but for one."""

_COMPARE = {"levenshtein", "editdist3", "damerau_levenshtein"}
"""Functions whose time grows with the product of the lengths of two texts."""
_SHORT = 10_000
"""The most characters of texts that these functions may compare."""

_LIKE = {
    **dict.fromkeys(("~~", "!~~", "like_escape", "not_like_escape"), ("LIKE", "%")),
    **dict.fromkeys(("~~*", "!~~*", "ilike_escape", "not_ilike_escape"), ("ILIKE", "%")),
    "~~~": ("GLOB", "*"),
}
"""Functions of patterns: what a query calls them, and the wildcard that any text fits. A text that does not fit is read
again from each place at which a wildcard may end."""
_STEPS = 10**7
"""Steps that one of these functions may take for one text."""
_REGEX = {
    *("regexp_matches", "regexp_full_match", "regexp_replace", "regexp_extract", "regexp_extract_all"),
    *("regexp_split_to_array", "string_split_regex", "str_split_regex", "split_regex"),
}
"""Functions of regular expressions. The time grows with the product of the lengths of text and pattern."""


def refusal(part: Node, constant: Constant) -> str | None:
    """Why a query with this part is refused; None if it is not."""
    if part.get("class") == "FUNCTION":
        name = part["function_name"]
        if name.lower() in _OF_MACHINE | _OF_SQL:
            return f"the function {name}"
        if name.lower() in _COMPARE and not all(map(_is_short, part["children"])):
            return f"{name} of a text of any length: write {name}(left(a, {_SHORT}), left(b, {_SHORT})), or less"
        if name.lower() in _REGEX and len(part["children"]) > 1 and constant(part["children"][1]) is None:
            return f"{name} with a pattern that is not a constant"
    return _made_json(part) or _slow_pattern(part, constant)


def _slow_pattern(call: Node, constant: Constant) -> str | None:
    """A pattern for which the time grows faster than the length of a text."""
    name = str(call.get("function_name", "")).lower()
    if name not in _LIKE:
        return None
    (word, wildcard), (text, pattern, *escape) = _LIKE[name], call["children"]
    shape, escaping = constant(pattern), constant(*escape) if escape else ""
    if shape is None or escaping is None:
        return f"{word} with a pattern that is not a constant: use contains, starts_with or regexp_matches"
    starts = _starts(shape, wildcard, escaping)
    if name in ("~~", "!~~") and "_" not in shape:
        return None  # DuckDB searches for the parts, one after the other
    length = int(_STEPS ** (1 / max(starts, 1)) + 1e-6)
    if starts <= 1 or _is_short(text, length):
        return None
    return (
        f"{word} with {starts} wildcards within, of a text of any length: write left(a, {length}), or"
        " regexp_matches(a, '(?is)one.*other')"
    )


def _starts(pattern: str, wildcard: str, escape: str) -> int:
    """The wildcards for any text that stand before something else."""
    if escape:
        pattern = re.sub(re.escape(escape) + ".", "x", pattern, flags=re.DOTALL)
    if wildcard == "*":
        pattern = re.sub(r"\[.[^]]*\]", "x", pattern, flags=re.DOTALL)
    return len(re.findall(f"{re.escape(wildcard)}(?!{re.escape(wildcard)}|\\Z)", pattern))


def _is_short(node: Node, length: int = _SHORT) -> bool:
    """Whether a text is a constant, or has a constant as its greatest length."""
    if node["class"] == "CAST":
        return _is_short(node["child"], length)
    if node["class"] != "FUNCTION":
        return bool(node["class"] == "CONSTANT")
    name, children = node["function_name"].lower(), node["children"]
    if name in _OF_SAME_LENGTH:
        return _is_short(children[0], length)
    place = _LENGTHS.get(name)
    if place is None or place >= len(children) or children[place]["class"] != "CONSTANT":
        return False
    return children[place]["value"].get("value") in range(length + 1)


_OF_SAME_LENGTH = {"lower", "upper", "lcase", "ucase", "trim", "ltrim", "rtrim", "reverse"}
_LENGTHS = {"left": 1, "right": 1, "substr": 2, "substring": 2}
"""The arguments of functions that are the greatest lengths of their results."""


def _made_json(part: Node) -> str | None:
    """JSON that the query makes, for a function that descends into it: nobody has counted its levels."""
    if part.get("class") == "CAST" and "variant" in json.dumps(part["cast_type"]).lower():
        name, arguments = "a cast to VARIANT", [part["child"]]
    elif part.get("class") == "FUNCTION" and part["function_name"].lower() in _DESCENDING:
        name, arguments = part["function_name"], part["children"]
    else:
        return None
    makers = [inner for argument in arguments for inner in parts_of(argument) if inner.get("class") == "FUNCTION"]
    made = [inner["function_name"] for inner in makers if inner["function_name"].lower() not in _PASSING | _DESCENDING]
    return f"{name} of what {made[0]} makes: it takes columns, and parts of their JSON" if made else None


def reads_json(part: Node) -> bool:
    """Whether a part of a query may read JSON within a text."""
    name = str(part.get("function_name", "")).lower()
    kind = json.dumps(part.get("cast_type")).lower() if part.get("class") == "CAST" else ""
    return name in ("->", "->>") or any(word in name or word in kind for word in ("json", "variant"))


def parts_of(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects of a syntax tree."""
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for item in tree:
            yield from parts_of(item)
