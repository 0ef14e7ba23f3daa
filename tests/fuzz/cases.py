"""One case: tables, settings and records, all made from a seed and the case's number."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField
from pyiceberg.types import TimestampType, TimestamptzType, TimeType

from calving.iceberg.rules import TableRules, TableSettings
from calving.model.offsets import TopicPartition
from calving.model.record_path import Evolution, Limits, Policy, RouteRule, Routing, TransformSpec
from calving.model.tables import OnTypeChange, Unit
from harness.blocks import RecordEnvelope
from tests.fuzz import avro, draws, nodes, protobuf_wire, rare, scenes, schemas, singles
from tests.fuzz.chain import CONNECT, Record, topic_behind, transformed
from tests.fuzz.encoding import SchemaText
from tests.fuzz.events import ENCODERS
from tests.fuzz.fates import TOMBSTONE, Dead, Rules, decode_json
from tests.fuzz.histories import MAPPING
from tests.fuzz.oracle import Typed
from tests.fuzz.protobuf import Form
from tests.fuzz.sink import START, TOPIC, Run, Target
from tests.fuzz.spec import path_of
from tests.fuzz.tables import Table, table_of
from tests.fuzz.targets import changed_before, targets_of, with_defaults, with_properties
from tests.fuzz.targets import in_version_3 as target_in_version_3
from tests.fuzz.texts import Writer

_FORMAT = "write.format.default"
GARBAGE = (
    b"",
    b"\0",
    b"\xff" * 40,
    b'{"id":1',
    b"\0\0\0\0\1\xff\xff\xff\xff",
    b"\0poison",
    b'{"schema":{"type":"x"},"payload":1}',
)
LETTERS = "dead letters in a table"
NOTHING = TransformSpec("nothing", "org.apache.kafka.connect.transforms.SetSchemaMetadata$Value", {"schema.name": "x"})
_COUNTS = (1, 2, 5, 5, 30, 30, 30, 30, 150, 150, 150, 600, 600, 2000, 3000)
_MANY = 600
"""Records of a case, from which on they are much alike, and in few partitions: each shape and each file takes time."""
VERSION_3 = 10_000_000
"""The number of the first case whose tables are of format version 3."""
LONG = 10_000
"""Records of a long case: tables and schemas take most of the time of a short one."""


@dataclass(frozen=True)
class Case:
    """``places`` are those that the records had when the case was made."""

    seed: int
    number: int
    targets: tuple[Target, ...]
    run: Run
    raws: tuple[bytes | None, ...]
    decoded: tuple[Any, ...]
    """Values as the converter must decode them, or the fates of what is none."""
    places: tuple[int, ...]
    converter: str = "json"
    schemas: tuple[str, ...] = ()
    """Of a registry."""
    long: bool = False
    envelopes: tuple[RecordEnvelope, ...] = ()
    """What records have beside their values, one for each, or none."""
    keys: tuple[Any, ...] = ()
    """The decoded keys of these."""
    key_converter: str = "bytes"

    def only(self, places: Sequence[int]) -> Case:
        """The case with some of its records."""
        chosen = [self.places.index(place) for place in places]
        return replace(
            self,
            raws=tuple(self.raws[i] for i in chosen),
            decoded=tuple(self.decoded[i] for i in chosen),
            places=tuple(places),
            envelopes=tuple(self.envelopes[i] for i in chosen) if self.envelopes else (),
            keys=tuple(self.keys[i] for i in chosen) if self.keys else (),
        )

    @property
    def is_placed(self) -> bool:
        """Whether the results depend on partitions and offsets."""
        return bool(self.topics) or draws.is_placed(self.run.transforms)

    @property
    def topics(self) -> tuple[str, ...]:
        """Of each record, if it decides of its table."""
        if self.run.routing.topic_pattern is None:
            return ()
        size = -(-len(self.raws) // len(self.run.partitions)) or 1
        named = [topic_behind(partition.topic, self.run.transforms) for partition in self.run.partitions]
        return tuple(named[i // size] for i in range(len(self.raws)))

    def values(self) -> list[Any]:
        """Values after the transforms, or the fates of what is none."""
        chain = self.run.transforms
        if not chain:
            return [*self.decoded]
        given = self.envelopes or [RecordEnvelope()] * len(self.decoded)
        keys = self.keys or [each.key for each in given]
        around = Record(None, TOPIC, fold=self.run.evolution.case_insensitive)
        return [
            transformed(
                value,
                chain,
                replace(
                    around,
                    offset=START + i,
                    timestamp_ms=each.timestamp_ms or 0,
                    key=key,
                    headers=tuple(each.headers or ()),
                ),
            )
            for i, (value, each, key) in enumerate(zip(self.decoded, given, keys, strict=True))
        ]

    def random(self, use: str) -> Random:
        """Randomness for one use, the same each time."""
        return Random(f"{self.seed}/{self.number}/{use}")

    @property
    def tables(self) -> dict[str, Table]:
        """Tables before the batch, as the oracle sees them."""
        return {
            t.name: table_of(t.schema, names_by_id(t), self._units(t.name, t.schema))
            for t in self.targets
            if t.schema is not None
        }

    def _units(self, name: str, schema: Schema) -> dict[int, int]:
        """The nanoseconds that numbers count, by column."""
        declared = self.run.rules.of(name).units
        return {schema.find_field(column).field_id: _NANOS[unit] for column, unit in declared.items()}

    @property
    def rules(self) -> Rules:
        evolution = self.run.evolution
        ids = self.run.rules.defaults.id_columns
        orc = frozenset(t.name for t in self.targets if t.schema and t.properties[_FORMAT] == "orc")
        creates_orc = self.run.rules.create_properties[_FORMAT] == "orc"
        keys = {t.name: tuple(_keys(t.schema, t)) for t in self.targets if t.schema is not None}
        return Rules(
            self.run.routing,
            evolution.evolve,
            evolution.create,
            evolution.case_insensitive,
            ids,
            orc,
            keys,
            creates_orc,
            self.run.rules.any_year,
            self.run.rules.of("db.t").columns,
            self.run.rules.of("db.t").types,
            bool(self.run.transforms),
            self.converter,
            self.run.rules.of("db.t").on_type_change,
        )

    @property
    def tags(self) -> dict[str, str]:
        """The features that the case covers, for the report."""
        properties = {**self.run.rules.create_properties, **self.targets[0].properties}
        routing = self.run.routing
        return {
            "converter": self.converter,
            "evolution": "on" if self.run.evolution.evolve else "off",
            "type changes": self.run.rules.of("db.t").on_type_change,
            "creation": "on" if self.run.evolution.create else "off",
            "case": "ignored" if self.run.evolution.case_insensitive else "kept",
            "names": "mapped" if MAPPING in properties else "plain",
            "tables": str(len(self.targets)),
            "format": properties.get("write.format.default", "parquet"),
            "distribution": properties.get("write.distribution-mode", "none"),
            "partitioned by": ", ".join(str(f.transform).partition("[")[0] for f in self.targets[0].spec.fields)
            or "none",
            "sorted": str(bool(self.targets[0].order.fields)),
            "transforms": str(len(self.run.transforms)),
            "predicates": ", ".join(sorted({_predicate(t) for t in self.run.transforms if t.predicate})) or "none",
            **{
                f"transform {t.type.rpartition('.')[2].removesuffix('$Value')}": self.converter
                for t in self.run.transforms
            },
            "units": ", ".join(sorted({*self.run.rules.of("db.t").units.values()})) or "none",
            "years": "any" if self.run.rules.any_year else "1 to 9999",
            "routes": "by topic"
            if routing.topic_pattern
            else "dynamic"
            if routing.dynamic
            else "by field"
            if routing.field
            else "all",
            **{f"draw {name}": "" for name in sorted(self.drawn)},
        }

    @property
    def drawn(self) -> frozenset[str]:
        """What is rare in the case."""
        of_schemas = [text.drawn for text in self.schemas if isinstance(text, SchemaText)]
        of_tables = [target.drawn for target in self.targets]
        if self.random("letters").random() < 0.3:
            of_tables.append(frozenset((LETTERS,)))
        if self.run.routing.topic_pattern is not None:
            of_tables.append(frozenset(("topic pattern",)))
            if self.run.transforms:
                of_tables.append(frozenset(("topic pattern of a new name",)))
        if self.rules.declared:
            of_tables.append(frozenset(("declared columns",)))
        return frozenset().union(*of_schemas, *of_tables)


def _predicate(spec: TransformSpec) -> str:
    assert spec.predicate is not None
    return ("not " if spec.negate else "") + spec.predicate.type.rpartition(".")[2]


def _keys(schema: Schema, target: Target) -> Iterator[tuple[tuple[str, ...], str]]:
    fields: tuple[PartitionField | SortField, ...] = (*target.spec.fields, *target.order.fields)
    for field in fields:
        yield path_of(schema, field.source_id), str(field.transform)


def names_by_id(target: Target) -> dict[int, tuple[str, ...]]:
    """The name mapping of a table."""
    found: dict[int, tuple[str, ...]] = {}
    pending = json.loads(target.properties.get(MAPPING, "[]"))
    while pending:
        mapped = pending.pop()
        pending += mapped.get("fields", ())
        found[mapped["field-id"]] = tuple(mapped["names"])
    return found


def make(seed: int, number: int, *, long: bool = False) -> Case:
    """The same case every time. From ``VERSION_3`` on, its tables are of format version 3."""
    case = _moving(replace(_made(seed, number, long=long), long=long))
    return in_version_3(case) if number >= VERSION_3 else case


def _made(seed: int, number: int, *, long: bool) -> Case:
    random = Random(f"{seed}/{number}/long" if long else f"{seed}/{number}")
    writer = Writer(random, random.choice((0, 0, 0, 0.01) if long else (0, 0.02, 0.1, 0.3)))
    count = LONG if long else random.choice(_COUNTS)
    evolution = Evolution(
        create=random.random() < 0.2, evolve=random.random() < 0.35, case_insensitive=random.random() < 0.15
    )
    writer.shapes = 5 if long else random.choice((None, 5, 40)) if count >= _MANY else None
    if evolution.create or evolution.evolve:
        writer.few_keys = 4 if count >= _MANY else 12
    targets = tuple(targets_of(random, many=count >= _MANY))
    routing = _routing(random, targets)
    # To the oracle, and to a record alone, each value of a new column counts.
    limits, properties = Limits(new_columns=10**6, columns=10**6), schemas.properties(random)
    rules = TableRules(limits=limits, create_properties=properties, share=0)
    if evolution.create and random.random() < 0.3:
        rules = replace(rules, defaults=TableSettings(random.choice(((), ("bucket(id, 4)",))), ("id",)))
    elif not evolution.create and random.random() < 0.4:
        rules = replace(
            rules, tables={t.name: TableSettings(units=_declared(random, t.schema)) for t in targets if t.schema}
        )
    rules = replace(rules, any_year=random.random() < 0.1)
    run = Run(routing, evolution, rules=rules, slots=random.choice((1, 1, 2, 3)))
    shape = next((t.schema for t in targets if t.schema is not None), None) or schemas.schema(random)
    typed = len(targets) == 1 and not evolution.case_insensitive and not rules.defaults.id_columns
    if typed and routing.field is None and random.random() < 0.08:
        case = _single(random, Case(seed, number, targets, run, (), (), tuple(range(count))), shape)
    elif typed and random.random() < (0.6 if long else 0.4):
        case = _typed(random, Case(seed, number, targets, run, (), (), tuple(range(count))), shape, routing)
    else:
        raws = tuple(
            _raw(random, writer, shape, routing, i, sure=bool(rules.defaults.id_columns)) for i in range(count)
        )
        case = Case(seed, number, targets, run, raws, tuple(decode_json(raws)), tuple(range(count)))
    case = _transforming(case, shape)
    if evolution.create:
        gone = tuple(replace(t, schema=None) if random.random() < 0.8 else t for t in targets)
        case = replace(case, targets=gone)
    return tabled(case)


def _moving(case: Case) -> Case:
    """Some cases whose tables grow have columns beside columns, for values that do not fit."""
    random, rules = case.random("type changes"), case.run.rules
    if not case.run.evolution.evolve or random.random() < 0.6:
        return case
    how: OnTypeChange = "column"
    tables = {name: replace(settings, on_type_change=how) for name, settings in rules.tables.items()}
    rules = replace(rules, tables=tables, defaults=replace(rules.defaults, on_type_change=how))
    return replace(case, run=replace(case.run, rules=rules))


def in_version_3(case: Case) -> Case:
    """The case with tables of format version 3, new ones too."""
    random, rules = case.random("version 3"), case.run.rules
    rules = replace(rules, create_properties={**rules.create_properties, "format-version": "3"})
    targets = tuple(target_in_version_3(random, target) for target in case.targets)
    if not (case.run.transforms and case.converter in ("json-schema", "protobuf")):  # they may make nulls, or drop them
        random = case.random("defaults")
        targets = tuple(with_defaults(random, target) for target in targets)
    return replace(case, targets=targets, run=replace(case.run, rules=rules))


def tabled(case: Case) -> Case:
    """The case with tables that are rare."""
    random = case.random("tables")
    targets = case.targets
    if random.random() < 0.2:
        targets = tuple(changed_before(random, target) for target in targets)
    if random.random() < 0.3:
        targets = tuple(with_properties(random, target) for target in targets)
    case = replace(case, targets=targets)
    routes = case.run.routing
    if random.random() < 0.15 and routes.field is None and not case.run.transforms:
        case = replace(case, run=_renamed(case.random("renamed"), _by_topic(random, case.run)))
    evolution = case.run.evolution
    may_declare = case.converter == "json" and not evolution.case_insensitive and not case.run.rules.defaults.id_columns
    if may_declare and evolution.create != evolution.evolve and random.random() < 0.5:
        case = replace(case, run=_declaring(random, case.run))
    return case


def _declaring(random: Random, run: Run) -> Run:
    """With types of columns that tables get."""
    names = random.sample((*schemas.NAMES, "new", "extra", "n1", "n2"), 8)
    kinds: list[Any] = [str(schemas.primitive(random)) for _ in names]
    kinds = [{"list": kind} if kind != "string" and random.random() < 0.15 else kind for kind in kinds]
    declared = dict(zip(names, kinds, strict=True))
    own = {name: kind for name, kind in declared.items() if random.random() < 0.5}
    rest = {name: kind for name, kind in declared.items() if name not in own}
    every = ("db.t", "db.u", "db.v", "db.x", "db.t.v")
    tables = {name: replace(run.rules.of(name), columns=own, types=rest) for name in every}
    return replace(run, rules=replace(run.rules, tables=tables))


def _by_topic(random: Random, run: Run) -> Run:
    """Records of several topics, whose names make those of the tables."""
    pattern, regex, names = random.choice(_PATTERNS)
    partitions = tuple(TopicPartition(name, i) for i, name in enumerate(random.sample(names, 3)))
    routing = replace(run.routing, rules=(), topic_pattern=pattern, topic_regex=regex)
    return replace(run, routing=routing, partitions=partitions)


def _renamed(random: Random, run: Run) -> Run:
    """Half of them with topics of other names, of which transforms make those."""
    if random.random() < 0.5:
        return run
    prefix = random.choice(("raw.", "raw-", "shop.public."))
    partitions = tuple(
        tp if random.random() < 0.2 else TopicPartition(prefix + tp.topic, tp.partition) for tp in run.partitions
    )
    regex, replacement = random.choice(((r"(raw[.-]|shop\.public\.)(.*)", "$2"), (r"raw(.)(.*)", "$2")))
    steps = [
        TransformSpec(
            "renamed", random.choice(("", CONNECT)) + "RegexRouter", {"regex": regex, "replacement": replacement}
        )
    ]
    if random.random() < 0.3:
        steps.insert(0, NOTHING)
    return replace(run, partitions=partitions, transforms=tuple(steps))


_PATTERNS: tuple[tuple[str, str | None, tuple[str, ...]], ...] = (
    ("{topic}", None, ("db.t", "DB.T", "db.u", "plain", "db.v")),
    ("db.{1}", "fuzzed[-.](t|u|x)", ("fuzzed-t", "fuzzed.u", "fuzzed-x", "fuzzed-tt", "other")),
    ("DB.{kind}", r"(?P<kind>[tuTU])(?:-\d+)?", ("t", "T-5", "u-17", "t-5x")),
    ("{2}.{1}", r"(.)\.(.*)", ("t.db", "u.db", "t.", "x.db")),
    ("db.{1}{2}", "(a)?x?(t)?", ("xt", "at", "x", "t")),
)


def _transforming(case: Case, shape: Schema) -> Case:
    """Half of the cases with transforms."""
    random = case.random("chain")
    names = [f.name for f in shape.fields]
    if random.random() < 0.5 or any("," in n or ":" in n for n in names):
        return case
    if case.run.routing.field is None and not case.run.rules.defaults.id_columns and random.random() < 0.5:
        return scenes.played(random, case, shape)
    chain = draws.chain(
        random, names, [v.node for v in case.decoded if isinstance(v, Typed)][:1], many=len(case.raws) >= _MANY
    )
    given = draws.envelopes(random, len(case.raws)) if random.random() < 0.7 else []
    return replace(case, run=replace(case.run, transforms=(*case.run.transforms, *chain)), envelopes=tuple(given))


_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_UNITS: tuple[Unit, ...] = ("s", "ms", "us", "ns")


def _declared(random: Random, schema: Schema) -> dict[str, Unit]:
    """The units of some columns, by name."""
    moments = [
        str(schema.find_column_name(field_id))
        for field_id, field in schema._lazy_id_to_field.items()
        if isinstance(field.field_type, TimeType | TimestampType | TimestamptzType)
    ]
    return {name: random.choice(_UNITS) for name in moments if random.random() < 0.7}


def _single(random: Random, case: Case, shape: Schema) -> Case:
    """Records of one value each, which a transform makes objects."""
    field = random.choice(shape.fields).name
    converter = random.choice(singles.CONVERTERS)
    made = [singles.value(random, converter, number) for number in case.places]
    decoded = [TOMBSTONE if value is None else value for _, value in made]
    run = replace(case.run, transforms=(TransformSpec("hoist", "HoistField", {"field": field}),))
    raws = tuple(raw for raw, _ in made)
    return replace(case, run=run, raws=raws, decoded=tuple(decoded), converter=converter)


def _typed(random: Random, case: Case, shape: Schema, routing: Routing) -> Case:
    """Records of one or two schemas."""
    converter = random.choice(("avro", "envelope", "protobuf", "json-schema"))
    first = nodes.record(random, shape.as_struct(), converter)
    unusual = case.random("rare")
    if unusual.random() < 0.5:
        first = rare.dressed(unusual, first, shape.as_struct(), converter)
        if not case.run.evolution.create and unusual.random() < 0.6:
            case = replace(case, run=replace(case.run, evolution=replace(case.run.evolution, evolve=True)))
    both: tuple[nodes.Node, ...] = (first, nodes.changed(random, first)) if random.random() < 0.4 else (first,)
    if routing.field is not None:
        both = tuple(_with_route(node, routing.field) for node in both)
    schema_of, encoder = ENCODERS[converter]
    texts = [schema_of(node) for node in both]
    garbage: Sequence[bytes | None] = (None, *GARBAGE)
    is_whole = len(texts) == 1 and isinstance(texts[0], SchemaText) and not texts[0].references
    if converter == "avro" and is_whole and unusual.random() < 0.2:
        converter, encoder, garbage = "avro-fixed", avro.bodies, (None, b"", b"\xff" * 40)
    encoders = [encoder(text, node) for text, node in zip(texts, both, strict=True)]
    raws: list[bytes | None] = []
    decoded: list[Any] = []
    poison = random.choice((0, 0, 0.02, 0.1))
    for number in case.places:
        if random.random() < max(poison, 0.01):
            raws.append(random.choice(garbage))
            decoded.append(TOMBSTONE if raws[-1] is None else Dead("VALUE_CONVERTER"))
            continue
        which = random.randrange(len(both))
        value = nodes.value(random, both[which], number)
        if routing.field is not None:
            names = _TABLES if routing.dynamic else _ROUTES
            text = json.loads(random.choice([n for n in names if n.startswith('"') or n == "null"]))
            value["route" if routing.field == "route" else "meta"] = (
                text if routing.field == "route" else {"type": text}
            )
        if first.form and converter == "protobuf":
            value = protobuf_wire.settled(unusual, both[which], value)
        may_lack = converter in ("envelope", "json-schema") or (converter == "protobuf" and first.form & Form.PROTO2)
        if first.form and may_lack and unusual.random() < 0.01:
            lists = ("list", "map") if converter == "protobuf" else ()
            value[unusual.choice([n for n in both[which].inner if n.kind not in lists] or first.inner).name] = None
        raws.append(encoders[which](value))
        decoded.append(rare.arrived(both[which], value))
    return replace(case, raws=tuple(raws), decoded=tuple(decoded), converter=converter, schemas=tuple(texts))


def _with_route(node: nodes.Node, field: str) -> nodes.Node:
    route = nodes.Node("string", True, field.rpartition(".")[2], loose=node.loose)
    if field == "meta.type":
        route = nodes.Node("struct", True, "meta", (route,), loose=node.loose)
    return replace(node, inner=(*(n for n in node.inner if n.name != route.name), route))


def _routing(random: Random, targets: Sequence[Target]) -> Routing:
    policies: tuple[Policy, ...] = ("skip", "dead-letter")
    unrouted, missing = random.choice(policies), random.choice(policies)
    choice = random.random()
    if choice < 0.8:
        return Routing(tuple(RouteRule(t.name) for t in targets), unrouted=unrouted, missing_table=missing)
    field = random.choice(("route", "meta.type"))
    if choice < 0.9:
        return Routing((), field, dynamic=True, unrouted=unrouted, missing_table=missing)
    regexes = random.sample(("a.*", "b|ab", "[0-9.]+", "true|x", "1"), len(targets))
    rules = tuple(RouteRule(t.name, regex) for t, regex in zip(targets, regexes, strict=True))
    return Routing(rules, field, unrouted=unrouted, missing_table=missing)


_ROUTES = ('"a"', '"ab"', '"b"', '"abc"', "1", "1.5", "1.0", "true", "null", '""', '"x"', "{}", '"1"')
_TABLES = ('"db.t"', '"DB.T"', '"db.u"', '"db.v"', '"db.t"', '"db.t"', "null")
_NO_TABLES = ('""', '"x"', "5", '"a..b"', '"."', '"db."', '".t"', "true", "{}", '"db.t\\u0000"', '"db.a/b"', '"db.%"')


def _raw(random: Random, writer: Writer, schema: Schema, routing: Routing, number: int, sure: bool) -> bytes | None:
    if random.random() < 0.01:
        return None
    raw = writer.record(schema.as_struct(), number)
    if sure and raw.startswith(b'{"'):
        raw = b'{"id":%d,' % number + raw[1:].replace(b'"id"', b'"ID"')
    if routing.field is not None and raw.startswith(b"{") and random.random() < 0.97:
        names = _ROUTES if not routing.dynamic else _TABLES if random.random() < 0.95 else _NO_TABLES
        value = random.choice(names)
        route = f'"route":{value}' if routing.field == "route" else f'"meta":{{"type":{value}}}'
        raw = b"{" + route.encode() + (raw[1:] if raw[1:2] == b"}" else b"," + raw[1:])
    return raw
