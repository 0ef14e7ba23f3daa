"""Mutation tables, read, changed and compacted by Spark with Iceberg's own runtime."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import BooleanType, LongType, NestedField

from calving.iceberg.catalog import open_catalog
from calving.model.tables import RowMutations
from harness.duckdb_extensions import duckdb_rows
from harness.spark_reader import spark_on
from tests.iceberg.histories import LAYOUTS, MutationTable, create, play, pyiceberg_rows
from tests.maintenance.compacting import appended, beside, compactor_of, planned
from tests.maintenance.merging import merge
from tests.maintenance.test_row_orders import KINDS, changed
from tests.mutations.changing import Changing
from tests.mutations.histories import played

pytestmark = pytest.mark.services

ROW_ID = {2: "", 3: ", _row_id"}
"""What else Spark is asked for, by format version."""
LINEAGE = {2: "", 3: ", _row_id, _last_updated_sequence_number"}
MERGE_ON_READ = "'write.delete.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"


@pytest.fixture(params=[2, 3])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def where(version: int, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if version == 2 else str(request.getfixturevalue("rest_uri"))


@pytest.fixture
def catalog(where: str) -> Catalog:
    if where.startswith("http"):
        return open_catalog("iceberg", {"type": "rest", "uri": where})
    return open_catalog("iceberg", {"type": "embedded", "warehouse": where})


def rows_of(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in found), key=repr)


def test_spark_reads_every_history(catalog: Catalog, version: int, where: str) -> None:
    tables = []
    formats = [(layout, "parquet") for layout in LAYOUTS]
    formats += itertools.product(("flat", "moving"), ("orc", "avro"))
    for seed, (layout, file_format) in enumerate(formats):
        tables.append(create(catalog, layout, version, file_format=file_format))
        play(tables[-1], layout, 100 + seed, 14)
    found = spark_on(where, *(f"select *{ROW_ID[version]} from iceberg.{table.name}" for table in tables))
    for table, rows in zip(tables, found, strict=True):
        if version == 3:
            assert len({row.pop("_row_id") for row in rows}) == len(rows), table.name
        assert rows_of(rows) == table.rows(), table.name


def test_spark_reads_every_history_of_partial_updates(tmp_path: Path, version: int, where: str) -> None:
    histories = []
    for seed in range(20, 24):
        place = tmp_path if version == 2 else tmp_path / str(seed)
        histories.append(played(place, seed, where if version == 3 else None, partial=True))
    found = spark_on(where, *(f"select id, name, g from iceberg.{each.sink.name}" for each in histories))
    for history, rows in zip(histories, found, strict=True):
        assert rows_of(rows) == history.oracle.found(("id", "name", "g")), history.shape


def test_spark_reads_equality_deletes_of_every_layout_and_the_positions_that_they_become(tmp_path: Path) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    tables = []
    for seed, layout in enumerate([*LAYOUTS, "other buckets"]):
        tables.append(create(catalog, "by key" if layout == "other buckets" else layout, 2))
        tables[-1].equality = True
        play(tables[-1], layout, 200 + seed, 8, 3)
    with tables[-1].table.update_spec() as spec:  # deletes are there under both specs then
        spec.remove_field(tables[-1].table.spec().fields[0].name).add_field("id", BucketTransform(3), "thirds")
    play(tables[-1], "other buckets", 300, 6, 3)
    heads = [table.table.current_snapshot() for table in tables]
    for table in tables:
        table.maintain()
    found = spark_on(
        str(tmp_path),
        *(
            f"select * from iceberg.{t.name} version as of {h.snapshot_id}"
            for t, h in zip(tables, heads, strict=True)
            if h
        ),
        *(f"select * from iceberg.{table.name}" for table in tables),
    )
    for table, rows in zip(tables * 2, found, strict=True):
        assert rows_of(rows) == table.rows(), table.name


def test_spark_reads_and_changes_tables_whose_manifests_were_merged(catalog: Catalog, version: int, where: str) -> None:
    tables = [create(catalog, layout, version) for layout in LAYOUTS]
    heads = []
    for seed, (layout, table) in enumerate(zip(LAYOUTS, tables, strict=True)):
        play(table, layout, 300 + seed, 8)
        heads.append(table.table.metadata.current_snapshot_id)
        assert merge(table)
    columns, names = f"select *{ROW_ID[version]}", [f"iceberg.{table.name}" for table in tables]
    found = spark_on(
        where,
        *(f"{columns} from {name} version as of {head}" for name, head in zip(names, heads, strict=True)),
        *(f"{columns} from {name}" for name in names),
        *(f"alter table {name} set tblproperties ({MERGE_ON_READ})" for name in names),
        *(f"delete from {name} where id % 5 = 0" for name in names),
        *(f"select * from {name}" for name in names),
    )
    before, after, _, _, changed = (found[start : start + len(tables)] for start in range(0, len(found), len(tables)))
    for table, earlier, later, last in zip(tables, before, after, changed, strict=True):
        assert rows_of(earlier) == rows_of(later)
        assert rows_of(last) == [row for row in table.rows() if row[0] % 5]


def test_spark_reads_the_same_rows_in_another_order_with_their_lineage(
    catalog: Catalog, version: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calving.maintenance.rewrite._AT_ONCE", 400)
    tables = []
    for kind, file_format in itertools.product(KINDS, ("parquet", "orc", "avro")):
        table = appended(catalog, version, 4, rows=30, file_format=file_format)
        table.commit(table.step([{"id": 1001, "name": "b", "g": 1}], [{"id": key} for key in (0, 2007, 3029)]))
        more = changed(table, kind)
        beside(
            monkeypatch,
            lambda table=table: table.commit(table.step([{"id": 3, "name": "c", "g": 0}], [{"id": 1002}, {"id": 2}])),  # type: ignore[misc]
        )
        (group,) = [group for group in planned(table).groups if len(group.files) > 3]
        done = compactor_of(table, **more).compact(group)
        assert done.replacement is not None and done.replacement.translated == 3
        tables.append(table)
    columns = f"select *{LINEAGE[version]}"
    names = [f"iceberg.{table.name}" for table in tables]
    parents = [table.table.current_snapshot() for table in tables]
    found = spark_on(
        where,
        *(f"{columns} from {n} version as of {h.parent_snapshot_id}" for n, h in zip(names, parents, strict=True) if h),
        *(f"{columns} from {name}" for name in names),
        *(f"select sort_order_id, spec_id from {name}.files where content = 0" for name in names),
    )
    earlier, later, files = (found[start : start + len(tables)] for start in range(0, len(found), len(tables)))
    for table, old, new, written in zip(tables, earlier, later, files, strict=True):
        assert rows_of(old) == rows_of(new), table.name
        assert [row[:3] for row in rows_of(new)] == table.rows(), table.name
        now = table.table
        assert {now.sort_order().order_id} <= {row["sort_order_id"] or 0 for row in written}
        assert {row["spec_id"] for row in written} == {now.spec().spec_id}


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_spark_deletes_merges_and_compacts_between_commits(
    catalog: Catalog, version: int, where: str, granularity: str
) -> None:
    table = create(catalog, "moving", version)
    play(table, "moving", 7, 8)
    name = f"iceberg.{table.name}"
    spark_on(
        where,
        f"alter table {name} set tblproperties ({MERGE_ON_READ}, 'write.delete.granularity'='{granularity}')",
        f"delete from {name} where id % 5 = 0",
        f"merge into {name} t using (select explode(array(1, 2, 3, 99)) id) s on t.id = s.id"
        " when matched then update set name = 'merged' when not matched then insert (id, name, g) values (s.id, 'merged', 0)",
    )
    _changed(table)
    play(table, "moving", 8, 6)
    assert pyiceberg_rows(table.table) == table.rows() == duckdb_rows(table.table)
    assert bool(table.merge()) == (version == 2 and granularity == "partition")
    assert pyiceberg_rows(table.table) == table.rows() == duckdb_rows(table.table)
    _, after = spark_on(
        where,
        f"call iceberg.system.rewrite_data_files(table => '{table.name}', options => map('rewrite-all', 'true'))",
        f"select * from {name}",
    )
    assert rows_of(after) == table.rows()
    play(table, "moving", 9, 6)
    (last,) = spark_on(where, f"select * from {name}")
    assert rows_of(last) == pyiceberg_rows(table.table) == table.rows()


def test_java_compaction_that_began_before_equality_deletes_became_positions_brings_no_row_back(tmp_path: Path) -> None:
    """Java looks for positions in the files that it replaces only in snapshots that say overwrite or delete."""
    table = create(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "flat", 2)
    table.equality = True
    table.commit(table.step([], inserts=[{"id": key, "name": "a", "g": 0} for key in range(6)]))
    began = table.table.current_snapshot()
    assert began is not None
    (old,) = (task.file.file_path for task in table.table.scan().plan_files())
    new = old.replace(".parquet", "-compacted.parquet")
    copyfile(old.removeprefix("file://"), new.removeprefix("file://"))
    table.commit(table.step([{"id": 1, "name": "b", "g": 0}], [{"id": 2}]))
    table.maintain()
    said = compaction_ended(str(tmp_path), table.name, began.snapshot_id, old, new)
    assert said.startswith("REFUSED Cannot commit, found new") and pyiceberg_rows(table.table) == table.rows(), said


def compaction_ended(where: str, table: str, snapshot: int, old: str, new: str) -> str:
    command = [sys.executable, "-m", "tests.readback.compaction", where, table, str(snapshot), old, new]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def _changed(table: MutationTable) -> None:
    """The rows after Spark's statements."""
    expected = {key: row for key, row in table.expected.items() if row["id"] % 5}
    for key in (1, 2, 3, 99):
        held = expected.get((key,))
        expected[key,] = {"id": key, "name": "merged", "g": held["g"] if held else 0}
    table.expected = expected


def test_spark_renames_the_marks_of_deleted_rows_of_an_earlier_version_and_reads_the_table(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations("op", delete_mode="soft"))
    sink.catalog.create_namespace("db")
    id_, mark = (
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "_deleted", BooleanType(), required=False),
    )
    sink.catalog.create_table("db.t", Schema(id_, mark))
    sink.take((None, {"id": 1, "op": "c"}), (None, {"id": 2, "op": "c"}), (None, {"id": 1, "op": "d"}))
    _, rows = spark_on(
        str(tmp_path),
        "alter table iceberg.db.t rename column _deleted to _cdc_deleted",
        "select id, _cdc_deleted from iceberg.db.t",
    )
    assert rows_of(rows) == [(1, True), (2, False)]
