"""Rows that are deleted while their files are rewritten stay deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.catalog import Catalog

from calving.maintenance import compaction
from calving.maintenance.translate import InputRows, RowPlaces
from harness.duckdb_extensions import duckdb_rows
from tests.iceberg.histories import MutationTable, create, play, pyiceberg_rows
from tests.maintenance.compacting import beside, compact


def same_rows(table: MutationTable) -> None:
    assert pyiceberg_rows(table.table) == table.rows(), "other rows"


def played(catalog: Catalog, layout: str, version: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Compactions that land late, with commits of the sink between each. How many groups were committed, and how many
    rows were deleted meanwhile.
    """
    table = create(catalog, layout, version)
    play(table, layout, seed, 6)
    committed = translated = 0
    for number in range(3):
        beside(monkeypatch, lambda number=number: play(table, "flat", 100 * (seed + 1) + number, 1 + number))  # type: ignore[misc]
        done = [each.replacement for each in compact(table) if not each.dropped and each.replacement is not None]
        committed += len(done)
        translated += sum(replacement.translated for replacement in done)
        same_rows(table)
    play(table, "flat", seed + 5000, 2)
    same_rows(table)
    assert duckdb_rows(table.table) == table.rows()
    return committed, translated


@pytest.mark.parametrize(
    ("layout", "version"), [("flat", 2), ("by key", 3), ("moving", 2), ("evolved", 2), ("evolved", 3)]
)
def test_compactions_that_land_late_change_no_row(
    catalog: Catalog, layout: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed, translated = played(catalog, layout, version, len(layout), monkeypatch)
    assert committed >= 3 and translated


@pytest.mark.parametrize("version", [2, 3])
def test_ten_commits_that_touch_every_input_do_not_drop_the_group(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(catalog, "flat", version)
    for number in range(3):
        table.commit(table.step([], inserts=[{"id": 40 * number + i, "name": "a", "g": 0} for i in range(40)]))

    def act() -> None:
        for number in range(10):
            keys = [40 * part + 4 * number + i for part in range(3) for i in range(4)]
            rows = [{"id": key, "name": f"b{number}", "g": 1} for key in keys[::2]]
            table.commit(table.step(rows, [{"id": key} for key in keys[1::2]]))

    beside(monkeypatch, act)
    (done,) = compact(table)
    assert done.dropped is None and done.replacement is not None
    assert (done.replacement.translated, done.replacement.outputs) == (120, ())
    assert pyiceberg_rows(table.table) == duckdb_rows(table.table) == table.rows()


def without_translation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RowPlaces, "of", lambda places, rows, read: {})


def without_rank(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InputRows, "taken", lambda own, positions: [own.first + p for p in positions - own.deleted])


def with_a_rank_that_is_off_by_one(patch: pytest.MonkeyPatch) -> None:
    taken = InputRows.taken
    patch.setattr(InputRows, "taken", lambda own, positions: [max(0, row - 1) for row in taken(own, positions)])


def keep_replaced_deletes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compaction, "_obsolete", lambda table, live, data: ())


@pytest.mark.parametrize(
    ("broken", "noticed"),
    [
        (without_translation, "other rows"),
        (without_rank, "other rows"),
        (with_a_rank_that_is_off_by_one, "other rows"),
        (keep_replaced_deletes, "a delete file is about no live data file"),
    ],
)
def test_a_broken_translation_is_noticed(
    catalog: Catalog, broken: Callable[[pytest.MonkeyPatch], None], noticed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError, match=noticed):
        played(catalog, "flat", 2, 3, monkeypatch)
