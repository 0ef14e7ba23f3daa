"""Compactions that give rows another order, or other partitions: in every format version and file format."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform

from calving.maintenance.permutation import PermutationWriter, places
from calving.maintenance.plan import Triggers
from calving.maintenance.strategy import Strategy
from calving.protocol.commit import Step
from harness.duckdb_extensions import duckdb_rows
from harness.forms import forms
from harness.structure import check
from tests.iceberg.histories import MutationTable, create, play, pyiceberg_rows
from tests.iceberg.reader import read_file
from tests.maintenance.compacting import (
    append,
    appended,
    beside,
    compact,
    compactor_of,
    entries,
    planned,
)
from tests.maintenance.test_compaction import lineage, readings

PLACES = "calving.maintenance.compaction.places"
DATA = DataFileContent.DATA
KINDS = ("sort", "z-order", "spec")
VERSIONS = [("parquet", 1), ("parquet", 2), ("parquet", 3), ("orc", 3), ("avro", 2)]
"""Formats and versions that are tried together: how rows are ordered depends on neither."""
Z_ORDER = Strategy("z-order", ("g", "id"))


@pytest.fixture(autouse=True)
def on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds few rows while they are sorted."""
    monkeypatch.setattr("calving.maintenance.rewrite._AT_ONCE", 400)


def changed(table: MutationTable, kind: str) -> dict[str, Any]:
    """The table as somebody has changed it, and what the compactor is told."""
    if kind == "sort":
        with table.table.update_sort_order() as order:
            order.desc("g", IdentityTransform(), NullOrder.NULLS_LAST).asc("name", TruncateTransform(1))
    if kind == "spec":
        with table.table.update_spec() as spec:
            spec.add_field("g", IdentityTransform(), "by_g")
    return {"strategy": Z_ORDER} if kind == "z-order" else {}


def divide_again(table: MutationTable, number: int) -> None:
    with table.table.update_spec() as spec:
        spec.remove_field("by_g" if number == 1 else "b1").add_field("id", BucketTransform(1 + number), f"b{number}")


def leftovers(table: MutationTable) -> list[str]:
    """The permutations that are there."""
    folder = Path(table.table.location().removeprefix("file://"))
    return [path.name for path in folder.rglob("*.arrow")]


def assert_in_order(table: MutationTable, kind: str) -> None:
    """Of the files that a compaction has written, in which nothing is deleted."""
    files = [e.data_file for e in entries(table.table) if e.data_file.content == DATA]
    rows = {file.file_path: read_file(table.table, file.file_path) for file in files}
    if kind == "z-order":
        ((own, *others),) = [rows.values()]
        middle = sorted(row["id"] for row in own)[len(own) // 2]
        # The first bits of both columns. Two thirds of the rows have a g below 2, and these fill the lower half.
        quarters = [(row["g"] == 2, row["id"] >= middle) for row in own]
        assert quarters == sorted(quarters) and len({*quarters}) == 4 and not others
    if kind == "sort":
        for file in files:
            assert file.sort_order_id == table.table.sort_order().order_id == 1
            keys = [(row["g"] is None, -(row["g"] or 0), row["name"][:1]) for row in rows[file.file_path]]
            assert keys == sorted(keys)
    if kind == "spec":
        assert {file.spec_id for file in files} == {table.table.spec().spec_id}
        for file in files:
            assert {row["g"] for row in rows[file.file_path]} == {file.partition[0]}
        assert len(files) == len({file.partition[0] for file in files})


@pytest.mark.parametrize(("file_format", "version"), VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_appended_files_are_written_in_another_order_with_the_same_rows(
    catalog: Catalog, kind: str, file_format: str, version: int
) -> None:
    table = appended(catalog, version, 4, file_format=file_format)
    before = lineage(table.table) if version == 3 else None
    more = changed(table, kind)
    (done,) = compact(table, **more)
    assert done.dropped is done.failed is None and done.replacement is not None
    assert_in_order(table, kind)
    assert version < 3 or lineage(table.table) == before
    append(table, 4)
    assert readings(table, file_format) == [table.rows()] * len(readings(table, file_format))
    assert leftovers(table) == []


@pytest.mark.parametrize(
    ("file_format", "version"),
    [*VERSIONS[1:3], *(pytest.param(*each, marks=pytest.mark.long) for each in VERSIONS[3:])],
)
@pytest.mark.parametrize("kind", KINDS)
def test_ten_commits_that_touch_every_input_do_not_drop_the_group(
    catalog: Catalog, kind: str, file_format: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, version, 3, rows=60, file_format=file_format)
    table.commit(table.step([], [{"id": 1000 * part + i} for part in range(3) for i in (0, 7, 30)]))
    more = changed(table, kind)

    def act() -> None:
        for number in range(10):
            keys = [1000 * part + 5 * number + i for part in range(3) for i in (1, 2, 3)]
            rows = [{"id": key, "name": f"b{number}", "g": number % 2} for key in keys[::3]]
            table.commit(table.step(rows, [{"id": key} for key in keys if key not in keys[::3]]))

    beside(monkeypatch, act)
    (group,) = [group for group in planned(table).groups if len(group.files) == 3]
    done = compactor_of(table, **more).compact(group)
    check(table.table)
    assert done.dropped is done.failed is None and done.replacement is not None
    assert (done.replacement.translated, sum(f.record_count for f in done.replacement.outputs)) == (87, 171)
    assert readings(table, file_format) == [table.rows()] * len(readings(table, file_format))
    head = table.table.current_snapshot()
    assert head is not None and head.summary is not None and head.summary.operation is Operation.REPLACE
    assert leftovers(table) == []


def played(catalog: Catalog, kind: str, version: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compactions that land late, with commits of the sink between each. How many rows were deleted meanwhile."""
    table = create(catalog, "flat", version)
    play(table, "flat", 5, 5)
    more = changed(table, kind)
    translated = 0
    for number in range(3):
        if kind == "spec" and number:
            divide_again(table, number)
        beside(monkeypatch, lambda number=number: play(table, "flat", 60 + number, 2 + number))  # type: ignore[misc]
        done = compact(table, **more)
        translated += sum(each.replacement.translated for each in done if each.replacement is not None)
        failed = [each.failed for each in done if each.failed]
        assert not failed, failed
        assert pyiceberg_rows(table.table) == table.rows(), "other rows"
    assert duckdb_rows(table.table) == table.rows()
    return translated


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_compactions_that_land_late_change_no_row(
    catalog: Catalog, kind: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert played(catalog, kind, version, monkeypatch) > 10


def as_they_were(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PLACES, lambda io, path, rows: rows)


def off_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PLACES, lambda io, path, rows: [max(0, each - 1) for each in places(io, path, rows)])


def of_another_attempt(patch: pytest.MonkeyPatch) -> None:
    first: list[str] = []

    def of_the_first(io: FileIO, path: str, rows: Sequence[int]) -> list[int]:
        if not first:
            first.append(f"{path}-kept")
            shutil.copy(path.removeprefix("file://"), first[0].removeprefix("file://"))
        return places(io, first[0], rows)

    patch.setattr(PLACES, of_the_first)


@pytest.mark.parametrize("broken", [as_they_were, off_by_one, of_another_attempt])
@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_permutation_is_noticed(
    catalog: Catalog, kind: str, broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError, match=r"other rows|which says where rows are now, lacks"):
        played(catalog, kind, 2, monkeypatch)


def test_files_of_one_commit_do_not_overlap_in_the_sort_order(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calving.writing.table._ENOUGH_BYTES", 200)
    table = appended(catalog, 2, 4, rows=40, layout="moving")
    with table.table.update_sort_order() as order:
        order.asc("id", IdentityTransform())
    with table.table.transaction() as change:
        change.set_properties({"write.target-file-size-bytes": "60"})
    table.commit(table.step([], [{"id": 1000 * part + i} for part in range(4) for i in range(3)]))
    done = compact(table, Triggers(deleted_share=0.01))
    assert len(done) == 3
    for each in done:
        assert each.replacement is not None and len(each.replacement.outputs) > 1
        ids = [row["id"] for file in each.replacement.outputs for row in read_file(table.table, file.file_path)]
        assert ids == sorted(ids)
    assert pyiceberg_rows(table.table) == table.rows()


def written(patch: pytest.MonkeyPatch) -> list[str]:
    """The permutations that are written from now on."""
    paths: list[str] = []
    init = PermutationWriter.__init__

    def noted(self: PermutationWriter, io: FileIO, path: str) -> None:
        paths.append(path)
        init(self, io, path)

    patch.setattr(PermutationWriter, "__init__", noted)
    return paths


@pytest.mark.parametrize(("version", "changes_rows", "count"), [(1, True, 0), (2, True, 1), (2, False, 0)])
def test_only_tables_whose_rows_may_be_deleted_have_a_permutation(
    catalog: Catalog, version: int, changes_rows: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, paths = appended(catalog, version, 3), written(monkeypatch)
    (done,) = compact(table, strategy=Z_ORDER, changes_rows=changes_rows)
    assert done.replacement is not None and len(paths) == count


def test_deletes_that_nobody_expected_drop_the_group_and_the_next_one_expects_them(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, paths = appended(catalog, 2, 3), written(monkeypatch)
    beside(monkeypatch, lambda: table.commit(table.step([], [{"id": 5}])))
    (done,) = compact(table, strategy=Z_ORDER, changes_rows=False)
    assert done.dropped == "rows were deleted meanwhile, and nothing tells where they are in the new files"
    assert pyiceberg_rows(table.table) == table.rows() and paths == []
    beside(monkeypatch, lambda: table.commit(table.step([], [{"id": 6}])))
    (done,) = compact(table, strategy=Z_ORDER, changes_rows=False)
    assert done.replacement is not None and done.replacement.translated == len(paths) == 1
    assert pyiceberg_rows(table.table) == table.rows()


def test_a_permutation_that_is_lost_fails_the_group_and_nothing_is_left(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3)
    folder = Path(table.table.location().removeprefix("file://")) / "data"

    def act() -> None:
        (lost,) = folder.glob("*-rows.arrow")
        lost.unlink()
        table.commit(table.step([], [{"id": 5}]))

    before = {*folder.iterdir()}
    beside(monkeypatch, act)
    (done,) = compact(table, strategy=Z_ORDER)
    assert done.failed is not None and "which says where rows are now, cannot be read" in done.failed
    assert pyiceberg_rows(table.table) == table.rows()
    new = {path.name for path in folder.iterdir() if path not in before and "-keys" not in path.name}
    assert new == {Path(e.data_file.file_path).name for e in entries(table.table) if e.data_file.content != DATA}


def test_a_storage_that_fails_at_the_permutation_fails_the_group_and_nothing_is_left(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3)
    folder = Path(table.table.location().removeprefix("file://")) / "data"
    before = {*folder.iterdir()}

    def full(self: PermutationWriter, rows: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PermutationWriter, "add", full)
    (done,) = compact(table, strategy=Z_ORDER)
    assert done.failed is not None and "No space left on device" in done.failed
    assert {*folder.iterdir()} == before


def test_rows_that_are_in_a_wrong_partition_move_to_their_own(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(catalog, "moving", 2)
    flat = replace(table.spec(), spec_json=UNPARTITIONED_PARTITION_SPEC.model_dump_json())
    for number in range(2):
        own = table.write(table.spec(), [{"id": 0, "name": "a", "g": 0}])[0]
        rows = [{"id": 10 * number + i, "name": "a", "g": i % 2} for i in range(6)]
        (wrong,) = table.write(flat, rows)
        table.commit(Step((replace(wrong, spec_id=own.spec_id, partition=own.partition),), (), frozenset()))
        table.expected |= {table.key(row): row for row in rows}
    beside(monkeypatch, lambda: table.commit(table.step([{"id": 3, "name": "b", "g": 1}])))
    (done,) = compact(table)
    assert done.replacement is not None and [file.partition.values for file in done.replacement.outputs] == [(0,), (1,)]
    assert pyiceberg_rows(table.table) == table.rows()


@pytest.mark.parametrize("seed", forms(range(3), [0]))
def test_compactions_of_every_kind_after_each_other_change_no_row(
    catalog: Catalog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    table, translated = create(catalog, "flat", 2 + seed % 2), 0
    with table.table.update_sort_order() as order:
        order.desc("g", IdentityTransform(), NullOrder.NULLS_FIRST)
    play(table, "flat", seed, 4)
    for number in range(6):
        if chance.random() < 0.4:
            with table.table.update_spec() as spec:
                for field in table.table.spec().fields:
                    spec.remove_field(field.name)
                spec.add_field("id", BucketTransform(2 + number), f"of_round_{number}")
        beside(monkeypatch, lambda number=number: play(table, "flat", 10 * number + seed, 2))  # type: ignore[misc]
        done = compact(table, strategy=chance.choice([None, Strategy("bin-pack"), Strategy("sort"), Z_ORDER]))
        assert [each.failed or each.dropped for each in done if each.failed or each.dropped] == []
        translated += sum(each.replacement.translated for each in done if each.replacement is not None)
        assert pyiceberg_rows(table.table) == table.rows()
    assert duckdb_rows(table.table) == table.rows() and translated
    assert leftovers(table) == []
