"""Landed files: a batch of a partitioned table becomes few files in none of its partitions."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import AssertTableUUID, RemovePartitionSpecsUpdate
from pyiceberg.transforms import IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import LongType, NestedField, StringType

from calving.errors import TableTroubleError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.landing import add_unpartitioned, landing_spec, with_landing_spec
from calving.iceberg.manifests import read_entries, read_manifest_list
from calving.model.record_path import Evolution
from calving.model.tables import RowMutations
from harness.duckdb_extensions import duckdb_rows
from harness.structure import check
from tests.iceberg.histories import MutationTable
from tests.iceberg.reader import rows_of
from tests.mutations.changing import NAME, Changing, Message

Row = dict[str, Any]
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "g", LongType()), NestedField(3, "v", StringType()))
BY_G = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="g"))
POSITIONS, EQUALITY = RowMutations("op"), RowMutations("op", row_deletes="equality")


@pytest.fixture(params=[1, 2, pytest.param(3, marks=pytest.mark.services)])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def keys(version: int, request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Of a catalog that takes tables of the version."""
    if version < 3:
        return {"type": "embedded", "warehouse": str(tmp_path)}
    return {"type": "rest", "uri": request.getfixturevalue("rest_uri")}


def appending(folder: Path, keys: dict[str, str], version: int, **given: Any) -> Changing:
    """A sink that appends to a new table of partitions by ``g``, and lands."""
    if (catalog := open_catalog("iceberg", keys)).namespace_exists("db") and catalog.table_exists(NAME):
        catalog.drop_table(NAME)
    wanted: dict[str, Any] = {
        "mutations": None,
        "id_columns": (),
        "partition_by": ("g",),
        "properties": {"format-version": str(version)},
        "landing": "unpartitioned",
        "keys": keys,
    }
    return Changing(folder, **wanted | given)


def records(numbers: Sequence[int], partitions: int = 1_000) -> list[Message]:
    return [(None, {"id": number, "g": number % partitions, "v": "a"}) for number in numbers]


def live(table: Table) -> list[DataFile]:
    head = table.current_snapshot()
    assert head is not None
    return [
        entry.data_file
        for manifest in read_manifest_list(table.io, head.manifest_list)
        for entry in read_entries(table.io, manifest)
    ]


def data(table: Table) -> list[DataFile]:
    """The data files. Manifests of format version 1 do not say that they are."""
    deletes = (DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES)
    return [file for file in live(table) if file.content not in deletes]


def test_a_thousand_partitions_in_a_batch_become_a_file_of_each_task(
    tmp_path: Path, keys: dict[str, str], version: int
) -> None:
    sink = appending(tmp_path, keys, version, slots=2)
    for commit in range(2):
        sink.take(*records(range(2_000 * commit, 2_000 * commit + 2_000)))
        assert len(data(sink.table)) == 2 * (commit + 1)
    assert sink.rows("id") == [(number,) for number in sorted(range(4_000), key=lambda n: repr((n,)))]
    assert len(duckdb_rows(sink.table, "distinct g")) == 1_000


def test_landed_files_are_in_no_partition_and_the_default_spec_stays(
    tmp_path: Path, keys: dict[str, str], version: int
) -> None:
    sink = appending(tmp_path, keys, version)
    sink.take(*records(range(9), 3))
    table = sink.table
    (file,) = data(table)
    fields = table.specs()[file.spec_id].fields
    assert [field.transform for field in fields] == ([VoidTransform()] if version == 1 else [])
    assert [field.name for field in table.spec().fields] == ["g"]
    assert file.sort_order_id in (None, 0)
    assert len(table.specs()) == 2


def test_the_spec_is_added_once(tmp_path: Path, keys: dict[str, str], version: int) -> None:
    sink = appending(tmp_path, keys, version)
    for start in range(3):
        sink.take(*records(range(start, start + 1)))
    assert len(sink.table.metadata.partition_specs) == 2


def test_readers_find_landed_rows_by_the_columns_of_their_partitions(
    tmp_path: Path, keys: dict[str, str], version: int
) -> None:
    sink = appending(tmp_path, keys, version)
    sink.take(*records(range(9), 3))
    sink.with_(landing="partitioned").take(*records(range(9, 18), 3))
    wanted = [number for number in range(18) if number % 3 == 1]
    found = sink.table.scan(row_filter="g = 1").to_arrow()["id"].to_pylist()
    assert sorted(found) == wanted
    assert sorted(duckdb_rows(sink.table, "id")) == [(number,) for number in range(18)]


def test_the_columns_of_partitions_have_bounds_whatever_the_table_says(tmp_path: Path) -> None:
    keys = {"type": "embedded", "warehouse": str(tmp_path)}
    sink = appending(tmp_path, keys, 2, properties={"write.metadata.metrics.default": "none"})
    sink.take(*records(range(9), 3))
    (file,) = data(sink.table)
    assert set(file.lower_bounds) == {sink.table.schema().find_field("g").field_id}


def test_a_table_without_partitions_is_written_as_ever(tmp_path: Path, keys: dict[str, str], version: int) -> None:
    sink = appending(tmp_path, keys, version, partition_by=())
    sink.take(*records(range(9), 3))
    assert len(sink.table.specs()) == 1
    assert len(sink.rows("id")) == 9


def test_with_partitioned_files_are_in_their_partitions(tmp_path: Path, keys: dict[str, str], version: int) -> None:
    sink = appending(tmp_path, keys, version, landing="partitioned")
    sink.take(*records(range(9), 3))
    assert sorted(file.partition[0] for file in data(sink.table)) == [0, 1, 2]
    assert len(sink.table.specs()) == 1


def test_files_of_two_sinks_of_which_one_lands_are_in_one_commit(
    tmp_path: Path, keys: dict[str, str], version: int
) -> None:
    sink = appending(tmp_path, keys, version)
    landed = sink.read({0: records(range(6), 3)})
    other = sink.with_(landing="partitioned")
    divided = other.read({1: records(range(6, 12), 3)})
    other.commit(divided, landed)
    assert sorted(duckdb_rows(sink.table, "id")) == [(number,) for number in range(12)]
    assert len({file.spec_id for file in data(sink.table)}) == 2


def test_files_that_were_landed_before_the_spec_changed_are_committed(
    tmp_path: Path, keys: dict[str, str], version: int
) -> None:
    sink = appending(tmp_path, keys, version)
    waiting = sink.read({0: records(range(6), 3)})
    with sink.table.update_spec() as spec:
        spec.add_field("id", TruncateTransform(2), "tens")
    sink.commit(waiting)
    sink.take(*records(range(6, 12), 3))
    assert sorted(duckdb_rows(sink.table, "id")) == [(number,) for number in range(12)]
    assert [file.spec_id for file in data(sink.table)].count(data(sink.table)[0].spec_id) == 2


def test_landed_rows_keep_the_order_of_their_records_in_a_table_with_a_sort_order(
    catalog: Catalog, tmp_path: Path
) -> None:
    catalog.create_namespace("db")
    order = SortOrder(SortField(source_id=1, transform=IdentityTransform()), order_id=1)
    properties = {"write.distribution-mode": "range"}
    catalog.create_table(NAME, SCHEMA, partition_spec=BY_G, sort_order=order, properties=properties)
    sink = appending_to(tmp_path)
    sink.take(*records([5, 3, 9, 1], 2))
    (file,) = data(sink.table)
    assert file.sort_order_id == 0
    assert sink.table.scan().to_arrow()["id"].to_pylist() == [5, 3, 9, 1]


def appending_to(folder: Path, **given: Any) -> Changing:
    """A sink that appends to the table that is there."""
    return Changing(folder, mutations=None, id_columns=(), landing="unpartitioned", **given)


@pytest.mark.parametrize("mode", ["hash", "range"])
def test_the_task_that_reads_a_record_lands_it_whatever_distribution_the_table_has(
    catalog: Catalog, tmp_path: Path, mode: str
) -> None:
    catalog.create_namespace("db")
    order = SortOrder(SortField(source_id=1, transform=IdentityTransform()), order_id=1)
    properties = {"write.distribution-mode": mode}
    catalog.create_table(NAME, SCHEMA, partition_spec=BY_G, sort_order=order, properties=properties)
    sink = appending_to(tmp_path, slots=2)
    sink.take(*records(range(40), 4))
    assert sorted(file.record_count for file in data(sink.table)) == [20, 20]


def test_a_table_without_partitions_keeps_its_sort_order(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_namespace("db")
    order = SortOrder(SortField(source_id=1, transform=IdentityTransform()), order_id=1)
    catalog.create_table(NAME, SCHEMA, sort_order=order)
    sink = appending_to(tmp_path)
    sink.take(*records([5, 3, 9, 1], 2))
    assert sink.table.scan().to_arrow()["id"].to_pylist() == [1, 3, 5, 9]


@pytest.mark.parametrize(
    ("term", "column", "good", "bad"),
    [("truncate(id, 10)", "id long", 1, -(2**63)), ("v", "v string", "a", "x" * 10_000)],
    ids=["no partition", "too long"],
)
def test_a_record_that_has_no_partition_is_bad_as_it_is_without_landing(
    tmp_path: Path, term: str, column: str, good: object, bad: object
) -> None:
    """Otherwise maintenance could never move its row."""
    name, kind = column.split()
    found = []
    for landing in ("partitioned", "unpartitioned"):
        sink = Changing(
            tmp_path / landing,
            mutations=None,
            id_columns=(),
            partition_by=(term,),
            columns={name: kind},
            landing=landing,
        )
        found.append(sink.reasons(sink.take((None, {name: good}), (None, {name: bad}))))
    assert found[0] == found[1]
    assert len(found[0]) == 1


def test_a_record_that_has_no_place_in_the_sort_order_is_bad_as_it_is_without_landing(
    catalog: Catalog, tmp_path: Path
) -> None:
    catalog.create_namespace("db")
    order = SortOrder(SortField(source_id=1, transform=TruncateTransform(10)), order_id=1)
    catalog.create_table(NAME, SCHEMA, partition_spec=BY_G, sort_order=order)
    sink = appending_to(tmp_path)
    reasons = sink.reasons(sink.take(*records([5], 2), (None, {"id": -(2**63), "g": 1})))
    assert [offset for offset, _ in reasons] == [1]


# Rows that change


@pytest.mark.parametrize("terms", [("g",), ("bucket(id, 4)",), ("g", "bucket(id, 4)")], ids=" ".join)
@pytest.mark.parametrize(
    ("version", "mutations"),
    [(2, POSITIONS), (2, EQUALITY), pytest.param(3, POSITIONS, marks=pytest.mark.services)],
    ids=["positions", "equality", "vectors"],
)
def test_rows_that_change_while_files_are_landed_and_not_leave_what_a_dict_has(
    tmp_path: Path, keys: dict[str, str], version: int, mutations: RowMutations, terms: tuple[str, ...]
) -> None:
    """Keys move between partitions, and batches land or not by turns."""
    sink = appending(tmp_path, keys, version, mutations=mutations, id_columns=("id",), partition_by=terms, slots=2)
    chance, expected, specs = random.Random(repr((version, terms))), dict[int, Row](), set[int]()
    has_scoped_deletes = mutations is EQUALITY and "g" not in terms  # DuckDB fails to read them beside another spec
    for number in range(10):
        landing = chance.choice(("partitioned", "unpartitioned", "unpartitioned"))
        sink = sink.with_(landing=landing, evolution=Evolution(create=True))
        sink.take(*changes(chance, expected, number))
        check(sink.table, equality=mutations is EQUALITY)
        wanted = sorted(((row["id"], row["g"], row["v"]) for row in expected.values()), key=repr)
        assert rows(sink.table) == wanted
        specs |= {file.spec_id for file in data(sink.table)}
        if version == 2 and not has_scoped_deletes:
            assert duckdb_rows(sink.table, "id, g, v") == wanted
    assert len(specs) == 2


def rows(table: Table) -> list[tuple[Any, ...]]:
    names = [field.name for field in table.schema().fields]
    places = [names.index(name) for name in ("id", "g", "v")]
    return sorted((tuple(row[place] for place in places) for row in rows_of(table)), key=repr)


def changes(chance: random.Random, expected: dict[int, Row], number: int) -> list[Message]:
    """Inserts, updates that may change the partition, and deletes; ``expected`` gets the rows that they leave."""
    made: list[Message] = []
    for _ in range(30):
        key = chance.randrange(25)
        operation = "c" if key not in expected else chance.choice("uud")
        row = {"id": key, "g": chance.randrange(6), "v": f"{number}/{len(made)}"}
        if operation == "d":
            del expected[key]
        else:
            expected[key] = row
        made.append((None, row | {"op": operation}))
    return made


def test_equality_deletes_apply_to_all_partitions_while_there_are_landed_rows(tmp_path: Path) -> None:
    keys = {"type": "embedded", "warehouse": str(tmp_path)}
    sink = appending(tmp_path, keys, 2, mutations=EQUALITY, id_columns=("id",), partition_by=("bucket(id, 4)",))
    for operation in "cu":
        sink.take(*((None, {"id": key, "g": 0, "v": operation, "op": operation}) for key in range(8)))
    specs = sink.table.specs()
    deletes = [file for file in live(sink.table) if file.content is DataFileContent.EQUALITY_DELETES]
    assert deletes and not any(specs[file.spec_id].fields for file in deletes)
    assert rows(sink.table) == [(key, 0, "u") for key in range(8)]


@pytest.mark.parametrize("terms", [("g",), ("bucket(id, 4)",)], ids=" ".join)
def test_keys_that_are_turned_into_positions_find_their_rows_in_landed_files_and_in_partitions(
    tmp_path: Path, terms: tuple[str, ...]
) -> None:
    keys = {"type": "embedded", "warehouse": str(tmp_path)}
    sink = appending(tmp_path, keys, 2, mutations=EQUALITY, id_columns=("id",), partition_by=terms)
    chance, expected = random.Random(repr(terms)), dict[int, Row]()
    for number in range(6):
        sink.landing = ("unpartitioned", "partitioned")[number % 2]
        sink.take(*changes(chance, expected, number))
        if number in (3, 5):
            assert MutationTable(sink.catalog, NAME).maintain()
            assert sink.rows("id", "g", "v") == sorted(
                ((row["id"], row["g"], row["v"]) for row in expected.values()), key=repr
            )


# The spec


def by_g(catalog: Catalog, version: int = 2, spec: PartitionSpec = BY_G) -> Table:
    catalog.create_namespace_if_not_exists("db")
    if catalog.table_exists(NAME):
        catalog.drop_table(NAME)
    return catalog.create_table(NAME, SCHEMA, partition_spec=spec, properties={"format-version": str(version)})


def test_workers_that_add_the_spec_at_the_same_time_add_it_once(keys: dict[str, str], version: int) -> None:
    loaded = by_g(open_catalog("iceberg", keys), version)
    catalogs = [open_catalog("iceberg", keys) for _ in range(4)]
    found: list[Table] = []
    threads = [
        threading.Thread(target=lambda c=each: found.append(with_landing_spec(c, NAME, c.load_table(NAME))))
        for each in catalogs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [spec.spec_id for spec in catalogs[0].load_table(NAME).metadata.partition_specs]
    assert sorted(numbers) == [0, 1]
    assert {each.spec_id for table in found if (each := landing_spec(table.metadata))} == {1}
    assert len(found) == 4
    assert loaded.metadata.default_spec_id == 0


def test_a_spec_that_somebody_else_has_added_since_the_table_was_loaded_is_not_added_again(catalog: Catalog) -> None:
    stale = by_g(catalog)
    add_unpartitioned(catalog, catalog.load_table(NAME))
    add_unpartitioned(catalog, stale)
    assert [spec.spec_id for spec in catalog.load_table(NAME).metadata.partition_specs] == [0, 1]


def test_a_number_that_somebody_else_has_given_to_another_spec_is_left_to_it(catalog: Catalog) -> None:
    stale = by_g(catalog)
    with catalog.load_table(NAME).update_spec() as spec:
        spec.add_field("id", IdentityTransform(), "same")
    found = with_landing_spec(catalog, NAME, stale)
    landed = landing_spec(found.metadata)
    assert landed is not None and landed.spec_id == 2
    assert [field.name for field in found.spec().fields] == ["g", "same"]


def test_in_version_1_a_table_that_had_no_partitions_lands_in_its_former_spec(catalog: Catalog, tmp_path: Path) -> None:
    by_g(catalog, 1, PartitionSpec())
    with catalog.load_table(NAME).update_spec() as spec:
        spec.add_identity("g")
    sink = appending_to(tmp_path)
    sink.take(*records(range(4), 2))
    (file,) = data(sink.table)
    assert file.spec_id == 0
    assert len(sink.table.specs()) == 2


@pytest.mark.parametrize("mutations", [POSITIONS, EQUALITY], ids=lambda m: m.row_deletes)
def test_rows_that_have_landed_in_version_1_change_after_an_upgrade(tmp_path: Path, mutations: RowMutations) -> None:
    sink = appending(tmp_path, {"type": "embedded", "warehouse": str(tmp_path)}, 1, partition_by=("bucket(id, 4)",))
    sink.take(*records(range(8), 3))
    with sink.table.transaction() as change:
        change.upgrade_table_version(2)
    changing = sink.with_(mutations=mutations, id_columns=("id",))
    changing.take(*((None, {"id": key, "g": 5, "v": "b", "op": "u"}) for key in range(4)))
    changing.take((None, {"id": 7, "op": "d"}))
    wanted = [(key, 5, "b") for key in range(4)] + [(key, key % 3, "a") for key in range(4, 7)]
    assert rows(sink.table) == wanted == duckdb_rows(sink.table, "id, g, v")


def test_a_table_whose_partition_fields_were_all_removed_has_nothing_to_land_beside(
    catalog: Catalog, tmp_path: Path
) -> None:
    by_g(catalog, 1)
    with catalog.load_table(NAME).update_spec() as spec:
        spec.remove_field("g")
    sink = appending_to(tmp_path)
    sink.take(*records(range(4), 2))
    (file,) = data(sink.table)
    assert file.spec_id == sink.table.metadata.default_spec_id


def test_a_rollback_to_before_the_first_landed_file_leaves_the_spec(
    tmp_path: Path, keys: dict[str, str], version: int
) -> None:
    sink = appending(tmp_path, keys, version, landing="partitioned")
    sink.take(*records(range(4), 2))
    before = sink.table.metadata.current_snapshot_id
    assert before is not None
    landing = sink.with_(landing="unpartitioned")
    landing.take(*records(range(4, 8), 2))
    landing.table.manage_snapshots().set_current_snapshot(before).commit()
    landing.take(*records(range(8, 12), 2))
    assert sorted(duckdb_rows(landing.table, "id")) == [(n,) for n in (0, 1, 2, 3, 8, 9, 10, 11)]
    assert len(landing.table.specs()) == 2


def test_a_spec_that_somebody_has_removed_and_replaced_is_not_taken_for_the_one_of_a_landed_file(
    tmp_path: Path,
) -> None:
    sink = appending(tmp_path, {"type": "embedded", "warehouse": str(tmp_path)}, 2)
    waiting = sink.read({0: records(range(6), 3)})
    table = sink.table
    same = AssertTableUUID(uuid=table.metadata.table_uuid)
    sink.catalog.commit_table(table, (same,), (RemovePartitionSpecsUpdate(spec_ids=[1]),))
    with sink.table.update_spec() as spec:
        spec.add_field("id", TruncateTransform(2), "tens")
    with pytest.raises(TableTroubleError, match="of partition spec 1, which the table does not have with the fields"):
        sink.commit(waiting)
    assert sink.table.current_snapshot() is None
