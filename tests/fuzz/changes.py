"""``python -m tests.fuzz.changes --seconds 600 [--seed 7] [--case 12] [--version-3]``: fuzzes mirrors of source tables.

A case is a source table, whose rows are inserted, updated, deleted and given other keys, and the events that Debezium
writes about that: in JSON, in Connect's envelope or in Avro, with whole before images, with images of the key alone or
without any. Some sources leave out of an update what has not changed, and their mirrors keep that. After some batches
the mirror must have exactly the rows of the source.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import open_catalog
from calving.model.record_path import ConverterSpec, Evolution, Limits, TopicConverters, TransformSpec
from calving.model.tables import RowMutations, Tombstones
from calving.services.rest_catalog import RestCatalog
from harness.registry import SchemaRegistry, serving
from tests.fuzz import avro, encoding, loop, meanings, nodes, plain
from tests.fuzz.forms import canonical
from tests.fuzz.nodes import Node
from tests.fuzz.texts import STRINGS
from tests.fuzz.values import Unfit, convert
from tests.iceberg.reader import rows_of
from tests.mutations.changing import NAME, Changing, Message

Row = dict[str, Any]
DEBEZIUM = TransformSpec("unwrap", "DebeziumTransform")
SOURCE = {"version": "2.7.0.Final", "connector": "postgresql", "name": "s", "db": "d", "schema": "public", "table": "t"}
_TIME, _DATA = "io.debezium.time.", "io.debezium.data."
_MICROS = f"{_TIME}MicroTimestamp"
GARBAGE = (b"{", b"\0\0\0\0\1", b"\xff\xfe", b'{"op":"u"}', b"5")
_IMAGES = ("whole", "key", "none")


def _text(random: Random) -> str:
    """Mostly short; sometimes longer than the bounds and the statistics of a file."""
    return random.choice((f"t{random.randrange(99)}", random.choice(STRINGS), "x" * random.choice((16, 17, 5_000))))


@dataclass(frozen=True)
class Column:
    node: Node
    make: Callable[[Random], Any]


def _column(name: str, kind: str, make: Callable[[Random], Any], mean: str = "", *, key: bool = False) -> Column:
    return Column(Node(kind, not key, name, mean=mean), make)


def _meant(name: str) -> Callable[[Random], Any]:
    unit = meanings.MEANINGS[name].unit
    return lambda random: meanings.Meant(random.randrange(4 * 10**18) // unit, name)


def _keys(random: Random, typed: bool) -> list[Column]:
    few = random.choice((5, 30, 10**6))
    made = [
        _column("id", "long", lambda r: r.randrange(few), key=True),
        _column("id", "string", _text, key=True),
        _column("id", "string", lambda r: f"{r.randrange(few):032x}", f"{_DATA}Uuid" if typed else "", key=True),
    ]
    if typed:
        made += [
            _column("id", "long", lambda r: meanings.Meant(r.randrange(few), _MICROS), _MICROS, key=True),
            _column(
                "id",
                "int",
                lambda r: meanings.Meant(r.randrange(few % 9_999), f"{_TIME}Date"),
                f"{_TIME}Date",
                key=True,
            ),
        ]
    second = _column("k", "string", lambda r: r.choice("abc"), key=True)
    return [random.choice(made), *([second] if random.random() < 0.3 else [])]


def _others(typed: bool) -> list[Column]:
    made = [_column("v", "string", _text), _column("n", "long", lambda r: r.randint(-99, 99))]
    if not typed:
        return made
    scaled = nodes.meant(meanings.SCALED)
    return [
        *made,
        _column("at", "long", _meant(_MICROS), _MICROS),
        _column("zoned", "string", lambda r: f"2024-01-02T03:04:{r.randrange(60):02}Z", f"{_TIME}ZonedTimestamp"),
        Column(
            Node(scaled.kind, True, "price", scaled.inner, mean=scaled.mean),
            lambda r: meanings.scaled(r.randint(-(10**9), 10**9), r.randint(-2, 9)),
        ),
    ]


@dataclass
class Case:
    """``rows``: the rows of the source, which the mirror must equal."""

    random: Random
    encoding: str
    keys: list[Column]
    others: list[Column]
    mutations: RowMutations
    image: str
    rows: dict[str, Row] = field(default_factory=dict)
    encode: Callable[[Row, Row | None], Message] = lambda key, event: (key, event)
    bad: int = 0
    """Records that must become dead letters."""
    gaps: Random | None = None
    """Says what updates leave out; None if they have whole rows."""

    @property
    def columns(self) -> list[Column]:
        return [*self.keys, *self.others]

    def events(self, count: int) -> Iterator[Message]:
        """What the source does, so many times."""
        for _ in range(count):
            choice = self.random.random()
            if choice < 0.02:
                self.bad += 1
                yield self.encode(self._key(self._row()), None)[0], self.random.choice(GARBAGE)
            elif choice < 0.4 or not self.rows:
                yield from self._insert(self._row())
            else:
                yield from self._change(self.random.choice(list(self.rows)), choice)

    def _insert(self, row: Row) -> Iterator[Message]:
        there = self.rows.get(self._name(row))
        operation = self.random.choice("cr") if there is None else "u"
        self.rows[self._name(row)] = row
        yield self._event(
            operation, there and self._image(there, changed=False), row if there is None else self._sent(there, row)
        )

    def _change(self, name: str, choice: float) -> Iterator[Message]:
        old, new = self.rows[name], self._row()
        if choice < 0.65:
            new |= self._key(old)
        is_moved = self._name(new) != name
        if choice < 0.8 and self._name(new) in self.rows and is_moved:
            return  # the source would refuse it
        del self.rows[name]
        if choice < 0.8:
            self.rows[self._name(new)] = new
        if choice < 0.72 or (choice < 0.8 and not is_moved):
            sent = new if is_moved else self._sent(old, new)
            yield self._event("u", self._image(old, changed=is_moved), sent)
            return
        yield self._event("d", self._image(old, changed=True), None)
        if self.random.random() < 0.8:
            yield self.encode(self._key(old), None)
        if choice < 0.8:
            yield self._event("c", None, new)

    def _sent(self, old: Row, new: Row) -> Row:
        """What an update sends of the new row: maybe not what it leaves as it was, which it decides here."""
        sent = dict(new)
        for column in self.others if self.gaps is not None else ():
            if self.gaps is not None and self.gaps.random() < 0.5:
                new[column.node.name] = old[column.node.name]
                del sent[column.node.name]
        return sent

    def _event(self, operation: str, before: Row | None, after: Row | None) -> Message:
        key = self._key(after or before or {})
        return self.encode(key, {"op": operation, "ts_ms": 5, "before": before, "after": after, "source": SOURCE})

    def _image(self, row: Row, *, changed: bool) -> Row | None:
        """The before image; where the key has ``changed``, and for deletes, it has the key at least."""
        if self.image == "whole":
            return row
        return self._key(row) | {c.node.name: None for c in self.others} if changed or self.image == "key" else None

    def _key(self, row: Row) -> Row:
        return {column.node.name: row[column.node.name] for column in self.keys}

    def _name(self, row: Row) -> str:
        return canonical({n: meanings.bare(value) for n, value in self._key(row).items()})

    def _row(self) -> Row:
        random = self.random
        return {
            c.node.name: None if c.node.optional and random.random() < 0.2 else c.make(random) for c in self.columns
        }


def make(seed: int, number: int, registry: SchemaRegistry) -> tuple[Case, TopicConverters]:
    """The same case every time, and how its records are decoded."""
    random = Random(f"{seed}/{number}/changes")
    kind = random.choice(("json", "envelope", "avro"))
    keys = _keys(random, kind != "json")
    others = _others(kind != "json")
    others = random.sample(others, random.randint(1, len(others)))
    tombstones: Tombstones = random.choice(("skip", "delete"))
    equality = random.random() < 0.25
    mutations = RowMutations(
        "_cdc.op", row_deletes="equality" if equality else "positions", tombstones=tombstones, on_truncate="skip"
    )
    case = Case(random, kind, keys, others, mutations, random.choice(_IMAGES))
    gaps = Random(f"{seed}/{number}/gaps")
    if gaps.random() < 0.4:
        case.gaps, case.mutations = gaps, replace(mutations, row_deletes="positions", unset_fields="keep")
    spec = ConverterSpec("json", {"schemas.enable": "false"})
    if kind == "envelope":
        spec = ConverterSpec("json", {"schemas.enable": "true"})
    elif kind == "avro":
        spec = ConverterSpec("avro", {"schema.registry.url": registry.url})
    case.encode = _encoder(case, registry)
    return case, TopicConverters(spec, spec)


def _encoder(case: Case, registry: SchemaRegistry) -> Callable[[Row, Row | None], Message]:
    source = Node("struct", False, "source", tuple(Node("string", False, name) for name in SOURCE))
    row = tuple(column.node for column in case.columns)

    @cache
    def event_with(names: frozenset[str]) -> Callable[[Row], bytes]:
        """Encodes events of which the rows after the change have these columns."""
        after = tuple(node for node in row if node.name in names)
        parts = [Node("struct", True, "before", row), Node("struct", True, "after", after)]
        whole = Node("struct", inner=(Node("string", name="op"), Node("long", True, "ts_ms"), *parts, source))
        return _framed(case.encoding, whole, registry)

    every = frozenset(node.name for node in row)
    key = _framed(case.encoding, Node("struct", inner=tuple(column.node for column in case.keys)), registry)

    def encoded(of: Row, event: Row | None) -> Message:
        return key(of), None if event is None else event_with(frozenset(event["after"] or every))(event)

    return encoded


def _framed(form: str, node: Node, registry: SchemaRegistry) -> Callable[[Row], bytes]:
    """Makes bytes of values."""
    if form == "envelope":
        return encoding.envelope(encoding.connect_schema(node), node)
    if form == "json":
        return lambda value: json.dumps(encoding.payload(node, value), ensure_ascii=False).encode()
    text = avro.schema(node)
    header = _registered("s", text, registry).to_bytes(5, "big")
    made = avro.encoder(text, node)
    return lambda value: header + made(value)[5:]


def _registered(subject: str, text: str, registry: SchemaRegistry) -> int:
    """The id of a schema, which is registered after those to which it refers."""
    references = []
    for name, other in text.references if isinstance(text, encoding.SchemaText) else ():
        inner = f"s{encoding.schema_id(other)}"  # its versions have the same text
        _registered(inner, other, registry)
        references.append({"name": name, "subject": inner, "version": 1})
    return registry.register(subject, text, references=references)


def check(
    seed: int, number: int, folder: Path, registry: SchemaRegistry, rest: Catalog | None = None, most: int = 400
) -> tuple[int, str]:
    """How many records a case had, and what is wrong with its mirror; empty: nothing. ``rest``: tables are of version 3.
    ``most``: changes in a batch.
    """
    case, converters = make(seed, number, registry)
    random = case.random
    if rest is not None:
        case.mutations = replace(case.mutations, row_deletes="positions")
    file_format = random.choice(("parquet", "parquet", "orc", "avro"))
    lands = Random(f"{seed}/{number}/landing")
    sink = Changing(
        folder,
        case.mutations,
        id_columns=tuple(column.node.name for column in case.keys),
        partition_by=random.choice(((), (), ("bucket(id, 4)",), ("truncate(v, 1)",) if _has(case, "v") else ())),
        properties={"write.format.default": file_format, "format-version": "2" if rest is None else "3"},
        evolution=Evolution(create=True, evolve=True),
        converters=converters,
        transforms=(DEBEZIUM,),
        limits=Limits(block_records=random.choice((1, 7, 50, 1000))),
        slots=random.choice((1, 2, 3)),
    )
    sink.catalog = rest or sink.catalog
    count = 0
    try:
        for _ in range(random.randint(1, 6)):
            messages = list(case.events(min(most, random.choice((1, 5, 40, 400)))))
            bad, case.bad = case.bad, 0
            sink.landing = lands.choice(("partitioned", "unpartitioned"))
            outcome = sink.take(*messages)
            count += len(messages)
            if any("there is no column 'v'" in letter.reason for letter in outcome.dead_letters):
                return count, ""  # a new table cannot be partitioned by a column that no record of its batch has
            if len(outcome.dead_letters) != bad:
                reasons = sorted({letter.reason for letter in outcome.dead_letters})
                return count, f"{len(outcome.dead_letters)} dead letters instead of {bad}: {reasons}"
            if case.rows and (wrong := _differing(case, sink)):
                return count, wrong
    finally:
        if rest is not None and rest.table_exists(NAME):
            rest.drop_table(NAME)
    return count, ""


def _has(case: Case, name: str) -> bool:
    return any(column.node.name == name for column in case.columns)


def _differing(case: Case, sink: Changing) -> str:
    table = sink.table
    schema, struct = table.schema(), table.schema().as_struct()
    names = [field.name for field in schema.fields]
    read = (dict(zip(names, row, strict=True)) for row in rows_of(table))
    found = sorted(_shown(case, plain.fit(row, struct)) for row in read)
    try:
        wanted = sorted(
            _shown(case, _converted(case, row, {f.name: f.field_type for f in schema.fields}))
            for row in case.rows.values()
        )
    except Unfit as error:
        return f"a row does not fit {schema}: {error}"
    if found == wanted:
        return ""
    extra, missing = [row for row in found if row not in wanted], [row for row in wanted if row not in found]
    return f"{len(found)} rows instead of {len(wanted)}: {extra[:2]} instead of {missing[:2]}, {case.mutations}"


def _converted(case: Case, row: Row, kinds: dict[str, Any]) -> Row:
    there = {c.node.name: row[c.node.name] for c in case.columns}
    return {n: None if value is None else convert(value, kinds[n]) for n, value in there.items()}


def _shown(case: Case, row: Row) -> str:
    return canonical({c.node.name: row.get(c.node.name) for c in case.columns})


def main() -> int:
    parser = loop.arguments(__doc__)
    parser.add_argument("--version-3", action="store_true", help="tables of version 3, in Apache's REST catalog")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="calving-fuzz-") as folder, ExitStack() as stack:
        registry = stack.enter_context(serving())
        rest = None
        if given.version_3:
            server = RestCatalog(Path(folder) / "rest")
            stack.callback(server.stop)
            rest = open_catalog("iceberg", {"type": "rest", "uri": server.uri})
        return loop.run("changes", given, lambda seed, number, place: check(seed, number, place, registry, rest))


if __name__ == "__main__":
    sys.exit(main())
