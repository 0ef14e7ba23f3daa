"""Random histories of a source table, whose schema changes and rows reach the sink in any order, and again. The oracle
knows which values a row had, and under which identity of a column, whatever its names were.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.mutations.changing import Changing, Message
from tests.mutations.test_source_columns import FOLLOWING, altered, change
from tests.mutations.test_sources import CDC, DEBEZIUM

NAMES = ("a", "b", "c", "d", "e")
ROWS, CHANGES = 0, 1
"""The partitions of both."""


@dataclass
class History:
    """A source table: its columns by identity with their names of now, and what was written so far."""

    draw: random.Random
    reuses_names: bool
    columns: dict[int, str] = field(default_factory=lambda: {0: "a"})
    rows: dict[int, dict[int, str]] = field(default_factory=dict)
    """The values of each row by the identity of their column."""
    _taken: set[str] = field(default_factory=lambda: {"a"})
    _made: int = 1

    def steps(self, count: int) -> Iterator[tuple[int, Message]]:
        """Messages with their partitions."""
        for _ in range(count):
            yield ROWS, self._insert()
            name = self._free_name()
            step = self.draw.choice(["insert", "add", "rename", "drop"])
            if step == "add" and name is not None:
                self.columns[self._made] = name
                self._made += 1
                yield CHANGES, self._altered(f"ADD COLUMN {name} TEXT")
            elif step == "rename" and name is not None and self.columns:
                column = self.draw.choice([*self.columns])
                former, self.columns[column] = self.columns[column], name
                written = [f"RENAME COLUMN {former} TO {name}", f"CHANGE {former} {name} TEXT"]
                yield CHANGES, self._altered(self.draw.choice(written))
            elif step == "drop" and self.reuses_names and len(self.columns) > 1:
                former = self.columns.pop(self.draw.choice([*self.columns]))
                yield CHANGES, self._altered(f"DROP COLUMN {former}")
        yield ROWS, self._insert()

    def _free_name(self) -> str | None:
        gone = {*self.columns.values()} if self.reuses_names else self._taken
        free = [name for name in NAMES if name not in gone]
        name = self.draw.choice(free) if free else None
        self._taken |= {name} if name is not None else set()
        return name

    def _insert(self) -> Message:
        number = len(self.rows)
        values = {column: f"{number}-{column}" for column in self.columns}
        self.rows[number] = values
        return change({"id": number, **{self.columns[column]: value for column, value in values.items()}})

    def _altered(self, ddl: str) -> Message:
        kinds = {"id": "INT", **dict.fromkeys(self.columns.values(), "TEXT")}
        return altered(f"ALTER TABLE customers {ddl}", kinds)


def found(sink: Changing) -> dict[int, dict[str, str]]:
    """The values of each row, by the column of the table."""
    rows = sink.table.scan().to_arrow().to_pylist()
    return {
        row["id"]: {name: value for name, value in row.items() if name != "id" and value is not None} for row in rows
    }


def sink_in(folder: Path, draw: random.Random) -> Changing:
    return Changing(folder, CDC, evolution=FOLLOWING, transforms=(DEBEZIUM,), slots=draw.choice([1, 2]))


@pytest.mark.parametrize("seed", range(25))
def test_no_value_is_lost_in_whatever_order_rows_and_schema_changes_come(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    history, sink = History(draw, reuses_names=True), sink_in(tmp_path, draw)
    waiting: dict[int, list[Message]] = {ROWS: [], CHANGES: []}
    for partition, message in history.steps(8):
        waiting[partition].append(message)
    done: list[Message] = []
    while any(waiting.values()):
        batch = {}
        for partition, messages in waiting.items():
            count = draw.choice([0, 1, 2, 5])
            batch[partition], messages[:count] = messages[:count], []
        done += batch[CHANGES]
        again = done[-draw.choice([1, 2, 9]) :] if draw.random() < 0.3 else []
        outcome = sink.take_all({**batch, CHANGES: [*batch[CHANGES], *again]})
        assert outcome.dead_letters == ()
    lost = {
        number: (values, found(sink).get(number))
        for number, values in history.rows.items()
        if sorted(found(sink)[number].values()) != sorted(values.values())
    }
    assert lost == {}


@pytest.mark.parametrize("seed", range(15))
def test_a_column_keeps_all_its_values_if_no_row_comes_before_its_schema_change(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    history, sink = History(draw, reuses_names=False), sink_in(tmp_path, draw)
    messages = [*history.steps(8)]
    sink.take(messages.pop(0)[1])  # the table is there
    late: list[Message] = []
    while messages:
        count = draw.choice([1, 2, 3, 6])
        batch, messages = messages[:count], messages[count:]
        rows = [*late, *(message for partition, message in batch if partition == ROWS)]
        late = rows if draw.random() < 0.5 else []
        sink.take_all(
            {ROWS: [] if late else rows, CHANGES: [each for partition, each in batch if partition == CHANGES]}
        )
    sink.take(*late)
    assert sorted(found(sink)) == sorted(history.rows)
    names: dict[int, set[str]] = {}
    for number, values in found(sink).items():
        for name, value in values.items():
            assert value.startswith(f"{number}-")
            names.setdefault(int(value.partition("-")[2]), set()).add(name)
    assert names == {column: {name} for column, name in history.columns.items() if column in names}
