"""What one compaction commits, in every format version and file format: the rows and the ledger stay."""

from __future__ import annotations

from typing import Any, cast

import fastavro
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, UnknownType

from calving.iceberg.catalog import open_catalog
from calving.iceberg.history import line_of
from calving.iceberg.manifests import FIRST_ROW_ID, at
from calving.iceberg.snapshot import SinkSnapshot
from calving.maintenance import compaction
from calving.protocol.ledger_key import COMMIT_ID, LEDGER_SNAPSHOT
from harness.duckdb_extensions import duckdb_rows
from harness.structure import check
from tests.iceberg.histories import KEY, MutationTable, create, pyiceberg_rows
from tests.iceberg.reader import rows_of
from tests.maintenance.compacting import append, appended, beside, compact, compactor_of, data_files, entries, planned

FORMATS = ("parquet", "orc", "avro")


def summary(table: Table) -> dict[str, str]:
    head = table.current_snapshot()
    assert head is not None and head.summary is not None
    return dict(head.summary.additional_properties)


def readings(table: MutationTable, file_format: str) -> list[list[tuple[Any, ...]]]:
    """The rows as others read them: pyiceberg reads no Avro, and DuckDB only Parquet."""
    readers = {"parquet": (pyiceberg_rows, duckdb_rows, rows_of), "orc": (pyiceberg_rows, rows_of), "avro": (rows_of,)}
    return [read(table.table) for read in readers[file_format]]


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("file_format", FORMATS)
def test_appended_files_become_one_with_the_same_rows(catalog: Catalog, file_format: str, version: int) -> None:
    table = appended(catalog, version, 4, file_format=file_format)
    (done,) = compact(table)
    assert done.dropped is done.failed is None and len(data_files(table.table)) == 1
    append(table, 4)
    assert readings(table, file_format) == [table.rows()] * len(readings(table, file_format))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("file_format", ["orc", "avro"])  # histories of Parquet tables are in test_translation
def test_deleted_rows_are_left_out_and_those_deleted_meanwhile_stay_deleted(
    catalog: Catalog, file_format: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, version, 3, file_format=file_format)
    table.commit(table.step([], [{"id": key} for key in (0, 3, 1001, 2009)]))
    beside(monkeypatch, lambda: table.commit(table.step([{"id": 4, "name": "new", "g": 9}], [{"id": 1002}, {"id": 5}])))
    (done,) = compact(table)
    assert done.replacement is not None and done.replacement.translated == 3
    assert readings(table, file_format) == [table.rows()] * len(readings(table, file_format))


def test_the_snapshot_replaces_and_has_the_ledger_of_the_one_before(catalog: Catalog) -> None:
    table = appended(catalog, 2, 3)
    before, ledger = summary(table.table), KEY.read(line_of(table.table, "main"), table.table.properties)
    compact(table)
    head, after = table.table.current_snapshot(), summary(table.table)
    assert head is not None and head.summary is not None and head.summary.operation is Operation.REPLACE
    names = ("kafka.connect.offsets", "calving.source", "calving.settled", "calving.control")
    kept = {name: value for name, value in before.items() if name.startswith(names)}
    assert kept and kept.items() <= after.items() and COMMIT_ID in before and COMMIT_ID not in after
    assert KEY.read(line_of(table.table, "main"), table.table.properties) == ledger
    assert table.table.properties[KEY.of_table(LEDGER_SNAPSHOT)].startswith(str(head.snapshot_id))
    counts = {name: after[name] for name in ("added-data-files", "deleted-data-files", "total-records")}
    assert counts == {"added-data-files": "1", "deleted-data-files": "3", "total-records": before["total-records"]}


def test_rows_keep_their_order(catalog: Catalog) -> None:
    table = appended(catalog, 2, 3)
    compact(table)
    ids = pq.read_table(data_files(table.table)[0].removeprefix("file://"))["id"].to_pylist()
    assert ids == [1000 * number + i for number in range(3) for i in range(10)]


def test_a_file_without_live_rows_is_not_written_again(catalog: Catalog) -> None:
    table = appended(catalog, 2, 2)
    table.commit(table.step([], [{"id": 1000 * n + i} for n in range(2) for i in range(9)]))
    table.commit(table.step([], [{"id": 9}]))
    compact(table)
    assert pyiceberg_rows(table.table) == table.rows() == [(1009, "n1", 0)]
    check(table.table)


def test_delete_files_of_replaced_files_go_and_others_stay(catalog: Catalog) -> None:
    table = appended(catalog, 2, 3, layout="moving")
    table.commit(table.step([], [{"id": 0}, {"id": 1}]))
    (group, *_) = [each for each in planned(table).groups if each.partition[1] == (0,)]
    compactor_of(table).compact(group)
    check(table.table)
    assert len([e for e in entries(table.table) if e.data_file.content == DataFileContent.POSITION_DELETES]) == 1
    assert pyiceberg_rows(table.table) == table.rows()


def by_keys(catalog: Catalog) -> MutationTable:
    table = create(catalog, "flat", 2)
    table.equality = True
    for number in range(3):
        table.commit(table.step([], inserts=[{"id": 10 * number + i, "name": "a", "g": 0} for i in range(10)]))
    return table


def test_equality_deletes_that_come_meanwhile_apply_to_the_new_file(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = by_keys(catalog)
    beside(monkeypatch, lambda: table.commit(table.step([{"id": 3, "name": "b", "g": 1}], [{"id": 15}])))
    (done,) = compact(table)
    assert done.dropped is None and done.replacement is not None
    assert rows_of(table.table) == duckdb_rows(table.table) == table.rows()
    (compacted,) = [e for e in entries(table.table) if e.data_file.record_count == 30]
    assert compacted.sequence_number == 3


def without_sequence_numbers(patch: pytest.MonkeyPatch) -> None:
    replace = SinkSnapshot.replace
    patch.setattr(SinkSnapshot, "replace", lambda snapshot, outputs, sequence: replace(snapshot, outputs, None))


def without_outputs(patch: pytest.MonkeyPatch) -> None:
    """K5 with the data files that stay alone."""
    obsolete = compaction._obsolete
    patch.setattr(
        compaction,
        "_obsolete",
        lambda table, live, data: obsolete(table, live, [each for each in data if each.manifest]),
    )


@pytest.mark.parametrize("broken", [without_sequence_numbers, without_outputs])
def test_a_broken_rule_brings_rows_back(catalog: Catalog, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    table = by_keys(catalog)
    beside(monkeypatch, lambda: table.commit(table.step([], [{"id": 15}])))
    compact(table)
    assert rows_of(table.table) != table.rows()


def test_files_with_equality_deletes_wait(catalog: Catalog) -> None:
    table = by_keys(catalog)
    table.commit(table.step([{"id": 3, "name": "b", "g": 1}]))
    plan = planned(table)
    assert (plan.groups, plan.waiting) == ((), 3)
    table.maintain()
    compact(table)
    assert pyiceberg_rows(table.table) == table.rows() and len(data_files(table.table)) == 1


def test_files_of_an_older_spec_move_into_the_partitions_of_the_default_one(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3)
    with table.table.update_spec() as change:
        change.add_field("g", IdentityTransform(), "by_g")
    beside(
        monkeypatch, lambda: table.commit(table.step([{"id": 1004, "name": "b", "g": 2}], [{"id": 1005}, {"id": 0}]))
    )
    (done,) = compact(table)
    assert done.replacement is not None and len(done.replacement.outputs) == 3
    assert {e.data_file.spec_id for e in entries(table.table)} == {1}
    assert pyiceberg_rows(table.table) == duckdb_rows(table.table) == table.rows()


def test_a_group_of_several_target_sizes_becomes_several_files(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3)
    beside(monkeypatch, lambda: table.commit(table.step([], [{"id": 1000 * n + i} for n in range(3) for i in (0, 7)])))
    monkeypatch.setattr("calving.writing.table._ENOUGH_BYTES", 200)
    (group,) = planned(table).groups
    with table.table.transaction() as change:
        change.set_properties({"write.target-file-size-bytes": "60"})
    done = compactor_of(table).compact(group)
    assert done.replacement is not None and len(done.replacement.outputs) > 1
    assert pyiceberg_rows(table.table) == table.rows()


def lineage(table: Table) -> list[tuple[int, int, int]]:
    """The id of each live row, its row id and the sequence number of its last change, as the specification says."""
    found: list[tuple[int, int, int]] = []
    gone = {(each.data_file.file_path) for each in entries(table) if each.data_file.content != DataFileContent.DATA}
    assert not gone
    for entry in entries(table):
        file = entry.data_file
        with table.io.new_input(file.file_path).open() as stream:
            if file.file_path.endswith("avro"):
                rows = [cast(dict[str, Any], row) for row in fastavro.reader(cast(Any, stream))]
            else:
                rows = (orc if file.file_path.endswith("orc") else pq).read_table(stream).to_pylist()
        for place, row in enumerate(rows):
            row_id, changed = row.get("_row_id"), row.get("_last_updated_sequence_number")
            first = at(file, FIRST_ROW_ID) + place
            found.append(
                (row["id"], first if row_id is None else row_id, entry.sequence_number if changed is None else changed)
            )
    return sorted(found)


@pytest.mark.parametrize("file_format", FORMATS)
def test_rows_of_version_3_keep_their_lineage_also_when_they_move_twice(catalog: Catalog, file_format: str) -> None:
    table = appended(catalog, 3, 3, file_format=file_format)
    before = lineage(table.table)
    assert len({row_id for _, row_id, _ in before}) == 30
    compact(table)
    assert lineage(table.table) == before
    append(table, 3)
    both = lineage(table.table)
    assert both[:30] == before
    compact(table)
    assert lineage(table.table) == both and len(data_files(table.table)) == 1
    (entry,) = entries(table.table)
    columns = (entry.data_file.lower_bounds, entry.data_file.value_counts)
    assert all(each < 2**30 for counts in columns for each in counts or {})


def test_a_table_with_a_column_that_cannot_be_written_is_left_alone(catalog: Catalog) -> None:
    table = appended(catalog, 3, 2)
    with table.table.update_schema() as change:
        change.add_column("nothing", ListType(1, UnknownType()))
    why = compactor_of(table).refusal(table.table)
    assert why == "calving cannot write its column nothing of type list<unknown>"


def test_a_server_of_a_rest_catalog_takes_a_compaction_of_version_3(
    rest_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(open_catalog("iceberg", {"type": "rest", "uri": rest_uri}), 3, 3)
    before = lineage(table.table)
    compact(table)
    assert lineage(table.table) == before
    append(table, 3)
    beside(monkeypatch, lambda: table.commit(table.step([{"id": 7, "name": "new", "g": 1}], [{"id": 3001}])))
    (done,) = compact(table)
    assert done.replacement is not None and done.replacement.translated == 2
    assert pyiceberg_rows(table.table) == duckdb_rows(table.table) == table.rows()
