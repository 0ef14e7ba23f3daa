"""Tables with files of an older partition spec, by a column that has been dropped."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.types import IntegerType, LongType

from calving.iceberg.catalog import open_catalog
from calving.iceberg.manifests import partition_sources
from tests.iceberg.histories import MutationTable, create, live_counts, pyiceberg_rows


@pytest.fixture(params=[2, pytest.param(3, marks=pytest.mark.services)])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def catalog(version: int, request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    if version == 2:
        return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    return open_catalog("iceberg", {"type": "rest", "uri": request.getfixturevalue("rest_uri")})


def rows(keys: range, name: str) -> list[dict[str, object]]:
    return [{"id": key, "name": name, "g": key % 3} for key in keys]


def row(key: int, name: str) -> dict[str, object]:
    return {"id": key, "name": name}


def drop_the_partition_column(table: MutationTable) -> None:
    with table.table.update_spec() as spec:
        for field in table.table.spec().fields:
            spec.remove_field(field.name)
    with table.table.update_schema() as schema:
        schema.delete_column("g")
    for each in table.expected.values():
        each.pop("g", None)


@pytest.mark.parametrize("term", ["g", "bucket(g, 4)"])
def test_rows_of_a_partition_whose_column_was_dropped_still_change(catalog: Catalog, version: int, term: str) -> None:
    table = create(catalog, [term], version)
    table.commit(table.step(rows(range(12), "a")))
    drop_the_partition_column(table)
    table.commit(table.step([row(1, "b"), row(2, "b")], [row(3, "")]))
    table.commit(table.step([row(0, "c")], [row(key, "") for key in range(3, 12, 3)]))
    assert live_counts(table.table)["total-records"] == (11 if term == "g" else 15)  # the file of g = 0 had no row left
    assert pyiceberg_rows(table.table) == table.rows()


def test_files_that_were_written_before_the_column_was_dropped_are_committed(catalog: Catalog, version: int) -> None:
    table = create(catalog, ["g"], version)
    table.commit(table.step(rows(range(6), "a")))
    late = table.step(rows(range(3, 9), "b"))
    drop_the_partition_column(table)
    table.commit(late, table.step([row(4, "c")]))
    assert pyiceberg_rows(table.table) == table.rows()
    head = table.table.current_snapshot()
    assert head is not None and head.summary is not None
    assert head.summary["changed-partition-count"] == "3"


def test_manifests_keep_the_values_of_a_partition_column_that_was_dropped(catalog: Catalog, version: int) -> None:
    table = create(catalog, ["g"], version)
    with table.table.transaction() as change:
        change.set_properties(
            {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"},
        )
    for number in range(3):
        table.commit(table.step(rows(range(6 * number, 6 * number + 6), "a")))
    drop_the_partition_column(table)
    for number in range(4):
        table.commit(table.step([row(number, "b")], [row(number + 6, "")]))
    head = table.table.current_snapshot()
    assert head is not None
    values, bounds = set(), set()
    for manifest in head.manifests(table.table.io):
        if manifest.partition_spec_id == 0:
            bounds |= {(told.lower_bound, told.upper_bound) for told in manifest.partitions or ()}
            values |= {e.data_file.partition[0] for e in manifest.fetch_manifest_entry(table.table.io)}
    assert values == {0, 1, 2}
    assert bounds == {((0).to_bytes(8, "little"), (2).to_bytes(8, "little"))}
    assert pyiceberg_rows(table.table) == table.rows()


def test_equality_deletes_of_a_partition_whose_column_was_dropped_become_positions(tmp_path: Path) -> None:
    table = create(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), ["g"], 2)
    table.equality = True
    table.commit(table.step(rows(range(6), "a")))
    table.commit(table.step(rows(range(3), "b")))
    drop_the_partition_column(table)
    table.commit(table.step([row(1, "c")], [row(2, "")]))
    table.maintain()
    assert pyiceberg_rows(table.table) == table.rows()
    head = table.table.current_snapshot()
    assert head is not None
    assert {m.content for m in head.manifests(table.table.io)} == {ManifestContent.DATA, ManifestContent.DELETES}


def test_the_last_type_of_a_column_counts(tmp_path: Path) -> None:
    table = create(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), [], 2)
    with table.table.update_schema() as schema:
        schema.add_column("part", IntegerType())
    with table.table.update_spec() as spec:
        spec.add_identity("part")
    with table.table.update_schema() as schema:
        schema.update_column("part", LongType())
    with table.table.update_spec() as spec:
        spec.remove_field("part")
    with table.table.update_schema() as schema:
        schema.delete_column("part")
    assert partition_sources(table.table.metadata).find_type(4) == LongType()
