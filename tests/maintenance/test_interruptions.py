"""A compaction that is killed, or that a storage or catalog fails, leaves every row once, and the next one goes on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.transforms import IdentityTransform

from calving.iceberg.catalog import open_catalog
from calving.maintenance.strategy import Strategy
from harness.structure import check
from tests.iceberg.histories import MutationTable, pyiceberg_rows
from tests.iceberg.killed_maintenance import kills
from tests.maintenance.compacting import appended, beside, compactor_of, data_files, fail_at, planned

Z_ORDER = Strategy("z-order", ("g", "id"))


@pytest.mark.parametrize("is_sorted", [False, True])
def test_who_is_killed_at_any_step_leaves_the_rows_and_the_next_one_goes_on(tmp_path: Path, is_sorted: bool) -> None:
    table = appended(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), 2, 3)
    if is_sorted:
        with table.table.update_sort_order() as order:
            order.desc("id", IdentityTransform())
    table.commit(table.step([], [{"id": 0}, {"id": 1001}]))
    assert kills("tests.maintenance.killed_compaction", tmp_path, table) > 5
    assert pyiceberg_rows(table.table) == table.rows() and len(data_files(table.table)) == 1


@pytest.mark.parametrize("strategy", [Strategy("bin-pack"), Z_ORDER])
@pytest.mark.parametrize("version", [2, 3])
def test_an_error_at_any_step_leaves_the_rows_also_those_that_were_deleted_meanwhile(
    catalog: Catalog, version: int, strategy: Strategy
) -> None:
    for last in itertools.count():
        table = appended(catalog, version, 2)
        with pytest.MonkeyPatch.context() as patch:
            (group,) = planned(table).groups
            has_failed: Callable[[], bool] = bool

            def act(table: MutationTable = table, last: int = last, patch: pytest.MonkeyPatch = patch) -> None:
                nonlocal has_failed
                table.commit(table.step([{"id": 3, "name": "b", "g": 1}], [{"id": 1004}]))
                has_failed = fail_at(last, patch)

            beside(patch, act)
            done = compactor_of(table, strategy=strategy).compact(group)
        check(table.table)
        assert pyiceberg_rows(table.table) == table.rows()
        if not has_failed():
            assert done.replacement is not None
            break
    assert last > 4


def test_an_error_at_any_step_of_sorting_leaves_the_rows(catalog: Catalog) -> None:
    for last in itertools.count():
        table = appended(catalog, 2, 2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("calving.maintenance.rewrite._AT_ONCE", 100)
            (group,) = planned(table).groups
            has_failed = fail_at(last, patch)
            done = compactor_of(table, strategy=Z_ORDER).compact(group)
        check(table.table)
        assert pyiceberg_rows(table.table) == table.rows()
        if not has_failed():
            assert done.replacement is not None
            break
    assert last > 4


def test_a_disk_that_fills_while_files_are_written_names_the_group_and_leaves_nothing(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3)
    (group,) = planned(table).groups
    folder = Path(table.table.location().removeprefix("file://")) / "data"
    before = sorted(folder.iterdir())

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("calving.writing.formats.parquet.ParquetWriter.write", full)
    done = compactor_of(table).compact(group)
    assert done.failed is not None and "No space left on device" in done.failed
    assert sorted(folder.iterdir()) == before
