"""``python -m tests.fuzz.alone --seconds 600 [--seed 7] [--case 12]``: neighbour independence of transforms.

Each case has a chain of one to three transforms, with predicates, over records with keys, headers, timestamps and
topics. What becomes of each record alone is compared with what becomes of it in any order, in blocks of any size, with
Rust and without.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa

from calving.converters.native import SWITCH
from calving.model.offsets import Range
from calving.model.record_path import (
    ConverterSpec,
    PredicateSpec,
    RecordPath,
    Routing,
    Tolerance,
    TopicConverters,
    TransformSpec,
)
from calving.records.values import HEADERS, Payloads, Records, objects
from calving.source.reading import Block
from calving.tasks.pipeline import Pipeline
from calving.tasks.selection import Accounts, Routed, Selection, Timings
from calving.tasks.spec import TaskSpec
from calving.transforms.interface import Predicate
from tests.fuzz import loop
from tests.java import generate
from tests.java.cases import CASES, Case
from tests.java.reference import Message

TOPIC = "db.orders"
QUERIES = (
    "SELECT * FROM records",
    "SELECT *, coalesce(a, 'none') AS none FROM records",
    "SELECT a AS x, A AS y, b FROM records",
    "SELECT typeof(a) AS a, typeof(b) AS b, typeof(c) AS c FROM records",
    "SELECT a, b FROM records WHERE a IS NULL OR a = ''",
    "SELECT * FROM records WHERE a <> '' AND CAST(a AS INTEGER) > 0",
    "SELECT CAST(a AS INTEGER) AS a, CASE WHEN b IS NULL THEN 'x' ELSE b END AS b FROM records",
    "SELECT ifnull(ts, 0) + 1 AS ts, upper(CAST(b AS VARCHAR)) AS t, c FROM records WHERE t IS NOT NULL",
    "SELECT r.a AS a, r.c[1] AS c FROM records r",
    "SELECT COLUMNS(*), hash(COLUMNS(*)) FROM records",
    "SELECT to_json(a) AS a, CAST(b AS VARCHAR) AS b, len(c) AS c FROM records",
    "SELECT records AS r FROM records",
    "SELECT * EXCLUDE (a), coalesce(b.x, c) AS b FROM records",
    "SELECT list_transform(c, lambda x: x || CAST(a AS VARCHAR)) AS l FROM records",
    "SELECT list_reduce(list_prepend('', c), lambda acc, x: acc || x || CAST(b AS VARCHAR)) AS r FROM records",
    "SELECT a FROM records WHERE len(list_filter(c, lambda x: x <> CAST(a AS VARCHAR))) > 0",
)
MINE = "tests.fuzz.alone:types"


def types(records: Records, options: Mapping[str, str]) -> Records:
    """A transform of a user's own, which decides by types: the field ``types`` tells those of all fields."""
    kind = records.value.type
    kinds = [f"{field.name}: {field.type}" for field in kind] if isinstance(kind, pa.StructType) else [str(kind)]
    text = f"{records.key.type}; {', '.join(kinds)}"
    made = pa.StructArray.from_arrays(
        [records.value, pa.array([text] * len(records), pa.string())], ["value", "types"], mask=records.value.is_null()
    )
    return records.with_value(made)


class HasText(Predicate):
    """A predicate of a user's own, which decides by types."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._name = options["name"]

    def test(self, records: Records) -> pa.Array:
        kind = records.value.type
        fields = {field.name: field.type for field in kind} if isinstance(kind, pa.StructType) else {}
        has = fields.get(self._name) in (pa.null(), pa.string())
        return pa.array([has] * len(records), pa.bool_())


PREDICATES = (
    PredicateSpec("TopicNameMatches", {"pattern": ".*s"}),
    PredicateSpec("HasHeaderKey", {"name": "h"}),
    PredicateSpec("RecordIsTombstone"),
    PredicateSpec("tests.fuzz.alone:HasText", {"name": "a"}),
)
OWN = [
    Case("Drop", {}),
    Case("Filter", {}),
    Case(MINE, {}),
    *(Case("Sql", {"query": query}) for query in QUERIES),
]


@dataclass(frozen=True)
class Raw:
    """A record as a broker has it."""

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None


@dataclass(frozen=True)
class Trial:
    chain: tuple[TransformSpec, ...]
    typed: bool
    records: Sequence[Raw]


def make(seed: int, number: int, count: int = 40) -> Trial:
    """The trial of this number."""
    random = Random(f"{seed} {number}")
    picked = [random.choice(OWN if random.random() < 0.4 else CASES) for _ in range(random.choice((1, 1, 2, 3)))]
    chain = []
    for n, case in enumerate(picked):
        chosen = random.choice(PREDICATES) if random.random() < 0.2 or case.kind == "Filter" else None
        chain.append(TransformSpec(f"t{n}", case.kind, case.options, chosen, random.random() < 0.3))
    typed = random.random() < 0.3
    given = [m for m in picked[0].make(random, count) if m.typed == typed]
    given += [m for m in generate.messages(random, count // 4) if m.typed == typed]
    if not typed:
        given += [Message(generate.dumps(_object(random))) for _ in range(count)]
    random.shuffle(given)
    return Trial(tuple(chain), typed, [_raw(random, message) for message in given[:count]])


def _object(random: Random) -> dict[str, Any]:
    """Objects of few shapes, with many nulls, and names that differ by case."""
    values: tuple[Any, ...] = (
        None,
        None,
        1,
        2**70,
        1.5,
        "x",
        "",
        "7",
        True,
        [],
        [None],
        [1],
        ["a", None],
        {"x": None},
        {"x": 1},
        {"X": 1, "x": 2},
    )
    names = random.choice((["a", "b", "c"], ["a", "b", "c"], ["A", "b", "a"], ["a", "ts"], ["b"]))
    few = values[:6] if random.random() < 0.7 else values
    return {name: random.choice(few) for name in names}


def _raw(random: Random, message: Message) -> Raw:
    value = None if message.value is None or random.random() < 0.03 else message.value.encode()
    if random.random() < 0.02:
        value = random.choice((b"{", b"\xff", b"null", b""))
    key = (
        message.key
        if message.key is not None or message.typed
        else random.choice((None, '{"a":1}', '{"a":null}', '"k"', "null"))
    )
    headers = tuple(("h", random.choice((None, b"x", b"\xff"))) for _ in range(random.choice((0, 0, 1, 2))))
    timestamp = random.choice((message.timestamp, 0, None, random.randrange(2 * 10**12)))
    return Raw(value, None if key is None else key.encode(), headers, timestamp)


class _Block(Block):
    def __init__(self, records: Sequence[Raw], start: int) -> None:
        self.source, self._records, self._start = Range(TOPIC, 3, start, start + len(records)), records, start

    def __len__(self) -> int:
        return len(self._records)

    @cached_property
    def values(self) -> Payloads:
        return Payloads.of([record.value for record in self._records])

    @cached_property
    def keys(self) -> Payloads:
        return Payloads.of([record.key for record in self._records])

    @cached_property
    def offsets(self) -> pa.Array:
        # The same offset for all: it belongs to the record, and must not tell a record's place.
        return pa.repeat(pa.scalar(7, pa.int64()), len(self))

    @cached_property
    def timestamps_ms(self) -> pa.Array:
        return pa.array([record.timestamp for record in self._records], pa.int64())

    @cached_property
    def headers(self) -> Any:
        return pa.array([[{"key": k, "value": v} for k, v in record.headers] for record in self._records], HEADERS)


class _Watched(Pipeline):
    """A pipeline that ends behind the transforms."""

    def __init__(self, trial: Trial, *, shown: bool = True) -> None:
        self._shown = shown
        both = ConverterSpec("json", {"schemas.enable": str(trial.typed).lower()})
        path = RecordPath(
            {},
            Routing(),
            converters={"": TopicConverters(both, both)},
            transforms=trial.chain,
            tolerance=Tolerance("topic"),
        )
        super().__init__(TaskSpec(0, (), path, {}, {}), Timings())
        self.fates: dict[int, list[Any]] = {}

    def _route_records(self, selected: Selection, records: Records) -> Iterator[Routed]:
        if not self._shown:
            return iter(())
        kind = str(records.value.type) if records.typed else None
        columns = [records.topic, records.value, records.key, records.timestamp, records.headers]
        for row, place in enumerate(records.index.to_pylist()):
            value, *rest = (_text(column.slice(row, 1)) for column in (records.value, *columns))
            told = (value if value == "[None]" else kind, records.content, *rest)
            self.fates.setdefault(place, []).append(told)
        return iter(())


def _text(cell: pa.Array) -> str:
    try:
        (found,) = objects(cell)
        # Where no step reads the order of fields, that of flat objects is not kept.
        return repr([dict(sorted(found.items())) if isinstance(found, dict) else found])
    except (OverflowError, ValueError):  # Python has no date beyond the year 9999
        return str(cell)


def fates(
    trial: Trial, blocks: Sequence[Sequence[int]], *, shown: bool = True
) -> tuple[dict[int, list[Any]], Counter[str]]:
    """What becomes of the records, by place: ``blocks`` says which come together, in what order. Rows are left out if
    not ``shown``.
    """
    pipeline = _Watched(trial, shown=shown)
    found: dict[int, list[Any]] = {}
    filtered: Counter[str] = Counter()
    for places in blocks:
        pipeline.fates = {}
        accounts: Accounts = pipeline.run(_Block([trial.records[place] for place in places], 100))
        filtered += accounts.filtered
        for error in accounts.bad:
            pipeline.fates.setdefault(error.index, []).append(("bad", error.stage, error.reason))
        found |= {places[i]: sorted(told, key=repr) for i, told in pipeline.fates.items()}
    return found, filtered


def check(seed: int, number: int, count: int = 40) -> list[str]:
    """The disagreements of one trial."""
    trial = make(seed, number, count)
    everything = range(len(trial.records))
    alone = fates(trial, [[place] for place in everything])
    random = Random(f"{seed} {number} blocks")
    told = []
    for name, native, blocks in (
        ("together", True, [list(everything)]),
        ("together without Rust", False, [list(everything)]),
        *((f"blocks {n}", n != 1, list(_cut(random, len(everything)))) for n in range(3)),
    ):
        with mock.patch.dict(os.environ, {} if native else {SWITCH: "0"}):
            found = fates(trial, blocks)
        for place in everything:
            if found[0].get(place) != alone[0].get(place):
                what = f"{trial.records[place]}: alone {alone[0].get(place)}, {name} {found[0].get(place)}"
                told.append(f"seed {seed} case {number}, {trial.chain}: {what}")
        if found[1] != alone[1]:
            told.append(f"seed {seed} case {number}, {trial.chain}: filtered alone {alone[1]}, {name} {found[1]}")
    return told


def _cut(random: Random, count: int) -> Iterator[list[int]]:
    places = random.sample(range(count), count)
    while places:
        size = random.choice((1, 2, 5, 17, 40))
        yield places[:size]
        places = places[size:]


def _case(seed: int, number: int) -> tuple[int, str]:
    count = Random(f"{seed} {number}").choice((40, 40, 120))
    return count, "\n".join(check(seed, number, count)[:3])


def main() -> int:
    return loop.run("alone", loop.arguments(__doc__).parse_args(), lambda seed, number, _: _case(seed, number))


if __name__ == "__main__":
    sys.exit(main())
