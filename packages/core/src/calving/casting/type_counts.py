"""Counts the types that schemaless values need for a new column, so that a few values do not decide for all.

The counts are a plain value that is sent as JSON. ``kinds`` counts values by the kind that each needs. ``examples``
holds some of the values. ``fields`` has such counts for each field of objects, and ``inside`` for the elements of
arrays, or for the keys and values of maps. The counts of all tasks are added up, so it does not matter which task reads
a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calving.casting.numbers import short
from calving.records.inferred import InferredType, merge

Seen = dict[str, Any]

_EXAMPLES = 3
_NUMBERS = ("int", "long", "float", "double")


def seen_of(kind: InferredType, times: int = 1, value: object = None) -> Seen:
    """The counts for ``times`` values of this kind. ``value``: one of these values, as an example."""
    name = kind if isinstance(kind, str) else next(iter(kind))
    seen: Seen = {"kinds": {name: times}}
    if value is not None:
        seen["examples"] = {name: [short(value)]}
    if name == "struct":
        given = value if isinstance(value, Mapping) else {}
        seen["fields"] = {field: seen_of(inner, times, given.get(field)) for field, inner in kind["struct"].items()}
    elif name in ("list", "map"):
        parts = kind["map"] if name == "map" else [kind["list"]]
        seen["inside"] = {name: [None if part is None else seen_of(part, times, value) for part in parts]}
    return seen


def join(seen: Seen, other: Seen, *, fold: bool = False) -> None:
    """Add the counts of other values. ``fold``: names of fields that differ only by case are one name."""
    for name, count in other["kinds"].items():
        seen["kinds"][name] = seen["kinds"].get(name, 0) + count
    for name, texts in other.get("examples", {}).items():
        known = seen.setdefault("examples", {}).get(name, [])
        if len(known) < _EXAMPLES or texts[0] < known[-1]:
            seen["examples"][name] = sorted({*known, *texts})[:_EXAMPLES]
    _join_fields(seen, other.get("fields", {}), fold=fold)
    for name, parts in other.get("inside", {}).items():
        mine = seen.setdefault("inside", {}).setdefault(name, [None] * len(parts))
        for place, part in enumerate(parts):
            if part is not None:
                mine[place] = _joined(mine[place], part, fold=fold)


def _join_fields(seen: Seen, others: Mapping[str, Seen], *, fold: bool) -> None:
    if not others:
        return
    mine = seen.setdefault("fields", {})
    spelt = {name.lower(): name for name in mine} if fold else {}
    for name, part in others.items():
        known = spelt.get(name.lower(), name) if fold else name
        there = mine.pop(known, None) if name < known else mine.get(known)
        mine[min(name, known)] = _joined(there, part, fold=fold)


def _joined(seen: Seen | None, other: Seen, *, fold: bool) -> Seen:
    if seen is None:
        seen = {"kinds": {}}
    join(seen, other, fold=fold)
    return seen


@dataclass(frozen=True, slots=True)
class OutvotedValues:
    """Values that do not fit the type of their column, because the other values decide this type."""

    path: tuple[str, ...]
    """The path to the column through structs. Paths do not lead into elements of lists and maps: they belong to the
    column.
    """
    kind: InferredType
    """The type that the other values need."""
    kept: int
    needs: str
    count: int
    examples: tuple[str, ...]
    all: InferredType
    """The type that would hold these values, too."""


@dataclass(slots=True)
class ColumnType:
    """The type of a column, the type that all its values need, and the values that do not decide."""

    kind: InferredType | None
    all: InferredType | None
    outvoted: list[OutvotedValues] = field(default_factory=list)


def decide(seen: Seen, share: float, path: tuple[str, ...] = ()) -> ColumnType:
    """The narrowest kind for the values of a column. The rarest kinds, which together have at most ``share`` of the
    values, do not count.
    """
    families = [_family(seen, names, share, path) for names in _families(seen["kinds"])]
    kept, dropped = _parted(families, share)
    kind, whole = _merged(decision.kind for _, decision in kept), _merged(decision.all for _, decision in families)
    dropped = [(count, decision) for count, decision in dropped if merge(kind, decision.kind) != kind]
    others = sum(seen["kinds"].values()) - sum(count for count, _ in dropped)
    inner = _all_outvoted(decision for _, decision in kept)
    for count, decision in dropped:
        needs = _name(decision.kind)
        inner.append(
            OutvotedValues(
                path=path, kind=kind, kept=others, needs=needs, count=count, examples=_examples(seen, needs), all=whole
            )
        )
    return ColumnType(kind, whole, inner)


Family = tuple[int, ColumnType]
"""The values whose kinds widen into each other: their number, and the type that they need together."""


def _parted(families: Sequence[Family], share: float) -> tuple[list[Family], list[Family]]:
    """The families that decide, and the smallest families, which together have at most this share of the values."""
    ranked = sorted(families, key=lambda family: (family[0], str(family[1].kind)))
    most = share * sum(count for count, _ in ranked)
    sums = [sum(count for count, _ in ranked[: n + 1]) for n in range(len(ranked) - 1)]
    few = sum(1 for total in sums if total <= most)
    return [family for family in families if family not in ranked[:few]], ranked[:few]


def _families(kinds: Mapping[str, int]) -> list[list[str]]:
    """Kinds grouped by lossless widening: all numbers are one group."""
    numbers = [name for name in _NUMBERS if name in kinds]
    return ([numbers] if numbers else []) + [[name] for name in sorted(kinds) if name not in _NUMBERS]


def _family(seen: Seen, names: list[str], share: float, path: tuple[str, ...]) -> Family:
    count, name = sum(seen["kinds"][name] for name in names), names[0]
    if name == "struct":
        return count, _struct(seen["fields"], share, path)
    if name in ("list", "map"):
        return count, _inside(name, seen["inside"][name], share, path)
    kind = _merged(names)
    return count, ColumnType(kind, kind)


def _struct(fields: Mapping[str, Seen], share: float, path: tuple[str, ...]) -> ColumnType:
    decisions = {name: decide(inner, share, (*path, name)) for name, inner in fields.items()}
    kinds = {name: decision.kind for name, decision in decisions.items()}
    whole = {name: decision.all for name, decision in decisions.items()}
    return ColumnType({"struct": kinds}, {"struct": whole}, _all_outvoted(decisions.values()))


def _inside(name: str, seen: Sequence[Seen | None], share: float, path: tuple[str, ...]) -> ColumnType:
    parts = [ColumnType(None, None) if part is None else decide(part, share, path) for part in seen]
    inner = _all_outvoted(parts)
    if name == "map":
        return ColumnType({"map": [part.kind for part in parts]}, {"map": [part.all for part in parts]}, inner)
    return ColumnType({"list": parts[0].kind}, {"list": parts[0].all}, inner)


def _all_outvoted(decisions: Iterable[ColumnType]) -> list[OutvotedValues]:
    return [one for decision in decisions for one in decision.outvoted]


def _merged(kinds: Iterable[InferredType | None]) -> InferredType | None:
    merged: InferredType | None = None
    for kind in kinds:
        merged = merge(merged, kind)
    return merged


def _name(kind: InferredType) -> str:
    return kind if isinstance(kind, str) else str(next(iter(kind)))


def _examples(seen: Seen, name: str) -> tuple[str, ...]:
    """Examples of values of a kind. For a kind of number, values of any kind of number."""
    names = _NUMBERS if name in _NUMBERS else (name,)
    given = seen.get("examples", {})
    return tuple(sorted(text for each in names for text in given.get(each, ()))[:_EXAMPLES])
