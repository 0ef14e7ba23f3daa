"""What a chain of transforms makes of one record: docs/reference/transforms.md in plain Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from calving.model.record_path import PredicateSpec, TransformSpec
from tests.fuzz import own
from tests.fuzz.fates import TOMBSTONE, Dead, Filtered
from tests.fuzz.forms import Digits, Instant, Short, Single
from tests.fuzz.nodes import Node
from tests.fuzz.oracle import Typed
from tests.fuzz.values import TEXT, convert

CONNECT = "org.apache.kafka.connect.transforms."
SINK = "org.apache.iceberg.connect.transforms."
BAD = Dead("TRANSFORMATION")


@dataclass(frozen=True)
class Record:
    """A record on its way through the steps. ``value``: None, a plain value, or one with its schema."""

    value: Any
    topic: str = ""
    partition: int = 0
    offset: int = 0
    timestamp_ms: int = 0
    key: Any = None
    headers: tuple[tuple[str, Any], ...] = ()
    empties: bool = False
    """It is no row: its source table was emptied."""
    fold: bool = False
    """Names that differ only by case are one column."""

    @property
    def typed(self) -> bool:
        return isinstance(self.value, Typed)

    @property
    def fields(self) -> dict[str, Any]:
        """:raises Refused: the value is no object."""
        value = self.value.value if isinstance(self.value, Typed) else self.value
        if not isinstance(value, dict):
            raise Refused("no object")
        return value

    @property
    def nodes(self) -> dict[str, Node]:
        """The schemas of fields, where there are any."""
        return {n.name: n for n in self.value.node.inner} if isinstance(self.value, Typed) else {}

    def having(self, fields: Mapping[str, Any], nodes: Mapping[str, Node]) -> Record:
        """With other fields. ``nodes``: their schemas, under their names, if the value has a schema."""
        if not isinstance(self.value, Typed):
            return replace(self, value=dict(fields))
        inner = tuple(replace(node, name=name) for name, node in nodes.items())
        return replace(self, value=Typed(dict(fields), replace(self.value.node, inner=inner)))

    def adding(self, name: str, value: Any, kind: Node) -> Record:
        """:raises Refused: the schema has the field."""
        if name in self.nodes:
            raise Refused("twice")
        record = self
        if isinstance(self.value, Typed):
            record = replace(self, value=Typed(self.value.value, told(self.value.node)))
        return record.having({**record.fields, name: value}, {**record.nodes, name: kind})


def told(node: Node) -> Node:
    """A struct's schema in which each field says whether it is optional."""
    if not node.loose:
        return node
    return replace(node, inner=tuple(replace(n, optional=True) for n in node.inner), loose=False)


Options = Mapping[str, str]
Change = Callable[[Record, Options], Record]


class Refused(Exception):
    """The transform cannot take the value."""


class Dropped(Exception):
    """The record is left out. Its text says as what, if the transform says so."""


def transformed(value: Any, chain: Sequence[TransformSpec], around: Record) -> Any:
    """A decoded value after all steps, or its fate. ``around``: the rest of the record: key, headers, timestamp and place."""
    if isinstance(value, Dead | Filtered) and value != TOMBSTONE:
        return value
    record = replace(around, value=None if value == TOMBSTONE else value)
    for spec in chain:
        kind, _, side = spec.type.rpartition(".")[2].partition("$")
        try:
            if _is_chosen(record, spec):
                record = _keyed(record, kind, spec.options) if side == "Key" else _changed(record, kind, spec.options)
        except Refused:
            if not record.empties:
                return BAD
        except Dropped as left_out:
            return Filtered(": ".join(filter(None, (f"transform {spec.name}", str(left_out)))))
    if record.value is None:
        return TOMBSTONE
    return Filtered("truncate event") if record.empties else record.value


def _is_chosen(record: Record, spec: TransformSpec) -> bool:
    predicate = spec.predicate
    return predicate is None or _holds(record, predicate) != spec.negate


def _holds(record: Record, predicate: PredicateSpec) -> bool:
    match predicate.type.rpartition(".")[2]:
        case "RecordIsTombstone":
            return record.value is None
        case "TopicNameMatches":
            return re.fullmatch(predicate.options["pattern"], record.topic) is not None
        case "HasHeaderKey":
            return any(name == predicate.options["name"] for name, _ in record.headers)
    raise ValueError(predicate.type)


_TAKE_TOMBSTONES = ("HoistField", "RegexRouter", "TimestampRouter", "InsertHeader", "DropHeaders", "Filter")


def _changed(record: Record, kind: str, options: Options) -> Record:
    if record.value is None and kind not in _TAKE_TOMBSTONES:
        return record
    return CHANGES[kind](record, options)


def _keyed(record: Record, kind: str, options: Options) -> Record:
    match kind:
        case "HoistField":
            return replace(record, key={options["field"]: record.key})
        case "ExtractField" if record.key is not None:
            if not isinstance(record.key, dict):
                raise Refused("no object")
            return replace(record, key=record.key.get(options["field"]))
    return record


def _insert(record: Record, options: Options) -> Record:
    moment = Instant(record.timestamp_ms * 1000) if record.typed else record.timestamp_ms
    given: dict[str, tuple[Any, str]] = {
        "topic.field": (record.topic, "string"),
        "partition.field": (Short(record.partition), "int"),
        "offset.field": (record.offset, "long"),
        "timestamp.field": (moment, "timestamp-millis"),
        "static.field": (options.get("static.value"), "string"),
    }
    for option, (value, kind) in given.items():
        if option in options:
            name = options[option].rstrip("!?")
            record = record.adding(name, value, Node(kind, not options[option].endswith("!")))
    return record


def _metadata(record: Record, options: Options) -> Record:
    given: dict[str, tuple[Any, str]] = {
        "topic": (record.topic, "string"),
        "partition": (Short(record.partition), "int"),
        "offset": (record.offset, "long"),
        "timestamp": (record.timestamp_ms, "long"),
    }
    if "external_field" in options:
        name, value = options["external_field"].split(",")
        given[name] = value, "string"
    prefix = options.get("field_name", "_kafka_metadata")
    if options.get("nested") == "true":
        inner = tuple(Node(kind, True, name) for name, (_, kind) in given.items())
        return record.adding(prefix, {n: v for n, (v, _) in given.items()}, Node("struct", True, inner=inner))
    for name, (value, kind) in given.items():
        record = record.adding(f"{prefix}_{name}", value, Node(kind, True))
    return record


def _replaced(record: Record, options: Options) -> Record:
    renames = dict(pair.split(":") for pair in options.get("renames", "").split(",") if pair)
    kept = [n for n in record.fields if n != options.get("exclude")]
    if "include" in options:
        kept = [n for n in kept if n in options["include"].split(",")]
    there = {renames.get(n, n): record.fields[n] for n in kept}
    if len(there) < len(kept):
        raise Refused("two fields of one name")
    return record.having(there, {renames.get(n, n): record.nodes[n] for n in kept} if record.typed else {})


def _flat(record: Record, options: Options) -> Record:
    def leaves(inner: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, item in inner.items():
            name = f"{prefix}{options.get('delimiter', '.')}{name}" if prefix else name
            yield from leaves(item, name) if isinstance(item, dict) else [(name, item)]

    pairs = list(leaves(record.fields, ""))
    if len({name for name, _ in pairs}) < len(pairs):
        raise Refused("two fields of one name")
    return record.having(dict(pairs), {})


def _mask(record: Record, options: Options) -> Record:
    name, replacement = options["fields"], options.get("replacement")
    if name not in record.fields or record.fields[name] is None:
        return record
    value = record.fields[name]
    masked = _neutral(value) if replacement is None else _in_place_of(value, replacement)
    return record.having({**record.fields, name: masked}, record.nodes)


def _neutral(value: Any) -> Any:
    match value:
        case Single():
            return Single(0)
        case Decimal() if not isinstance(value, Digits):
            return Decimal("0.0")
    return type(value)()


def _in_place_of(value: Any, replacement: str) -> Any:
    match value:
        case bool() | dict() | list():
            raise Refused("no text, and no number")
        case str():
            return replacement
    try:
        return int(replacement) if isinstance(value, int) else Decimal(float(replacement))
    except ValueError:
        raise Refused("no number") from None


def _extract(record: Record, options: Options) -> Record:
    value = record.value
    for name in options["field"].split(".") if options.get("field.syntax.version") == "V2" else [options["field"]]:
        if isinstance(value, Typed):
            inner = next((n for n in value.node.inner if n.name == name), None)
            if inner is None or not isinstance(value.value, dict):
                raise Refused("no such field")
            value = Typed(value.value[name], inner)
        elif value is not None:
            if not isinstance(value, dict):
                raise Refused("no object")
            value = value.get(name)
    return replace(record, value=None if isinstance(value, Typed) and value.value is None else value)


def _copied(record: Record, options: Options) -> Record:
    source = options["source.field"]
    record.fields  # noqa: B018 - refuses what is no object
    if record.typed and source not in record.nodes:
        raise Refused("no such field")
    return record.adding(
        options["target.field"],
        record.fields.get(source),
        replace(record.nodes[source], optional=True) if record.typed else Node("string"),
    )


def _hoisted(record: Record, options: Options) -> Record:
    value = record.value
    if not isinstance(value, Typed):
        return replace(record, value={options["field"]: value})
    inner = replace(value.node, name=options["field"], optional=True)
    return replace(
        record,
        value=Typed({options["field"]: value.value}, Node("struct", inner=(inner,), loose=value.node.loose)),
    )


def _filter(record: Record, options: Options) -> Record:
    raise Dropped


def _routed(record: Record, options: Options) -> Record:
    match = re.fullmatch(options["regex"], record.topic)
    new = options["replacement"]
    return record if match is None else replace(record, topic=match.expand(re.sub(r"\$(\d)", r"\\\1", new)))


def topic_behind(topic: str, chain: Sequence[TransformSpec]) -> str:
    """The name that a topic has after these steps, none of which looks at the record."""
    record = Record(None, topic)
    for spec in chain:
        kind = spec.type.rpartition(".")[2]
        record = _routed(record, spec.options) if kind == "RegexRouter" else record
    return record.topic


def _dated(record: Record, options: Options) -> Record:
    if not 0 <= record.timestamp_ms < 253_402_300_800_000:
        raise Refused("no moment of the years 1970 to 9999")
    day = datetime.fromtimestamp(record.timestamp_ms // 1000, UTC).strftime("%Y%m%d")
    template = options.get("topic.format", "${topic}-${timestamp}")
    return replace(record, topic=template.replace("${topic}", record.topic).replace("${timestamp}", day))


def _to_headers(record: Record, options: Options) -> Record:
    fields, nodes, headers = dict(record.fields), record.nodes, list(record.headers)
    for name, header in zip(options["fields"].split(","), options["headers"].split(","), strict=True):
        if record.typed and name not in nodes:
            raise Refused("no such field")
        value = fields.get(name)
        text = None if value is None else own.UNKNOWN if record.typed else convert(value, TEXT)
        headers.append((header, text))
    if options["operation"] == "move":
        gone = options["fields"].split(",")
        fields = {n: v for n, v in fields.items() if n not in gone}
        nodes = {n: v for n, v in nodes.items() if n not in gone}
    return replace(record.having(fields, nodes), headers=tuple(headers))


def _key_of(record: Record, options: Options) -> Record:
    names = options["fields"].split(",")
    record.fields  # noqa: B018 - refuses what is no object
    if record.typed and any(name not in record.nodes for name in names):
        raise Refused("no such field")
    return replace(record, key={name: record.fields.get(name) for name in names})


def _seen(record: Record, options: Options) -> Record:
    """The user's own transforms in ``own.py``."""
    text = own.text(record.topic, record.key, record.headers, typed=record.typed)
    return record.having(
        {**record.fields, options["field"]: text},
        {**record.nodes, options["field"]: Node("string", True, loose=record.typed and record.value.node.loose)},
    )


CHANGES: dict[str, Change] = {
    "SetSchemaMetadata": lambda record, _: record,
    "InsertField": _insert,
    "KafkaMetadataTransform": _metadata,
    "ReplaceField": _replaced,
    "Flatten": _flat,
    "MaskField": _mask,
    "ExtractField": _extract,
    "CopyValue": _copied,
    "HoistField": _hoisted,
    "Drop": lambda record, _: replace(record, value=None),
    "Filter": _filter,
    "RegexRouter": _routed,
    "TimestampRouter": _dated,
    "InsertHeader": lambda record, o: replace(record, headers=(*record.headers, (o["header"], o["value.literal"]))),
    "DropHeaders": lambda record, o: replace(
        record, headers=tuple(h for h in record.headers if h[0] not in o["headers"].split(","))
    ),
    "HeaderFrom": _to_headers,
    "ValueToKey": _key_of,
    "own:seen": _seen,
    "own:Seen": _seen,
}
