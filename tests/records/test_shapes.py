"""Schemaless values as columns: which values share one, and which types they have."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest

from calving.records.shapes import alone, by_shape
from calving.records.values import objects

_LEAVES = (None, None, 1, 2**70, 1.5, "x", True)


def value(random: Random, depth: int = 3) -> Any:
    kind = random.random()
    if depth and kind < 0.2:
        return [value(random, depth - 1) for _ in range(random.randrange(3))]
    if depth and kind < 0.35:
        return {name: value(random, depth - 1) for name in random.sample("pq", random.randrange(3))}
    return random.choice(_LEAVES)


@pytest.mark.parametrize("seed", range(40))
def test_a_value_has_the_type_that_it_has_alone(seed: int) -> None:
    random = Random(seed)
    few = [[value(random) for _ in range(3)] for _ in range(3)]
    given = [{name: random.choice(some) for name, some in zip("abc", few, strict=True)} for _ in range(60)]
    found: dict[int, Any] = {}
    for places, column in by_shape(given, decimals=False):
        for rows, part in alone(column, None):
            part.validate(full=True)
            found |= {places[row]: (part.type, objects(part.slice(n, 1))[0]) for n, row in enumerate(rows)}
    for place, each in enumerate(given):
        ((_, single),) = by_shape([each], decimals=False)
        assert found[place] == (single.type, each)


def test_nulls_share_a_column_with_other_values_unless_their_type_matters() -> None:
    given = [{"a": 1, "b": None, "c": [1]}, {"a": None, "b": "x", "c": []}, {"a": None, "b": None, "c": None}]
    ((places, column),) = by_shape(given, decimals=False)
    assert (places, objects(column)) == ([0, 1, 2], given)
    assert [rows for rows, _ in alone(column, frozenset())] == [range(3)]
    assert sorted([*rows] for rows, _ in alone(column, frozenset({"a"}))) == [[0], [1, 2]]
    assert sorted(str(part.type) for _, part in alone(column, frozenset({"b"}))) == [
        "struct<a: int64, b: null, c: list<item: int64>>",
        "struct<a: int64, b: string, c: list<item: int64>>",
    ]


def test_many_shapes_take_time_linear_in_their_number() -> None:
    given = [{f"f{i}": None if n >> i & 1 else {"x": 1} for i in range(13)} for n in range(6_000)]

    def spent(count: int) -> float:
        started = time.process_time()
        assert len(by_shape(given[:count], decimals=False)) == count
        return time.process_time() - started

    assert min(spent(6_000), spent(6_000)) < 9 * max(spent(1_500), 0.05)
