"""Every transform and every predicate keeps its contract, over the records that Java's are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from calving.records.values import Records
from calving.testing import PredicateContract, PredicateSpec, TransformContract, TransformSpec
from calving.transforms.registry import PREDICATES, TRANSFORMS
from tests.java import generate
from tests.java.cases import CASES, Case
from tests.java.ours import records_of

OTHERS = [
    Case("Drop", {}),
    Case("FieldNames", {"style": "snake"}),
    Case("Filter", {}),
    *(
        Case("Sql", {"query": query})
        for query in (
            "SELECT * FROM records",
            "SELECT a, upper(CAST(b AS VARCHAR)) AS c FROM records",
            "SELECT a FROM records WHERE a IS NULL",
        )
    ),
]
"""Transforms that Java does not have, or has elsewhere."""
PREDICATED = [
    PredicateSpec("TopicNameMatches", {"pattern": "an.*"}),
    PredicateSpec("HasHeaderKey", {"name": "h"}),
    PredicateSpec("RecordIsTombstone"),
]


def short(kind: str) -> str:
    return kind.rpartition(".")[2].partition("$")[0]


def test_every_transform_and_every_predicate_is_among_them() -> None:
    assert {short(case.kind) for case in [*CASES, *OTHERS]} == TRANSFORMS.own.keys()
    assert {spec.type for spec in PREDICATED} == PREDICATES.own.keys()


class TestTransforms(TransformContract):
    @pytest.fixture(params=[*CASES, *OTHERS], ids=lambda case: case.name)
    def case(self, request: pytest.FixtureRequest) -> Case:
        found: Case = request.param
        return found

    @pytest.fixture
    def spec(self, case: Case) -> TransformSpec:
        return TransformSpec("x", case.kind, case.options)

    @pytest.fixture
    def records(self, case: Case) -> Sequence[Records]:
        return records_of(case.make(Random(f"alone {case.name}"), 16))


class TestPredicates(PredicateContract):
    @pytest.fixture(params=PREDICATED, ids=lambda spec: spec.type)
    def spec(self, request: pytest.FixtureRequest) -> PredicateSpec:
        found: PredicateSpec = request.param
        return found


class TestPredicatesOverTyped(TestPredicates):
    @pytest.fixture
    def records(self) -> Sequence[Records]:
        return records_of(generate.messages(Random(1), 24))
