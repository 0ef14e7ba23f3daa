"""A record whose value does not fit the declared type of a column that is not there yet changes no table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.iceberg.rules import TableRules, TableSettings
from calving.model.record_path import Evolution, RouteRule, Routing
from calving.records.inferred import InferredType
from tests.fuzz.sink import Run, Sink, Target

TO_TABLE = Routing((RouteRule("db.t"),))
THERE = Target("db.t", Schema(NestedField(1, "id", LongType(), required=False)))


@pytest.fixture(scope="module")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sink]:
    made = Sink(tmp_path_factory.mktemp("sink") / "warehouse")
    yield made
    made.close()


def declaring(evolution: Evolution, **types: InferredType) -> Run:
    return Run(TO_TABLE, evolution, rules=TableRules(defaults=TableSettings(types=types)))


@pytest.mark.parametrize(
    ("declared", "bad", "good"),
    [
        ("long", "many", 5),
        ("timestamptz", {"at": 1}, "2026-11-28T09:30:00Z"),
        ("boolean", 2, True),
        ({"list": "long"}, [1, "x"], [1, 2]),
        ({"struct": {"a": "long"}}, {"a": "x"}, {"a": 1}),
    ],
    ids=["text for a number", "object for a moment", "number for a boolean", "text in a list", "text in a struct"],
)
def test_a_value_that_no_declared_column_takes_adds_neither_it_nor_others(
    sink: Sink, declared: InferredType, bad: Any, good: Any
) -> None:
    run = declaring(Evolution(evolve=True), d=declared)
    records = [{"id": 1, "d": bad, "other": 1}, {"id": 2, "plain": 1}]
    found = sink.take(run, [THERE], [json.dumps(record).encode() for record in records])
    assert found.error is None and list(found.dead) == [0]
    assert sink.table("db.t").schema().column_names[:2] == ["id", "plain"]
    assert len(sink.table("db.t").schema().fields) == 2
    records = [{"id": 3, "d": bad, "other": 1}, {"id": 4, "d": good}]
    found = sink.take(run, [THERE], [json.dumps(record).encode() for record in records])
    assert found.error is None and list(found.dead) == [0]
    assert [field.name for field in sink.table("db.t").schema().fields] == ["id", "d"]


def test_names_of_declared_columns_ignore_case_if_all_names_do(sink: Sink) -> None:
    run = declaring(Evolution(evolve=True, case_insensitive=True), Amount="long")
    records = [{"id": 1, "AMOUNT": "many", "other": 1}, {"id": 2, "amount": 3}]
    found = sink.take(run, [THERE], [json.dumps(record).encode() for record in records])
    assert found.error is None and list(found.dead) == [0]
    assert [field.name.lower() for field in sink.table("db.t").schema().fields] == ["id", "amount"]
