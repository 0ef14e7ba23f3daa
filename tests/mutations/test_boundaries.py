"""Histories of changes, cut into batches in different ways: the rows do not depend on the cuts.

The oracle plays the records one by one, in the order of their partition, over a list of rows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from calving.model.record_path import TransformSpec
from calving.model.tables import Inserts, RowDeletes, RowMutations
from tests.iceberg.reader import rows_of
from tests.mutations.changing import Changing, Message

Row = tuple[int, str]


class Event(NamedTuple):
    """``old``: the key before an update that changes it."""

    op: str
    key: int
    value: str
    old: int | None = None


def history(chance: random.Random, count: int) -> list[Event]:
    """Changes of few keys, inserts of keys that are there, and updates of keys."""
    events = []
    for n in range(count):
        op, key = chance.choice("ccuuudr"), chance.randrange(5)
        old = chance.randrange(5) if op == "u" and chance.random() < 0.4 else None
        events.append(Event(op, key, f"v{n}", old))
    return events


def expected(events: Sequence[Event], inserts: Inserts) -> list[Row]:
    rows: list[Row] = []
    for event in events:
        if event.op in "ud" or inserts == "upsert":
            rows = [row for row in rows if row[0] not in (event.key, event.key if event.old is None else event.old)]
        if event.op != "d":
            rows.append((event.key, event.value))
    return sorted(rows)


def message(event: Event) -> Message:
    """As Debezium writes it."""
    row = {"id": event.key, "v": event.value}
    before = {"id": event.old, "v": "?"} if event.old is not None else row if event.op == "d" else None
    after = None if event.op == "d" else row
    source = {"db": "shop", "schema": "public", "table": "t"}
    return {"id": event.key}, {"op": event.op, "ts_ms": 5, "before": before, "after": after, "source": source}


def cut(events: Sequence[Event], chance: random.Random) -> list[Sequence[Event]]:
    """All in one, each alone, or in between."""
    size = chance.choice([1, 3, 7, len(events)])
    return [events[start : start + size] for start in range(0, len(events), size)]


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("inserts", ["append", "upsert"])
@pytest.mark.parametrize("row_deletes", ["positions", "equality"])
def test_the_rows_are_those_of_the_records_one_by_one(
    tmp_path: Path, row_deletes: RowDeletes, inserts: Inserts, slots: int
) -> None:
    for seed in range(4):
        chance = random.Random(seed)
        events = history(chance, 24)
        sink = Changing(
            tmp_path / f"{seed}",
            RowMutations("_cdc.op", row_deletes=row_deletes, inserts=inserts),
            transforms=(TransformSpec("unwrap", "DebeziumTransform"),),
            slots=slots,
        )
        for batch in cut(events, chance):
            assert sink.reasons(sink.take(*map(message, batch))) == []
        names = sink.table.schema().column_names
        found = [(row[names.index("id")], row[names.index("v")]) for row in rows_of(sink.table)]
        assert sorted(found) == expected(events, inserts), seed


# Text order fields

FORMS = {
    "number": lambda n: str(n),
    "sequence": lambda n: f'["{n * 7}", "{n}"]',
    "Postgres": lambda n: f"{n >> 4:X}/{n & 15:X}",
    "SQL Server": lambda n: f"00000027:{n:08x}:0002",
    "binary log": lambda n: f"mysql-bin.{n // 100:06}:{n % 100}",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_by_an_order_field_of_text_the_greatest_position_counts(tmp_path: Path, form: str, mode: Any) -> None:
    """Whichever partition a change comes from. Of equal positions of a partition the later record counts."""
    chance = random.Random(form)
    sink = Changing(tmp_path, RowMutations("op", order_field="seq", delete_mode=mode), slots=2)
    best: dict[int, tuple[int, str]] = {}
    for batch in range(4):
        messages: dict[int, list[Message]] = {0: [], 1: []}
        for n in range(12):
            key, place, value = chance.randrange(4), chance.choice([5, 9, 10, 99, 100, 115, 1000]), f"{batch}-{n}"
            # A partition has positions of its own, so that equal ones come from one partition.
            partition = place % 2
            messages[partition].append((None, {"id": key, "v": value, "op": "u", "seq": FORMS[form](place)}))
            best[key] = max(best.get(key, (-1, "")), (place, value), key=lambda found: found[0])
            if best[key][0] == place:
                best[key] = place, value
        sink.take_all(messages)
    assert sink.rows("id", "v") == [(key, value) for key, (_, value) in sorted(best.items())]


def test_a_change_whose_order_text_has_no_order_is_bad_unless_texts_count_letter_by_letter(tmp_path: Path) -> None:
    def change(value: str, seq: str) -> Message:
        return None, {"id": 1, "v": value, "op": "u", "seq": seq}

    sink = Changing(tmp_path / "parsed", RowMutations("op", order_field="seq"))
    outcome = sink.take(change("a", "2024-01-01T00:00:00Z"), change("b", "9"), change("c", "10"))
    ((offset, reason),) = sink.reasons(outcome)
    assert (offset, sink.rows("v")) == (0, [("c",)])
    assert "field seq is a text that is neither a number nor a position in a log" in reason
    assert "order-type = text" in reason
    text = Changing(tmp_path / "text", RowMutations("op", order_field="seq", order_type="text"))
    assert text.reasons(text.take(change("a", "9"), change("b", "10"))) == []
    text.take(change("c", "10"))
    assert text.rows("v") == [("a",)]


def test_in_a_batch_of_equal_order_values_the_one_of_the_greater_partition_counts(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations("op", order_field="seq"), slots=2)
    for first, second in ((0, 1), (1, 0)):
        change = {p: [(None, {"id": 1, "v": f"of {p}", "op": "u", "seq": 7})] for p in (first, second)}
        sink.take_all(change)
        assert sink.rows("v") == [("of 1",)]
    sink.take((None, {"id": 1, "v": "later", "op": "u", "seq": 7}))
    assert sink.rows("v") == [("later",)]
