"""Files that have landed outside of the partitions of their table are moved into them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.update import RemovePartitionSpecsUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform

from calving.maintenance.plan import Triggers
from calving.protocol.commit import Step
from harness.structure import check
from tests.iceberg.histories import MutationTable, pyiceberg_rows
from tests.iceberg.reader import rows_of
from tests.maintenance.compacting import appended, beside, compact, compactor_of, entries
from tests.maintenance.test_compaction import lineage

LANDED = Triggers(landed_files=1)


def divided(table: MutationTable, column: str = "g") -> MutationTable:
    """The table gets partitions. Its files so far have none."""
    with table.table.update_spec() as spec:
        spec.add_field(column, IdentityTransform(), f"by_{column}")
    return table


def land(table: MutationTable, rows: list[dict[str, Any]]) -> None:
    """A file without a partition comes."""
    spec = replace(table.spec(), spec_json=UNPARTITIONED_PARTITION_SPEC.model_dump_json())
    table.commit(Step(table.write(spec, rows), (), frozenset()))
    table.expected |= {table.key(row): row for row in rows}


def partitions(table: MutationTable) -> Counter[tuple[int, Any]]:
    """How many data files each partition has, with its spec."""
    files = [e.data_file for e in entries(table.table) if e.data_file.content == DataFileContent.DATA]
    return Counter((file.spec_id, file.partition[0] if len(file.partition) else None) for file in files)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_one_landed_file_becomes_a_file_of_each_of_its_partitions(catalog: Catalog, version: int) -> None:
    table = divided(appended(catalog, version, 1))
    before = lineage(table.table) if version == 3 else None
    (done,) = compact(table, LANDED)
    assert done.replacement is not None and done.group.reason == "1 file without a partition"
    assert partitions(table) == {(1, 0): 1, (1, 1): 1, (1, 2): 1}
    assert version < 3 or lineage(table.table) == before
    assert pyiceberg_rows(table.table) == table.rows()
    assert compact(table, LANDED) == []


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_change_while_they_move_have_changed_in_their_partitions(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = divided(appended(catalog, version, 1))
    land(table, [{"id": 50 + i, "name": "landed", "g": i % 2} for i in range(9)])
    beside(
        monkeypatch,
        lambda: table.commit(table.step([{"id": 52, "name": "moved", "g": 1}], [{"id": 57}, {"id": 3}, {"id": 9}])),
    )
    (done,) = compact(table, LANDED)
    assert done.replacement is not None and done.replacement.translated == 4
    assert {spec for spec, _ in partitions(table)} == {1}
    assert pyiceberg_rows(table.table) == table.rows()


def test_files_that_land_later_move_later(catalog: Catalog) -> None:
    table = divided(appended(catalog, 2, 1))
    for number in range(3):
        land(table, [{"id": 100 * number + 50, "name": "landed", "g": number}])
        (done,) = [each for each in compact(table, LANDED) if each.group.partition[0] == 0]
        assert done.replacement is not None
    assert {spec for spec, _ in partitions(table)} == {1}
    assert pyiceberg_rows(table.table) == table.rows()


def test_each_of_many_partitions_gets_one_file(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calving.maintenance.rewrite._AT_ONCE", 4_000)
    table = divided(appended(catalog, 2, 0, layout="flat"))
    for number in range(3):
        land(table, [{"id": 1000 * number + i, "name": "landed", "g": i % 150} for i in range(300)])
    (done,) = compact(table, LANDED)
    assert done.replacement is not None
    assert partitions(table) == {(1, g): 1 for g in range(150)}
    assert pyiceberg_rows(table.table) == table.rows()


def test_version_1_lands_in_a_spec_of_void_transforms(catalog: Catalog) -> None:
    table = appended(catalog, 1, 0, layout="moving")
    with table.table.update_spec() as spec:
        spec.remove_field("g")
    assert [type(field.transform) for field in table.table.spec().fields] == [VoidTransform]
    table.commit(table.step([], inserts=[{"id": i, "name": "landed", "g": i % 2} for i in range(6)]))
    divided(table)
    (done,) = compact(table, LANDED)
    assert done.replacement is not None and len(done.replacement.outputs) == 2
    assert {file.spec_id for file in done.replacement.outputs} == {table.table.spec().spec_id}
    check(table.table)
    assert pyiceberg_rows(table.table) == table.rows()


def test_a_table_without_partitions_has_no_landed_files(catalog: Catalog) -> None:
    table = appended(catalog, 2, 1)
    assert compactor_of(table, LANDED).plan(table.table, 0).groups == ()


def test_keys_that_are_deleted_while_rows_move_into_partitions_are_deleted_there(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 1)
    table.equality = True
    with table.table.update_spec() as spec:
        spec.add_field("id", BucketTransform(2), "halves")
    land(table, [{"id": 50 + i, "name": "landed", "g": 0} for i in range(9)])
    beside(monkeypatch, lambda: table.commit(table.step([{"id": 4, "name": "b", "g": 0}], [{"id": 3}, {"id": 52}])))
    (done,) = compact(table, LANDED)
    assert done.replacement is not None and {file.spec_id for file in done.replacement.outputs} == {1}
    assert rows_of(table.table) == table.rows()


def test_rows_do_not_move_into_a_spec_that_has_got_the_number_of_theirs(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 1)
    with table.table.update_spec() as spec:
        spec.add_field("id", BucketTransform(2), "halves")

    def replaced() -> None:
        with table.table.update_spec() as spec:
            spec.remove_field("halves")
        catalog.commit_table(table.table, (), (RemovePartitionSpecsUpdate(spec_ids=[1]),))
        divided(table)

    beside(monkeypatch, replaced)
    (done,) = compact(table, LANDED)
    assert table.table.spec().spec_id == 1
    assert done.dropped == "the partition spec of the new files was removed"
    assert pyiceberg_rows(table.table) == table.rows()
    (done,) = compact(table, LANDED)
    assert done.replacement is not None and partitions(table) == {(1, 0): 1, (1, 1): 1, (1, 2): 1}
