"""Values of a ``oneOf`` of JSON Schema, and the branch of each, by docs/reference/converters.md: the one that keeps most of the
value's fields, at any depth, and the first of equal ones. One whose constants disagree counts only if no other fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tests.fuzz.nodes import Node

KINDS = {"boolean": "boolean", "long": "integer", "double": "number", "string": "string"}
_NAME = "io.confluent.connect.json.OneOf.field."
_FIELDS = ("type", "a", "b", "c", "id")


class OneOf(dict[str, Any]):
    """A struct of which one field is set. ``written``: the value in JSON."""

    written: Any


def drawn(random: Random, name: str) -> Node:
    """A union of several types, of which some look alike."""
    branches = [_branch(random, 2) for _ in range(random.choice((2, 2, 3)))]
    if random.random() < 0.3:
        branches = [Node(kind) for kind in random.sample([*KINDS], 2)]
    elif random.random() < 0.3:
        branches[random.randrange(len(branches))] = _union(random, [_branch(random, 1), _branch(random, 1)])
    return replace(_union(random, branches), optional=random.random() < 0.5, name=name, make=_drawn_value)


def _union(random: Random, branches: Sequence[Node]) -> Node:
    inner = tuple(replace(branch, name=f"{_NAME}{place}") for place, branch in enumerate(branches))
    return Node("one-of", inner=inner, form=random.randrange(1, 1 << 16))


def _branch(random: Random, depth: int, constant: bool = False) -> Node:
    """``constant``: it may be the text that tells the branch. That stands in ``default``."""
    form = random.randrange(1, 1 << 16)
    if constant and random.random() < 0.6:
        return Node("string", default=random.choice(("cat", "dog")), form=form)
    choice = random.random() if depth else 1
    if choice < 0.5:
        names = random.sample(_FIELDS, random.randint(1, 3))
        fields = (_branch(random, depth - 1, name == "type") for name in names)
        inner = (replace(f, name=n, optional=random.random() < 0.5) for f, n in zip(fields, names, strict=True))
        return Node("struct", inner=tuple(inner), form=form)
    if choice < 0.65:
        return Node("list", inner=(_branch(random, depth - 1),), form=form)
    return Node(random.choice([*KINDS]), form=form)


def _drawn_value(random: Random, node: Node) -> OneOf:
    while True:
        written = _value(random, random.choice(node.inner))
        if any(_fit(branch, written) is not None for branch in node.inner):
            return read(node, written)


def read(node: Node, written: Any) -> OneOf:
    """A value of JSON that fits a branch."""
    fits = [(n, _fit(n, written)) for n in node.inner if _agrees(n, written)]
    fits = [(n, fit) for n, fit in fits if fit is not None] or [
        (n, fit) for n in node.inner if (fit := _fit(n, written)) is not None
    ]
    most = max(fit or 0 for _, fit in fits)
    chosen = next(n for n, fit in fits if fit == most)
    found = OneOf({n.name: _read(n, written) if n is chosen else None for n in node.inner})
    found.written = written
    return found


def _agrees(node: Node, written: Any) -> bool:
    if node.kind != "struct" or not isinstance(written, dict):
        return True
    return all(written[n.name] == n.default for n in node.inner if n.default and n.name in written)


def _fit(node: Node, written: Any) -> int | None:
    """How many fields a branch keeps; None: it is none of the branch."""
    match node.kind:
        case "boolean":
            return 0 if isinstance(written, bool) else None
        case "long":
            return (
                0
                if isinstance(written, int | float)
                and not isinstance(written, bool)
                and written % 1 == 0
                and abs(written) < 2**63
                else None
            )
        case "double":
            return 0 if isinstance(written, int | float) and not isinstance(written, bool) else None
        case "string":
            return 0 if isinstance(written, str) else None
        case "list":
            return _sum([_fit(node.inner[0], item) for item in written]) if isinstance(written, list) else None
        case "one-of":
            return max((fit for n in node.inner if (fit := _fit(n, written)) is not None), default=None)
    if not isinstance(written, dict):
        return None
    inner = [_of_field(n, written.get(n.name)) for n in node.inner]
    kept = sum(n.name in written for n in node.inner)
    total = _sum(inner)
    return None if total is None else total + kept


def _of_field(node: Node, written: Any) -> int | None:
    if written is None:
        return 0 if node.optional else None
    return _fit(node, written)


def _sum(fits: Sequence[int | None]) -> int | None:
    found = [fit for fit in fits if fit is not None]
    return sum(found) if len(found) == len(fits) else None


def _read(node: Node, written: Any) -> Any:
    match node.kind:
        case _ if written is None:
            return None
        case "one-of":
            return read(node, written)
        case "long":
            return int(written)
        case "double":
            return float(written)
        case "list":
            return [_read(node.inner[0], item) for item in written]
        case "struct":
            return {n.name: _read(n, written.get(n.name)) for n in node.inner}
    return written


def _value(random: Random, node: Node) -> Any:
    match node.kind:
        case "boolean":
            return random.random() < 0.5
        case "long":
            return random.choice((5, -1, 2**40, 7.0))
        case "double":
            return random.choice((0.5, 3, 4.0, -2.25, 1e300))
        case "string":
            return (
                node.default
                if node.default and random.random() < 0.9
                else random.choice(("x", "", "cat", "NaN", "true"))
            )
        case "one-of":
            return _value(random, random.choice(node.inner))
        case "list":
            return [_value(random, node.inner[0]) for _ in range(random.randint(0, 2))]
    found = {n.name: _value(random, n) for n in node.inner if not n.optional or random.random() < 0.7}
    if random.random() < 0.3:
        found.setdefault(random.choice(_FIELDS), random.choice((5, "x", True, None)))
    return found
