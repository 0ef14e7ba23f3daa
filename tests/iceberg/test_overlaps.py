"""Steps of several partitions of the topic that have a key in common, however few keys are compared at a time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from calving.iceberg import layers as module
from calving.iceberg.catalog import open_catalog
from calving.iceberg.layers import Overlaps, overlaps
from calving.model.offsets import TopicPartition
from calving.mutations import columns
from calving.mutations.keys import ChangedKeys, KeyPart, Matches, parts
from calving.protocol.commit import Step
from tests.iceberg.histories import MutationTable, Row, create

SEEDS = range(8)


@dataclass
class Told:
    """What a step has: the ids of its rows and of its keys, and its partitions of the topic."""

    rows: set[int]
    keys: set[int]
    source: frozenset[TopicPartition]


def table_of(folder: Path, layout: str) -> MutationTable:
    return create(open_catalog("iceberg", {"type": "embedded", "warehouse": str(folder)}), layout, 2)


def steps_of(table: MutationTable, seed: int) -> tuple[list[Step], list[Told]]:
    """Of one, two or unknown partitions; with keys without a row, and rows without their key."""
    chance, spec = random.Random(seed), table.spec()
    universe = chance.choice([10, 30, 80])

    def some() -> list[int]:
        return chance.sample(range(universe), chance.randrange(9))

    steps, told = [], []
    for _ in range(chance.randrange(2, 7)):
        rows: list[Row] = [{"id": key, "name": "x", "g": chance.randrange(3)} for key in some()]
        keys = {*some(), *(row["id"] for row in rows if chance.random() < 0.5)}
        files = [table.key_file(spec, [{"id": key} for key in some]) for some in halves(sorted(keys))]
        partitions = chance.sample(range(4), chance.choice([0, 1, 1, 1, 1, 1, 2]))
        source = frozenset(TopicPartition("s", partition) for partition in partitions)
        steps.append(Step(table.write(spec, rows), tuple(files), source))
        told.append(Told({row["id"] for row in rows}, keys, source))
    return steps, told


def halves(keys: list[int]) -> list[list[int]]:
    return [part for part in (keys[::2], keys[1::2]) if part]


def oracle(told: list[Told]) -> Overlaps:
    """Each step with each earlier one."""
    found: dict[int, set[tuple[int, bool]]] = {}
    for later, one in enumerate(told):
        for earlier, other in enumerate(told[:later]):
            if one.source and other.source and not one.source & other.source:
                pairs = {(earlier, True)} if one.keys & other.rows else set()
                pairs |= {(earlier, False)} if one.rows & other.keys else set()
                if pairs:
                    found.setdefault(later, set()).update(pairs)
    return found


@pytest.mark.parametrize("layout", ["flat", "by key", "moving"])
def test_keys_that_are_compared_a_few_at_a_time_overlap_as_all_at_once(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_BATCH_ROWS", 2)
    table, shared = table_of(tmp_path, layout), 0
    loaded = table.table
    for seed in SEEDS:
        steps, told = steps_of(table, seed)
        expected = oracle(told)
        assert [overlaps(loaded, steps, at_once) for at_once in (5, 1_000_000)] == [expected] * 2, seed
        shared += sum(map(len, expected.values()))
    assert shared > 20


def of_one_key_each(table: MutationTable, count: int) -> list[Step]:
    """In turn of two partitions."""
    spec = table.spec()
    rows: list[Row] = [{"id": key, "name": "x", "g": 0} for key in range(count)]
    return [
        Step(table.write(spec, [row]), (table.key_file(spec, [row]),), frozenset({TopicPartition("s", row["id"] % 2)}))
        for row in rows
    ]


def test_about_so_many_keys_as_may_be_held_are_compared_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def watched(*args: Any) -> Iterator[KeyPart]:
        for part in parts(*args):
            held.append(len(part.keys))
            yield part

    monkeypatch.setattr(module, "parts", watched)
    table = table_of(tmp_path, "flat")
    overlaps(table.table, of_one_key_each(table, 6), 2)
    assert held == [2, 2, 2]


def test_keys_are_hashed_once_for_the_files_of_all_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    found_in = ChangedKeys.found_in

    def counted(keys: ChangedKeys, batches: Iterable[pa.RecordBatch]) -> Matches:
        searched.append(len(keys))
        return found_in(keys, batches)

    monkeypatch.setattr(ChangedKeys, "found_in", counted)
    table = table_of(tmp_path, "flat")
    overlaps(table.table, of_one_key_each(table, 6))
    assert searched == [6, 6], "in the key files, and in the data files"
