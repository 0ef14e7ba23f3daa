"""With an order field the greatest value of a key wins, and a commit costs by the changes of its keys (rule M8)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType
from pyroaring import BitMap64

from calving.model.tables import OrderType
from calving.mutations import ordering
from calving.mutations.candidates import Candidate
from calving.mutations.columns import Column
from calving.mutations.keys import ChangedKeys
from calving.mutations.ordering import RowPosition, losers

Row = tuple[int, Any]
"""A key and an order value."""


@dataclass
class Commit:
    """Rows of a table, and what each step changes and adds; of one id column or of two."""

    table: Sequence[Sequence[Row]]
    """The rows of each file that the table has."""
    dead: Sequence[BitMap64]
    """Of each of these files the rows that were deleted before."""
    changes: Sequence[Sequence[Row]]
    added: Sequence[Sequence[Sequence[Row]]]
    """The rows of each file that each step adds."""
    ids: int = 1
    is_text: bool = False
    """Whether the order values are."""
    order_type: OrderType = "parsed"

    def losers(self) -> list[RowPosition]:
        keys = ChangedKeys(
            [Column(1, LongType()), Column(2, StringType())][: self.ids], [[self.rows(c)] for c in self.changes]
        )
        found = list(zip(self.files(), keys.found_in_each([self.rows(r)] for _, r in self.each_file()), strict=True))
        live = [(file, matches.living(self.dead_in(file))) for file, matches in found]
        return list(losers(keys, keys.found_in_each([self.rows(c)] for c in self.changes), live, self.order_type))

    def rows(self, rows: Iterable[Row]) -> pa.RecordBatch:
        """As they are in a file: id columns, then the order column."""
        numbers = [key for key, _ in rows]
        ids = [pa.array(numbers, pa.int64()), pa.array([f"{key % 3}" for key in numbers], pa.string())][: self.ids]
        columns = [*ids, pa.array([order for _, order in rows], pa.string() if self.is_text else pa.int64())]
        return pa.RecordBatch.from_arrays(columns, [*"123"][: len(columns)])

    def each_file(self) -> Iterator[tuple[int | None, Sequence[Row]]]:
        yield from ((None, rows) for rows in self.table)
        yield from ((step, rows) for step, files in enumerate(self.added) for rows in files)

    def files(self) -> Iterator[Candidate]:
        for number, (step, rows) in enumerate(self.each_file()):
            yield Candidate(f"{number}", "PARQUET", len(rows), 1, 0, (), step=step)

    def dead_in(self, file: Candidate) -> BitMap64:
        return self.dead[int(file.path)] if file.step is None else BitMap64()


def oracle(commit: Commit) -> list[RowPosition]:
    """All keys, each through all steps."""
    lost: list[RowPosition] = []
    living = [
        (key, order, file, at)
        for file, (_, rows) in zip(commit.files(), commit.each_file(), strict=True)
        for at, (key, order) in enumerate(rows)
        if at not in commit.dead_in(file)
    ]
    for key in dict.fromkeys(key for key, *_ in living):
        rows = [(order, file.step, (file.path, at)) for of, order, file, at in living if of == key]
        held = [(order, place) for order, step, place in rows if step is None]
        for step, changes in enumerate(commit.changes):
            own = [(order, place) for order, of, place in rows if of == step]
            if key in dict(changes):
                change = dict(changes)[key]
                if any(order is not None and (change is None or order > change) for order, _ in held):
                    lost += [place for _, place in own]
                    own = []
                else:
                    lost += [place for _, place in held]
                    held = []
            held += own
    return lost


def drawn(seed: int) -> Commit:
    """Few keys that many steps change, or many keys that few steps change."""
    chance = random.Random(seed)
    universe, steps, most = chance.choice([(3, 12, 3), (8, 8, 6), (40, 5, 12)])
    text = seed % 4 == 3
    repeats = seed % 5 == 4  # within a step

    def order() -> Any:
        value = chance.choice([None, *range(6)])
        return f"{value:03}" if text and value is not None else value

    def some() -> list[Row]:
        count = chance.randrange(min(most, universe) + 1)
        keys = chance.choices(range(universe), k=count) if repeats else chance.sample(range(universe), count)
        return [(key, order()) for key in keys]

    table = [some() for _ in range(chance.randrange(4))]
    dead = [BitMap64([at for at in range(len(rows)) if chance.random() < 0.2]) for rows in table]
    added = [[some() for _ in range(chance.randrange(3))] for _ in range(steps)]
    # A step has keys with a row and without one, and rows whose key it does not have.
    changes = [some() for _ in range(steps)]
    changes[chance.randrange(steps)] = [(0, order())]
    return Commit(table, dead, changes, added, chance.choice([1, 2]), text)


def test_the_rows_that_lose_are_those_of_all_keys_through_all_steps_in_the_same_order() -> None:
    """Delete files are written in this order."""
    lost = 0
    for seed in range(200):
        commit = drawn(seed)
        expected = oracle(commit)
        assert commit.losers() == expected, seed
        lost += len(expected)
    assert lost > 1_500


def test_events_that_are_not_held_at_once_give_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_AT_ONCE", 2)
    for seed in range(30):
        commit = drawn(seed)
        assert commit.losers() == oracle(commit), seed


def test_a_key_costs_the_steps_that_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    of_key = ordering._of_key

    def watched(events: Iterable[ordering._Event]) -> Iterator[tuple[int, int]]:
        found = list(events)
        seen.append(len(found))
        return of_key(found)

    monkeypatch.setattr(ordering, "_of_key", watched)
    keys = range(50)
    commit = Commit(
        [[(key, 1) for key in keys]], [BitMap64()], [[(key, 2)] for key in keys], [[[(key, 2)]] for key in keys]
    )
    assert len(commit.losers()) == 50
    assert seen == [3] * 50  # the table's row, the change, and its row


def test_keys_that_nothing_contests_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_of_key", None)
    commit = Commit([], [], [[(1, 1), (2, 1)], [(3, 1)]], [[[(1, 1), (2, 1)]], [[(3, 1)]]])
    assert commit.losers() == []
