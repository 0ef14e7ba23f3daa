"""Random chains of transforms that take any value, and what records have beside their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from calving.model.record_path import PredicateSpec, TransformSpec
from harness.blocks import MILLIS, RecordEnvelope
from tests.fuzz.chain import CONNECT, SINK
from tests.fuzz.nodes import Node

Options = dict[str, str]
_PREDICATES = (
    PredicateSpec(f"{CONNECT}predicates.RecordIsTombstone"),
    PredicateSpec(f"{CONNECT}predicates.TopicNameMatches", {"pattern": "fuz.*"}),
    PredicateSpec("TopicNameMatches", {"pattern": "lake_.*|x"}),
    PredicateSpec(f"{CONNECT}predicates.HasHeaderKey", {"name": "h"}),
    PredicateSpec("HasHeaderKey", {"name": "given"}),
)
_FIXED = ("topic.field", "static.field", "timestamp.field")


def chain(
    random: Random, names: Sequence[str], schemas: Sequence[Node], *, many: bool = False
) -> tuple[TransformSpec, ...]:
    """One to four transforms that mostly meet fields of these names. ``schemas``: of the records, if they have any.
    ``many``: they are so many that what takes records one by one takes too long.
    """
    kinds = [kind for kind in _MADE if not schemas or kind not in ("Flatten", "MaskField")]
    made: list[TransformSpec] = []
    for number in range(random.choice((1, 1, 2, 3))):
        kind = random.choice(kinds)
        options = _MADE[kind](random, "made" if schemas and kind == "HoistField" else random.choice(names or ("a",)))
        if schemas and kind == "CopyValue":
            options["target.field"] = "made"
        made.append(TransformSpec(f"step{number}", _type(random, kind), options, *_predicate(random, kind)))
    if any(_beside(spec) for spec in made):
        kind = "Seen" if many else random.choice(("Seen", "seen"))
        made.append(TransformSpec("seen", f"tests.fuzz.own:{kind}", {"field": random.choice((*names, "seen", "seen"))}))
    return tuple(made)


def _type(random: Random, kind: str) -> str:
    plain = kind.partition("$")[0]
    side = "$Key" if kind.endswith("$Key") else random.choice(("", "$Value")) if plain in _SIDED else ""
    return random.choice(("", SINK if plain in ("CopyValue", "KafkaMetadataTransform") else CONNECT)) + plain + side


def _predicate(random: Random, kind: str) -> tuple[PredicateSpec | None, bool]:
    if kind == "Filter":
        return random.choice(_PREDICATES), random.random() < 0.2
    return (random.choice(_PREDICATES), random.random() < 0.5) if random.random() < 0.2 else (None, False)


def _beside(spec: TransformSpec) -> bool:
    return any(name in spec.type for name in ("Router", "Header", "Key")) or spec.predicate is not None


def is_placed(specs: Sequence[TransformSpec]) -> bool:
    """Whether the result depends on a record's partition or offset."""
    return any(
        spec.type.rpartition(".")[2] in ("KafkaMetadataTransform", "DebeziumTransform")
        or "offset.field" in spec.options
        for spec in specs
    )


def envelopes(
    random: Random, count: int, *, keys: Sequence[bytes | None] = (b"key", b"", None)
) -> list[RecordEnvelope]:
    """Keys, timestamps and headers."""
    headers: tuple[list[tuple[str, bytes | None]], ...] = (
        [],
        [("h", b"x")],
        [("h", None), ("h", b"y")],
        [("given", b""), ("h", b"z")],
    )
    return [
        RecordEnvelope(
            random.choice(keys), random.choice((MILLIS, 0, 1_700_000_000_123, -86_400_001)), random.choice(headers)
        )
        for _ in range(count)
    ]


def _insert(random: Random, name: str) -> Options:
    kinds = random.sample(_FIXED, random.choice((1, 1, 2)))
    if random.random() < 0.2:
        kinds += ["partition.field", "offset.field"]
    options = {kind: name if i == 0 and random.random() < 0.3 else f"in{i}" for i, kind in enumerate(kinds)}
    options = {kind: field + random.choice(("", "", "?", "!")) for kind, field in options.items()}
    return options | ({"static.value": "said"} if "static.field" in options else {})


def _replace(random: Random, name: str) -> Options:
    other = f"{name},b,id"
    return dict(
        random.choice(
            (
                {"exclude": name},
                {"renames": f"{name}:new"},
                {"renames": f"new:{name}", "exclude": "b"},
                {"include": other},
                {"include": other, "renames": f"{name}:other"},
            )
        )
    )


def _metadata(random: Random, name: str) -> Options:
    options = {"nested": "true"} if random.random() < 0.5 else {}
    if random.random() < 0.5:
        options["field_name"] = random.choice((name, "kafka"))
    return options | ({"external_field": "env,prod"} if random.random() < 0.3 else {})


def _mask(random: Random, name: str) -> Options:
    return {"fields": name} | random.choice(({}, {}, {"replacement": "9"}, {"replacement": "xyz"}))


def _extract(random: Random, name: str) -> Options:
    path = f"{name}.{random.choice(('a', 'id', 'element'))}"
    return random.choice(({"field": name}, {"field": path, "field.syntax.version": "V2"}))


def _router(random: Random, name: str) -> Options:
    return random.choice(
        (
            {"regex": "fuz(.*)", "replacement": "lake_$1"},
            {"regex": "other", "replacement": "x"},
            {"regex": "[a-z]+", "replacement": "x"},
        )
    )


_MADE: dict[str, Callable[[Random, str], Options]] = {
    "InsertField": _insert,
    "ReplaceField": _replace,
    "KafkaMetadataTransform": _metadata,
    "Flatten": lambda random, _: random.choice(({"delimiter": "."}, {"delimiter": "_"}, {})),
    "MaskField": _mask,
    "HoistField": lambda _, name: {"field": name},
    "HoistField$Key": lambda _, name: {"field": "k"},
    "ExtractField": _extract,
    "CopyValue": lambda random, name: {"source.field": name, "target.field": random.choice(("new", "a", name))},
    "Filter": lambda *_: {},
    "Drop": lambda *_: {},
    "SetSchemaMetadata": lambda *_: {"schema.name": "x"},
    "RegexRouter": _router,
    "TimestampRouter": lambda random, _: random.choice(({}, {"topic.format": "x_${timestamp}.${topic}"})),
    "InsertHeader": lambda random, _: {"header": random.choice(("h", "more")), "value.literal": "said"},
    "DropHeaders": lambda random, _: {"headers": random.choice(("h", "h,given", "none"))},
    "HeaderFrom": lambda random, name: {
        "fields": name,
        "headers": "from",
        "operation": random.choice(("move", "copy")),
    },
    "ValueToKey": lambda random, name: {"fields": random.choice((name, f"{name},id"))},
}
_SIDED = (
    *("InsertField", "ReplaceField", "Flatten", "MaskField", "HoistField", "ExtractField", "Drop"),
    *("SetSchemaMetadata", "HeaderFrom"),
)
