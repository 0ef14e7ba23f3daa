"""Random transforms, and what each makes of one value: docs/reference/transforms.md in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

from calving.model.record_path import PredicateSpec, TransformSpec
from tests.fuzz.fates import TOMBSTONE, Dead, Filtered
from tests.fuzz.nodes import Node
from tests.fuzz.oracle import Typed

_CONNECT = "org.apache.kafka.connect.transforms."
MOMENT = 1_767_225_600_000
"""When all records were sent, in milliseconds."""
BAD = Dead("TRANSFORMATION")

Change = Callable[[dict[str, Any], TransformSpec], Any]


class Refused(Exception):
    """The transform cannot take the value."""


def specs(random: Random, names: Sequence[str], *, typed: bool) -> tuple[TransformSpec, ...]:
    """One to three transforms that mostly meet fields of these names."""
    kinds = [_insert, _replace] if typed else [*_MADE]
    chosen = [random.choice(kinds) for _ in range(random.choice((1, 1, 2, 3)))]
    return tuple(make(random, f"step{i}", random.choice(names or ("a",))) for i, make in enumerate(chosen))


def transformed(value: Any, chain: Sequence[TransformSpec]) -> Any:
    """A decoded value after all steps, or its fate."""
    if isinstance(value, Dead | Filtered) and value != TOMBSTONE:
        return value
    value = None if value == TOMBSTONE else value
    for spec in chain:
        if spec.predicate is not None:
            if value is None:
                return Filtered(f"transform {spec.name}")
        elif isinstance(value, Typed):
            value = _typed(value, spec)
        else:
            value = _schemaless(value, spec)
        if value == BAD:
            return value
    return TOMBSTONE if value is None else value


def _schemaless(value: Any, spec: TransformSpec) -> Any:
    kind = spec.type.removeprefix(_CONNECT).removesuffix("$Value")
    if value is None or kind == "HoistField":
        return {spec.options["field"]: value} if kind == "HoistField" else None
    if not isinstance(value, dict):
        return BAD
    try:
        return _CHANGES[kind](value, spec)
    except Refused:
        return BAD


def _typed(value: Typed, spec: TransformSpec) -> Any:
    """Also its schema changes."""
    inner = value.node.inner
    try:
        if "static.field" in spec.options:
            name = spec.options["static.field"]
            if any(n.name == name for n in inner):
                return BAD
            inner = (*inner, Node("string", True, name, loose=value.node.loose))
        else:
            renamed = _replaced({n.name: n for n in inner}, spec)
            inner = tuple(replace(n, name=name) for name, n in renamed.items())
        return Typed(_schemaless(value.value, spec), replace(value.node, inner=inner))
    except Refused:
        return BAD


def _replaced(value: dict[str, Any], spec: TransformSpec) -> dict[str, Any]:
    renames = dict(pair.split(":") for pair in spec.options.get("renames", "").split(",") if pair)
    kept = [n for n in value if n != spec.options.get("exclude")]
    found = {renames.get(n, n): value[n] for n in kept}
    if len(found) < len(kept):
        raise Refused("two fields of one name")
    return found


def _flat(value: dict[str, Any], spec: TransformSpec) -> dict[str, Any]:
    def leaves(inner: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, item in inner.items():
            name = f"{prefix}{spec.options['delimiter']}{name}" if prefix else name
            yield from leaves(item, name) if isinstance(item, dict) else [(name, item)]

    pairs = list(leaves(value, ""))
    if len({name for name, _ in pairs}) < len(pairs):
        raise Refused("two fields of one name")
    return dict(pairs)


def _mask(value: Any) -> Any:
    match value:
        case None:
            return None
        case Decimal():
            return Decimal("0.0")
    return type(value)()


_CHANGES: dict[str, Change] = {
    "SetSchemaMetadata": lambda v, _: v,
    "InsertField": lambda v, s: (
        v
        | (
            {s.options["static.field"]: "said"}
            if "static.field" in s.options
            else {s.options["timestamp.field"]: MOMENT}
        )
    ),
    "ReplaceField": _replaced,
    "Flatten": _flat,
    "MaskField": lambda v, s: {n: _mask(item) if n == s.options["fields"] else item for n, item in v.items()},
    "ExtractField": lambda v, s: v.get(s.options["field"]),
    "CopyValue": lambda v, s: v | {s.options["target.field"]: v.get(s.options["source.field"])},
}


def _insert(random: Random, step: str, name: str) -> TransformSpec:
    options = {"static.field": random.choice((name, "new")), "static.value": "said"}
    return TransformSpec(step, f"{_CONNECT}InsertField$Value", options)


def _insert_moment(random: Random, step: str, name: str) -> TransformSpec:
    return TransformSpec(step, f"{_CONNECT}InsertField$Value", {"timestamp.field": random.choice((name, "ts"))})


def _replace(random: Random, step: str, name: str) -> TransformSpec:
    options = random.choice(({"exclude": name}, {"renames": f"{name}:new"}, {"renames": f"new:{name}", "exclude": "b"}))
    return TransformSpec(step, f"{_CONNECT}ReplaceField$Value", options)


def _flatten(random: Random, step: str, name: str) -> TransformSpec:
    return TransformSpec(step, f"{_CONNECT}Flatten$Value", {"delimiter": random.choice((".", "_"))})


def _masked(random: Random, step: str, name: str) -> TransformSpec:
    return TransformSpec(step, f"{_CONNECT}MaskField$Value", {"fields": name})


def _hoist(random: Random, step: str, name: str) -> TransformSpec:
    return TransformSpec(step, f"{_CONNECT}HoistField$Value", {"field": name})


def _extract(random: Random, step: str, name: str) -> TransformSpec:
    return TransformSpec(step, f"{_CONNECT}ExtractField$Value", {"field": name})


def _copy(random: Random, step: str, name: str) -> TransformSpec:
    options = {"source.field": name, "target.field": random.choice(("new", "a", name))}
    return TransformSpec(step, "CopyValue", options)


def _filter(random: Random, step: str, name: str) -> TransformSpec:
    return TransformSpec(step, f"{_CONNECT}Filter", {}, PredicateSpec(f"{_CONNECT}predicates.RecordIsTombstone"))


_MADE = (_insert, _insert_moment, _replace, _flatten, _masked, _hoist, _extract, _copy, _filter)
