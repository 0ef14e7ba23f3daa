"""Keys that are deleted (``row-deletes = equality``) while their rows move between partitions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform
from pyiceberg.types import LongType

from calving.iceberg.equality import EqualitySearch
from calving.iceberg.lineage import new_snapshot
from calving.maintenance.compaction import Compaction
from calving.maintenance.compactor import CompactedGroup
from calving.model.files import PartitionTuple
from harness.structure import check
from tests.iceberg.histories import MutationTable, create, play, pyiceberg_rows
from tests.iceberg.reader import rows_of
from tests.maintenance.compacting import beside, compactor_of, entries, planned
from tests.maintenance.test_row_orders import leftovers


def halved(catalog: Catalog, version: int) -> MutationTable:
    """A table with two files in each of its two partitions, which gets three partitions now."""
    table = create(catalog, ["bucket(id, 2)"], version)
    table.equality = True
    for number in range(2):
        table.commit(table.step([], inserts=[{"id": 10 * number + i, "name": "a", "g": 0} for i in range(10)]))
    parted(table, ("id", BucketTransform(3)))
    return table


def parted(table: MutationTable, *terms: tuple[str, Transform[Any, Any]]) -> None:
    """The table gets these partitions, in place of those that it has."""
    with table.table.update_spec() as spec:
        for field in table.table.spec().fields:
            spec.remove_field(field.name)
        for column, transform in terms:
            spec.add_field(column, transform, f"p{uuid4().hex}")


def by_others(table: MutationTable, ids: Iterable[int], spec_id: int, partition: tuple[Any, ...]) -> None:
    """Somebody else deletes keys in one partition only."""
    file = table.key_file(table.spec(), [{"id": each} for each in ids])
    fields = table.write(table.spec(), [{"id": 0, "name": "", "g": 0}])[0].partition.fields
    file = replace(file, spec_id=spec_id, partition=PartitionTuple(fields, partition))
    snapshot = new_snapshot(table.table, {}, "main")
    snapshot.add([file])
    table.table._do_commit(*snapshot.prepare())


def keys_left(table: MutationTable) -> int:
    return sum(entry.data_file.content.value == 2 for entry in entries(table.table))


def landed(done: Iterable[CompactedGroup]) -> None:
    for each in done:
        assert each.replacement is not None, each.dropped or each.failed


@pytest.mark.parametrize("version", [2, 3])
def test_keys_of_a_partition_that_rows_leave_are_deleted_where_they_go(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = halved(catalog, version)
    (group, _) = planned(table).groups
    beside(
        monkeypatch,
        lambda: table.commit(table.step([{"id": 3, "name": "b", "g": 1}, {"id": 4, "name": "b", "g": 1}], [{"id": 5}])),
    )
    done = compactor_of(table).compact(group)
    assert done.replacement is not None and done.dropped is None and done.replacement.translated
    assert rows_of(table.table) == table.rows() and leftovers(table) == []
    check(table.table, equality=True)
    table.maintain()
    assert pyiceberg_rows(table.table) == table.rows()


@pytest.mark.parametrize("version", [2, 3])
def test_keys_that_are_deleted_in_a_partition_alone_do_not_take_rows_that_enter_it_later(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = halved(catalog, version)
    groups = planned(table).groups
    third = BucketTransform(3).transform(LongType())
    beside(monkeypatch, lambda: by_others(table, range(20), table.table.spec().spec_id, (third(7),)))
    landed(compactor_of(table).compact(group) for group in groups)
    assert rows_of(table.table) == table.rows()


def test_keys_that_were_deleted_after_the_plan_are_deleted_in_the_new_files(catalog: Catalog) -> None:
    table = halved(catalog, 2)
    groups = planned(table).groups
    table.commit(table.step([{"id": 3, "name": "b", "g": 1}], [{"id": 5}, {"id": 16}]))
    landed(compactor_of(table).compact(group) for group in groups)
    assert rows_of(table.table) == table.rows()


def test_deletes_of_which_no_file_is_left_go_with_the_files(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = halved(catalog, 2)
    groups = planned(table).groups
    beside(monkeypatch, lambda: table.commit(table.step([], [{"id": each} for each in range(10)])))
    landed(compactor_of(table).compact(group) for group in groups)
    assert rows_of(table.table) == table.rows()
    assert keys_left(table) == 0


def test_each_delete_is_searched_for_once_however_often_others_are_faster(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = halved(catalog, 2)
    (group, *_) = planned(table).groups
    searched: list[str] = []
    of, rows, left = Compaction.of, EqualitySearch.rows, iter(range(2))

    def raced(self: Compaction, loaded: Any, branch: str) -> Any:
        found = of(self, loaded, branch)
        if (number := next(left, None)) is not None:
            table.commit(table.step([], [{"id": number}, {"id": 10 + number}]))
        return found

    def told(self: EqualitySearch, loaded: Any, live: Any, deletes: Any, data: Any) -> Any:
        searched.extend(delete.file.file_path for delete in deletes)
        return rows(self, loaded, live, deletes, data)

    monkeypatch.setattr(EqualitySearch, "rows", told)
    monkeypatch.setattr(Compaction, "of", raced)
    table.commit(table.step([], [{"id": 9}]))
    landed([compactor_of(table).compact(group)])
    assert rows_of(table.table) == table.rows()
    assert len(searched) == len(set(searched)) >= 3


@pytest.mark.parametrize(("version", "seed"), [(version, seed) for version in (2, 3) for seed in range(2)])
def test_rows_that_move_to_and_fro_while_their_keys_change_are_right(
    catalog: Catalog, version: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    table = create(catalog, chance.choice(["flat", "by key", "moving"]), version)
    table.equality = True
    play(table, "flat", seed, 4)
    committed = translated = 0
    for number in range(4):
        terms: list[tuple[str, Transform[Any, Any]]] = [("id", BucketTransform(2 + number)), ("g", IdentityTransform())]
        parted(table, *chance.choice([[], terms[:1], terms[1:], terms]))
        table.maintain_only()
        groups = planned(table).groups
        beside(monkeypatch, lambda number=number: play(table, "flat", 10 * number + seed, 2))  # type: ignore[misc]
        for group in groups:
            done = compactor_of(table).compact(group)
            assert done.dropped is None and done.failed is None
            committed += done.replacement is not None
            translated += done.replacement.translated if done.replacement is not None else 0
            assert rows_of(table.table) == table.rows()
            check(table.table, equality=True)
    table.maintain()
    assert pyiceberg_rows(table.table) == table.rows()
    assert committed >= 2 and translated and leftovers(table) == []


def keep_the_sequence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Compaction, "_settles", lambda self, table, live: False)


def search_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Compaction, "_look_for_keys", lambda self, table, live: None)


@pytest.mark.parametrize("broken", [keep_the_sequence, search_nothing])
def test_rows_come_back_if_keys_are_not_looked_for(
    catalog: Catalog, broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    table = halved(catalog, 2)
    (group, _) = planned(table).groups
    beside(monkeypatch, lambda: table.commit(table.step([], [{"id": each} for each in range(5)])))
    compactor_of(table).compact(group)
    assert rows_of(table.table) != table.rows()
