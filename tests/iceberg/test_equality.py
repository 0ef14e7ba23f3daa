"""Mutation tables whose keys stay keys: snapshots one above the other, deletes where rows can be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType, UUIDType

from calving.iceberg.manifests import read_entries, read_manifest_list
from calving.model.files import DELETES, sink_name
from calving.protocol.commit import Step
from harness.duckdb_extensions import duckdb_rows
from harness.forms import forms
from tests.iceberg.histories import KEY, LAYOUTS, MutationTable, create, play
from tests.iceberg.reader import rows_of


def made(catalog: Catalog, layout: str) -> MutationTable:
    table = create(catalog, layout, 2)
    table.equality = True
    return table


def row(key: int, name: str) -> dict[str, object]:
    return {"id": key, "name": name, "g": 0}


def spec_of(table: MutationTable) -> PartitionSpec:
    return table.table.spec()


def deletes(table: MutationTable) -> Counter[int]:
    """The live equality deletes, by spec."""
    head = table.table.current_snapshot()
    assert head is not None
    files = [
        entry.data_file
        for manifest in read_manifest_list(table.table.io, head.manifest_list)
        for entry in read_entries(table.table.io, manifest)
    ]
    return Counter(file.spec_id for file in files if file.content is DataFileContent.EQUALITY_DELETES)


def snapshots_of(table: MutationTable, *steps: Step) -> int:
    """How many snapshots the commit of these steps brings."""
    before = len(table.table.metadata.snapshots)
    table.commit(*steps)
    return len(table.table.metadata.snapshots) - before


@pytest.mark.parametrize("sources", [1, 3])
@pytest.mark.parametrize("layout", forms(LAYOUTS, ["flat", "moving"]))
def test_a_history_of_changes_leaves_what_a_dict_has(catalog: Catalog, layout: str, sources: int) -> None:
    table = made(catalog, layout)
    play(table, layout, 3, 12, sources)
    assert duckdb_rows(table.table) == table.rows() == rows_of(table.table)


@pytest.mark.parametrize("file_format", ["avro", "orc"])
def test_rows_in_files_of_other_formats_are_deleted_by_their_keys(catalog: Catalog, file_format: str) -> None:
    table = create(catalog, "by key", 2, file_format=file_format)
    table.equality = True
    play(table, "by key", 5, 8, 2)
    assert rows_of(table.table) == table.rows()
    table.maintain()
    assert rows_of(table.table) == table.rows()


@pytest.mark.parametrize("layout", ["flat", "by key", "moving"])
def test_of_several_partitions_that_change_a_key_at_once_the_later_one_wins(catalog: Catalog, layout: str) -> None:
    table = made(catalog, layout)
    play(table, layout, 5, 8, 3, shared=True)
    assert duckdb_rows(table.table) == table.rows()


def test_steps_of_different_partitions_with_a_key_in_common_are_snapshots_of_one_commit(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    assert (
        snapshots_of(table, *(table.step([row(1, name), row(ord(name), name)], source=ord(name)) for name in "ab")) == 2
    )
    assert duckdb_rows(table.table) == table.rows()


def test_a_row_of_one_partition_is_not_deleted_by_what_another_has_deleted_before(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    first = [table.step([row(5, name)], source=0) for name in "ab"]
    table.commit(*first, table.step([], [{"id": 1}], source=0), table.step([row(1, "new")], source=1))
    assert duckdb_rows(table.table) == table.rows() == [(1, "new", 0), (5, "b", 0)]


def test_an_inserted_row_is_deleted_by_the_later_change_of_another_partition(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    table.commit(table.step([], inserts=[row(1, "a")], source=0), table.step([row(1, "b")], source=1))
    assert duckdb_rows(table.table) == [(1, "b", 0)]


def test_steps_of_one_partition_are_snapshots_of_one_commit(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    versions = len(table.table.metadata.metadata_log)
    assert snapshots_of(table, *(table.step([row(1, name)], source=0) for name in ("a", "b", "c"))) == 3
    assert len(table.table.metadata.metadata_log) == versions + 1
    assert duckdb_rows(table.table) == [(1, "c", 0)]
    named = [s.summary.additional_properties if s.summary else {} for s in table.table.metadata.snapshots[-3:]]
    assert [KEY.offsets in each for each in named] == [False, False, True]


def test_steps_of_different_partitions_share_a_snapshot(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    steps = [table.step([row(key, f"{number}")], source=key) for number in range(2) for key in range(3)]
    assert snapshots_of(table, *steps) == 2
    assert duckdb_rows(table.table) == [(0, "1", 0), (1, "1", 0), (2, "1", 0)]


def test_a_step_without_deletes_shares_the_snapshot_of_the_one_before(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    steps = [table.step([row(1, "a")], source=0), table.step([], inserts=[row(2, "b")], source=0)]
    assert snapshots_of(table, *steps, table.step([row(2, "c")], source=0)) == 2
    assert duckdb_rows(table.table) == [(1, "a", 0), (2, "c", 0)]


def test_a_step_of_unknown_partitions_follows_all_before_it_and_comes_before_all_after_it(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    steps = [table.step([row(1, "a")], source=0), table.step([row(1, "b")]), table.step([row(1, "c")], source=1)]
    appended = table.step([], inserts=[row(2, "d")])
    assert snapshots_of(table, *steps[:2], appended, steps[2], table.step([row(2, "e")], source=2)) == 3
    assert duckdb_rows(table.table) == [(1, "c", 0), (2, "e", 0)]


def test_deletes_are_in_the_partitions_of_their_keys(catalog: Catalog) -> None:
    table = made(catalog, "by key")
    table.commit(table.step([row(key, "a") for key in range(20)]))
    table.commit(table.step([row(3, "b")], [{"id": 5}]))
    assert set(deletes(table)) == {spec_of(table).spec_id}
    assert duckdb_rows(table.table) == table.rows()


def test_deletes_are_there_once_for_each_spec_with_live_files(catalog: Catalog) -> None:
    table = made(catalog, "by key")
    table.commit(table.step([row(key, "a") for key in range(20)]))
    with table.table.update_spec() as spec:
        spec.remove_field(spec_of(table).fields[0].name).add_field("id", BucketTransform(3), "thirds")
    table.commit(table.step([row(key, "b") for key in range(10)]))
    before = deletes(table)
    table.commit(table.step([row(4, "c")]))
    assert (deletes(table) - before).keys() == {0, spec_of(table).spec_id}
    assert rows_of(table.table) == table.rows()


@pytest.mark.parametrize("layout", ["flat", "moving"])
def test_deletes_are_for_all_partitions_where_keys_do_not_tell_them(catalog: Catalog, layout: str) -> None:
    table = made(catalog, layout)
    table.commit(table.step([row(1, "a")]))
    table.commit(table.step([{"id": 1, "name": "b", "g": 2}]))
    (spec_id,) = deletes(table)
    assert not table.table.specs()[spec_id].fields
    assert duckdb_rows(table.table) == [(1, "b", 2)]


def test_keys_whose_column_has_another_name_by_now_are_found(catalog: Catalog) -> None:
    table = made(catalog, "by key")
    table.commit(table.step([row(key, "a") for key in range(9)]))
    waiting = table.step([row(3, "b")])
    with table.table.update_schema() as change:
        change.rename_column("id", "number")
    table.commit(waiting)
    assert set(deletes(table)) == {0}
    assert duckdb_rows(table.table) == table.rows()


def test_keys_of_several_columns_in_structs_tell_the_partition(catalog: Catalog) -> None:
    inner = StructType(NestedField(4, "code", StringType(), required=True))
    schema = Schema(
        NestedField(1, "of", inner, required=True),
        NestedField(2, "unique", UUIDType(), required=True),
        NestedField(3, "name", LongType(), required=False),
        identifier_field_ids=[2, 4],
    )
    table = create(catalog, ["bucket(unique, 3)", "of.code"], 2, schema=schema, ids=("of.code", "unique"))
    table.equality = True
    keys = [{"of": {"code": code}, "unique": str(uuid4())} for code in "abab"]
    table.commit(table.step([{**key, "name": 0} for key in keys]))
    table.commit(table.step([{**key, "name": 1} for key in keys[:2]], keys[2:3]))
    assert set(deletes(table)) == {0}
    assert sorted(name for _, _, name in rows_of(table.table)) == [0, 1, 1]


def test_a_refused_attempt_leaves_no_deletes(catalog: Catalog) -> None:
    table = made(catalog, "by key")
    table.commit(table.step([row(key, "a") for key in range(4)]))
    table.commit(table.step([row(1, "b")]), meanwhile=[table.step([], inserts=[row(7, "c")])])
    data = Path(table.table.location().removeprefix("file://")) / "data"
    there = {path.name for path in data.rglob("*.parquet")}
    named = {Path(file["file_path"]).name for file in table.table.inspect.all_files().to_pylist()}
    assert named <= there
    assert all(found is not None and found.kind == DELETES for found in map(sink_name, there - named))
    assert duckdb_rows(table.table) == table.rows()
