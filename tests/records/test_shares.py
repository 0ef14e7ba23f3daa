"""Most of the values of a new column decide its type; a few of another kind do not."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from calving.casting.type_counts import Seen, decide, join, seen_of
from calving.iceberg.rules import TableRules, TableSettings
from calving.model.offsets import TopicPartition
from calving.model.record_path import Evolution, RouteRule, Routing, Tolerance, TransformSpec
from calving.records.inferred import of_value
from tests.fuzz.sink import TOPIC, Run, Sink
from tests.records.test_neighbours import table

ONE = Routing((RouteRule("db.t"),))
CREATE, ADD = Evolution(create=True, evolve=True), Evolution(evolve=True)
MANY = [json.dumps({"id": i, "v": i / 2}).encode() for i in range(998)]
FEW = [b'{"id": "x", "v": "?"}', b'{"id": {"a": 1}, "v": 7}']


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    made = Sink(tmp_path / "fuzz")
    yield made
    made.close()


def types(sink: Sink, name: str = "db.t") -> dict[str, str]:
    return {field.name: str(field.field_type) for field in sink.table(name).schema().fields}


def test_a_few_values_of_another_kind_do_not_decide_and_their_records_are_bad(sink: Sink) -> None:
    found = sink.take(Run(ONE, CREATE), [], MANY + FEW)
    assert found.error is None and types(sink) == {"id": "long", "v": "double"}
    assert sorted(found.dead) == [998, 999]
    assert found.reasons[998] == "table db.t: field 'id': 'x' is not a long: not an integer"


def test_the_same_holds_for_a_column_that_is_added(sink: Sink) -> None:
    found = sink.take(Run(ONE, ADD), [table(other=LongType())], MANY + FEW)
    assert found.error is None and types(sink) == {"other": "long", "id": "long", "v": "double"}
    assert sorted(found.dead) == [998, 999]


@pytest.mark.parametrize("evolution", [CREATE, ADD], ids=["created", "added"])
@pytest.mark.parametrize("exactly", [False, True], ids=["fast", "exact"])
def test_it_does_not_matter_how_records_are_cut_into_tasks_or_which_way_they_go(
    sink: Sink, evolution: Evolution, exactly: bool
) -> None:
    records = MANY + FEW
    random.Random(7).shuffle(records)
    there = [] if evolution.create else [table(other=LongType())]
    founds = []
    for slots, block, partitions in ((1, 8_000, 1), (2, 7, 1), (5, 40, 3)):
        places = tuple(TopicPartition(TOPIC, n) for n in range(partitions))
        run = Run(ONE, evolution, slots=slots, block_records=block, partitions=places, exactly=exactly)
        found = sink.take(run, there, records)
        assert found.error is None
        founds.append((sorted(found.reasons.items()), found.rows["db.t"], sorted(types(sink).items())))
    assert founds[0] == founds[1] == founds[2]


def test_a_transform_before_counts_every_value_of_an_added_column(sink: Sink) -> None:
    chain = (TransformSpec("x", "org.apache.kafka.connect.transforms.ReplaceField$Value", {"exclude": "gone"}),)
    run = Run(ONE, ADD, transforms=chain, block_records=200)
    found = sink.take(run, [table(other=LongType())], [b'{"v": 1}'] * 200 + [b'{"v": "x"}'])
    assert (types(sink), [*found.dead]) == ({"other": "long", "v": "long"}, [200])


def test_a_transform_before_changes_nothing(sink: Sink) -> None:
    chain = (TransformSpec("x", "org.apache.kafka.connect.transforms.ReplaceField$Value", {"exclude": "gone"}),)
    found = sink.take(Run(ONE, CREATE, transforms=chain), [], MANY + FEW)
    assert (types(sink), sorted(found.dead)) == ({"id": "long", "v": "double"}, [998, 999])


def test_where_nothing_is_tolerated_the_error_says_what_there_is_and_what_to_write(sink: Sink) -> None:
    found = sink.take(Run(ONE, CREATE, tolerance=Tolerance("error")), [], MANY + FEW[:1])
    assert found.error_kind == "bad record" and not sink.catalog.table_exists("db.t")
    text = str(found.error)
    assert "column 'id': 998 of its first values are long, and 1 would make it string, such as 'x'" in text
    assert 'iceberg.table.db.t.columns = "id string" takes them all and "id long" refuses the others' in text
    assert "iceberg.tables.type-share = 0" in text


@pytest.mark.parametrize(
    "rules",
    [
        TableRules(share=0),
        TableRules(defaults=TableSettings(columns={"id": "string", "v": "string"})),
        TableRules(defaults=TableSettings(types={"id": "string", "v": "string"})),
    ],
    ids=["no share", "declared", "declared for all"],
)
def test_whoever_wants_text_gets_text(sink: Sink, rules: TableRules) -> None:
    for tolerance in (Tolerance("topic", at_most=10**9), Tolerance("error")):
        found = sink.take(Run(ONE, CREATE, rules=rules, tolerance=tolerance), [], MANY + FEW)
        assert (found.error, found.dead) == (None, {})
        assert types(sink) == {"id": "string", "v": "string"}


def test_a_declared_type_of_the_others_goes_before_what_most_values_need(sink: Sink) -> None:
    rules = TableRules(defaults=TableSettings(columns={"id": "string"}))
    found = sink.take(Run(ONE, CREATE, rules=rules), [], [b'{"id": 1}'] * 1_000)
    assert (found.dead, types(sink)) == ({}, {"id": "string"})


def test_a_moment_of_a_partition_takes_text_among_milliseconds(sink: Sink) -> None:
    rules = TableRules(defaults=TableSettings(("day(ts)",)))
    records = [b'{"ts": 1714996800000}'] * 999 + [b'{"ts": "2024-05-06T12:00:00Z"}']
    found = sink.take(Run(ONE, CREATE, rules=rules, tolerance=Tolerance("error")), [], records)
    assert (found.error, types(sink)) == (None, {"ts": "timestamptz"})


SHARES = [
    ({"long": 99, "string": 1}, "long", 1),
    ({"long": 98, "string": 2}, "string", 0),
    ({"long": 2, "string": 1}, "string", 0),
    ({"string": 999, "long": 1}, "string", 0),
    ({"long": 990, "double": 10}, "double", 0),
    ({"long": 999, "decimal(38, 0)": 1}, "long", 1),
    ({"double": 999, "decimal(38, 0)": 1}, "double", 0),
    ({"long": 990, "string": 5, "boolean": 5}, "long", 2),
    ({"long": 989, "string": 6, "boolean": 5}, "string", 0),
    ({"boolean": 999, "string": 1}, "boolean", 1),
]


@pytest.mark.parametrize(("counts", "kind", "outvoted"), SHARES)
def test_types_are_decided_by_share(counts: dict[str, int], kind: str, outvoted: int) -> None:
    seen: Seen = {"kinds": {}}
    for name, count in counts.items():
        join(seen, seen_of(name, count))
    found = decide(seen, 0.01)
    assert (found.kind, len(found.outvoted)) == (kind, outvoted)


def test_inside_of_objects_and_arrays_every_column_decides_for_itself() -> None:
    seen: Seen = {"kinds": {}}
    for value, times in (({"o": {"a": 1}, "l": [1]}, 999), ({"o": {"a": "x"}, "l": ["x"]}, 1)):
        join(seen, seen_of(of_value(value), times, value))
    found = decide(seen, 0.01)
    assert found.kind == {"struct": {"o": {"struct": {"a": "long"}}, "l": {"list": "long"}}}
    assert [(few.path, few.count, few.examples) for few in found.outvoted] == [
        (("o", "a"), 1, ("'x'",)),
        (("l",), 1, ('["x"]',)),
    ]


def test_counts_add_up_in_any_order() -> None:
    values: list[Any] = [
        {"a": 1, "b": {"c": "x"}},
        {"a": "y"},
        {"a": [1, 2], "B": 1},
        {"a": {"z": None, "y": 2}},
        {"a": [True]},
    ]
    sums = []
    for seed in range(20):
        random.Random(seed).shuffle(values)
        cut = random.Random(seed).randrange(len(values))
        parts: list[Seen] = [{"kinds": {}}, {"kinds": {}}]
        for part, chosen in zip(parts, (values[:cut], values[cut:]), strict=True):
            for value in chosen:
                join(part, seen_of(of_value(value), 1, value), fold=True)
        whole: Seen = {"kinds": {}}
        for part in parts:
            join(whole, part, fold=True)
        sums.append(json.dumps(whole, sort_keys=True))
    assert len({*sums}) == 1


def test_a_declared_column_is_not_asked_about(sink: Sink) -> None:
    rules = TableRules(defaults=TableSettings(columns={"id": "long"}), tolerates=False)
    found = sink.take(Run(ONE, CREATE, rules=rules), [], MANY + FEW[:1])
    assert list(found.dead) == [998]
