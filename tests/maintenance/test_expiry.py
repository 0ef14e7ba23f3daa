"""Snapshots expire, also those that removed files; and files are deleted only when nothing needs them any more."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate, SetPropertiesUpdate

from calving.errors import TableTroubleError
from calving.iceberg.history import summary_of
from calving.iceberg.lineage import new_snapshot
from calving.maintenance import expired_files
from calving.maintenance.expirer import Expirer
from calving.model.backfills import ended_property
from calving.model.files import one_name
from harness.structure import check
from tests.iceberg.histories import MutationTable, pyiceberg_rows
from tests.iceberg.lake import Lake
from tests.maintenance.compacting import append, compact, data_files, entries
from tests.maintenance.expiring import (
    GRACE_MS,
    NOW,
    check_files,
    delete,
    expire,
    expirer_of,
    expiring,
    listed,
    named,
    set_properties,
    stored,
)

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])


def appended(catalog: Catalog, version: int, commits: int = 4) -> MutationTable:
    table = expiring(catalog, version)
    for number in range(commits):
        append(table, number)
    return table


def replaced(catalog: Catalog, version: int = 2) -> MutationTable:
    """Files that a compaction has replaced, below two later commits."""
    table = appended(catalog, version)
    compact(table)
    append(table, 10)
    append(table, 11)
    return table


@VERSIONS
def test_snapshots_beyond_the_count_leave_also_those_that_removed_files(catalog: Catalog, version: int) -> None:
    table = replaced(catalog, version)
    gone = expire(table)
    assert gone is not None and (len(gone.snapshots), gone.kept) == (5, 2)
    assert len(table.table.metadata.snapshots) == 2
    assert pyiceberg_rows(table.table) == table.rows()
    assert expire(table) is None


@VERSIONS
def test_files_are_deleted_when_their_grace_is_over_and_not_before(catalog: Catalog, version: int) -> None:
    table = replaced(catalog, version)
    old = stored(table.table)
    expire(table)
    waiting = delete(table, NOW + GRACE_MS - 1)
    assert waiting is not None and not waiting.deleted and waiting.next_ms == NOW + GRACE_MS
    assert stored(table.table) == old
    done = delete(table)
    assert done is not None and {*done.deleted} == old - named(table.table)
    assert stored(table.table) == named(table.table)
    assert len(data_files(table.table)) == 3 and pyiceberg_rows(table.table) == table.rows()
    assert delete(table) is None and not listed(table.table)


@pytest.mark.parametrize("version", [2, 3])
def test_delete_files_that_later_ones_replaced_are_deleted_too(catalog: Catalog, version: int) -> None:
    table = appended(catalog, version, 1)
    for key in range(6):
        table.commit(table.step([{"id": key, "name": "new", "g": 0}]))
    expire(table)
    delete(table)
    assert stored(table.table) == named(table.table)
    assert pyiceberg_rows(table.table) == table.rows()
    check(table.table)


def test_files_that_a_remaining_snapshot_removed_stay_for_readers_of_its_changes(catalog: Catalog) -> None:
    table = appended(catalog, 2)
    inputs = data_files(table.table)
    compact(table)
    append(table, 10)
    expire(table)  # the compaction stays
    delete(table)
    assert {*inputs} <= stored(table.table)
    append(table, 11)
    expire(table, NOW + 1)
    delete(table, NOW + 1 + GRACE_MS)
    assert not {*inputs} & stored(table.table)


@VERSIONS
@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_a_branch_and_a_tag_keep_their_snapshots_and_files(catalog: Catalog, version: int, kind: str) -> None:
    table = appended(catalog, version)
    head = table.table.metadata.current_snapshot_id
    assert head is not None
    manage = table.table.manage_snapshots()
    (manage.create_branch if kind == "branch" else manage.create_tag)(head, "kept").commit()
    inputs = data_files(table.table)
    compact(table)
    append(table, 10)
    append(table, 11)
    expire(table)
    delete(table)
    assert {*inputs} <= stored(table.table)
    assert table.table.scan(snapshot_id=head).to_arrow().num_rows == 40
    check_files(table.table)


def removed_and_expired(catalog: Catalog) -> tuple[MutationTable, DataFile]:
    """A file that only expired snapshots named."""
    table = appended(catalog, 2)
    file = entries(table.table)[0].data_file
    compact(table)
    append(table, 10)
    append(table, 11)
    expire(table)
    assert file.file_path in listed(table.table)
    return table, file


def add(table: MutationTable, file: DataFile) -> None:
    snapshot = new_snapshot(table.table, {}, "main")
    snapshot._added_data_files.append(file)
    table.table._do_commit(snapshot.prepare()[0], ())


def test_a_file_that_was_added_again_stays_although_a_list_names_it(catalog: Catalog) -> None:
    table, file = removed_and_expired(catalog)
    add(table, file)
    done = delete(table)
    assert done is not None and done.deleted and file.file_path not in done.deleted
    check_files(table.table)


def test_an_entry_of_the_log_that_is_committed_while_files_are_deleted_keeps_its_file(catalog: Catalog) -> None:
    table, file = removed_and_expired(catalog)

    def read_log(metadata: object) -> frozenset[str]:
        add(table, file)  # then the log does not name it any more
        return frozenset()

    done = expirer_of(table).delete(NOW + GRACE_MS, read_log)
    assert done is not None and done.deleted and file.file_path not in done.deleted
    check_files(table.table)


def test_files_that_the_control_log_names_stay_until_it_does_not(catalog: Catalog) -> None:
    table = replaced(catalog)
    expire(table)
    (first, *_) = sorted(file for file in listed(table.table) if file.endswith(".parquet"))
    done = delete(table, held={one_name(first)})
    assert done is not None and done.held == (first,) and first in stored(table.table)
    assert first in listed(table.table)
    done = delete(table)
    assert done is not None and first in done.deleted and first not in stored(table.table)


def test_nothing_expires_and_nothing_is_deleted_where_garbage_collection_is_off(catalog: Catalog) -> None:
    table = replaced(catalog)
    expire(table)
    append(table, 12)
    before = stored(table.table)
    set_properties(table, {"gc.enabled": "false"})
    assert expire(table) is None and delete(table) is None
    assert expirer_of(table).refusal(table.table) == "its property gc.enabled is false"
    assert stored(table.table) == before


def test_a_table_that_asks_for_no_expiry_keeps_every_snapshot(catalog: Catalog) -> None:
    table = replaced(catalog)
    with table.table.transaction() as change:
        change.remove_properties("calving.expire.max-snapshots")
    assert expire(table) is None and len(table.table.metadata.snapshots) == 7


def test_snapshots_expire_by_age(catalog: Catalog) -> None:
    table = replaced(catalog)
    with table.table.transaction() as change:
        change.remove_properties("calving.expire.max-snapshots")
        change.set_properties({"history.expire.max-snapshot-age-ms": "600000"})
    head = table.table.metadata.snapshots[-1].timestamp_ms
    assert expire(table, head) is None
    gone = expire(table, head + 600_001)
    assert gone is not None and gone.kept == 1


def test_snapshots_that_lost_their_children_in_the_metadata_expire_too(catalog: Catalog) -> None:
    """pyiceberg's catalogs remove the parent of a snapshot with the parent."""
    table = replaced(catalog)
    middle = table.table.metadata.snapshots[3].snapshot_id
    table.table._do_commit((RemoveSnapshotsUpdate(snapshot_ids=[middle]),), ())
    gone = expire(table)
    assert gone is not None and gone.kept == 2


def test_a_snapshot_that_was_rolled_back_stays_while_the_branch_has_older_ones(catalog: Catalog) -> None:
    table = appended(catalog, 2, 3)
    set_properties(table, {"calving.expire.max-snapshots": "3"})
    foreign = new_snapshot(table.table, {}, "main")
    table.table._do_commit(foreign.prepare()[0], ())
    away, back = (s.snapshot_id for s in table.table.metadata.snapshots[:-3:-1])
    table.table.manage_snapshots().set_current_snapshot(back).commit()
    assert expire(table) is None
    assert table.table.metadata.snapshot_by_id(away) is not None


def test_a_table_that_was_rolled_back_waits_for_an_answer(catalog: Catalog) -> None:
    lake = Lake(catalog, "2", "main")
    with lake.table.transaction() as change:
        change.set_properties({"calving.expire.max-snapshots": "1"})
    for number in range(3):
        lake.commit(number, number + 1)
        lake.snapshots.append(lake.head)
    expirer = Expirer(catalog, ("db", "t"), lake.key, 0, sleep=lambda seconds: None)
    lake.roll_back(lake.snapshots[1])
    refusal = expirer.refusal(lake.table)
    assert refusal is not None and "was rolled back, and nobody has answered" in refusal
    assert expirer.expire(NOW) is None and len(lake.table.metadata.snapshots) == 3


def test_the_newest_ledger_of_another_sink_stays(catalog: Catalog) -> None:
    """The Java sink has it in summaries alone, and would commit its files again without it."""
    table = appended(catalog, 2, 2)
    java = new_snapshot(table.table, {"kafka.connect.offsets.control.connect-java": '{"0":5}'}, "main")
    table.table._do_commit(java.prepare()[0], ())
    for number in range(3, 9):
        append(table, number)
    gone = expire(table)
    assert gone is not None and gone.kept == 3
    assert any("kafka.connect.offsets.control.connect-java" in summary_of(s) for s in table.table.metadata.snapshots)


def test_a_backfill_that_has_ended_keeps_no_snapshot(catalog: Catalog) -> None:
    """Its ledger says nothing to anybody any more, and the snapshot would keep all files of that time."""
    owner = "control.connect-x.backfill.y"
    table = appended(catalog, 2, 2)
    filled = new_snapshot(table.table, {f"kafka.connect.offsets.{owner}": '{"0":5}'}, "main")
    ended = SetPropertiesUpdate(updates={ended_property(owner): "1"})
    table.table._do_commit((*filled.prepare()[0], ended), ())
    for number in range(3, 9):
        append(table, number)
    expire(table)
    assert not any(f"kafka.connect.offsets.{owner}" in summary_of(s) for s in table.table.metadata.snapshots)


def list_of(table: MutationTable) -> Path:
    (path,) = Path(table.table.location().removeprefix("file://"), "metadata").glob("calving-expired-*")
    return path


def forge(table: MutationTable, *files: str) -> None:
    """The table's list of expired files names these instead."""
    path = list_of(table)
    said = json.loads(zlib.decompress(path.read_bytes()))
    path.write_bytes(zlib.compress(json.dumps({**said, "files": dict.fromkeys(files, 4)}).encode()))


def test_a_file_outside_the_table_stays(catalog: Catalog, tmp_path: Path) -> None:
    table = replaced(catalog)
    outside = tmp_path / "mine.parquet"
    outside.write_text("mine")
    expire(table)
    forge(table, f"file://{outside}")
    done = delete(table)
    assert done is not None and done.outside == (f"file://{outside}",) and outside.exists()


@pytest.mark.parametrize("way", ["x/data/mine.parquet", "data/../../other/data/mine.parquet", "data/mine.parquet?"])
def test_a_file_of_another_table_stays_wherever_a_list_says_that_it_is(catalog: Catalog, way: str) -> None:
    """A catalog with folders has the table db.t.x in the folder of db.t."""
    table = replaced(catalog)
    location = table.table.location()
    path = Path(location.removeprefix("file://"), way.rstrip("?")).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    expire(table)
    forge(table, f"{location}/{way}")
    done = delete(table)
    assert done is not None and done.outside == (f"{location}/{way}",) and path.exists()


def test_the_metadata_of_the_table_stays_if_a_list_names_it(catalog: Catalog) -> None:
    table = replaced(catalog)
    expire(table)
    files = [table.table.metadata_location, *(entry.metadata_file for entry in table.table.metadata.metadata_log)]
    forge(table, *files)
    delete(table)
    assert all(Path(file.removeprefix("file://")).exists() for file in files)


def test_many_files_stand_in_several_lists_which_are_all_deleted_from(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expired_files, "_MOST_FILES", 3)
    table = replaced(catalog)
    expire(table)
    folder = Path(table.table.location().removeprefix("file://"))
    counts = sorted(len(json.loads(zlib.decompress(path.read_bytes()))["files"]) for path in folder.rglob("*.json.z"))
    assert len(counts) > 2 and counts[-2:] == [3, 3]
    delete(table)
    assert stored(table.table) == named(table.table)
    assert not [*folder.rglob("*.json.z")]


def test_a_list_of_more_parts_than_a_sink_writes_is_not_read(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expired_files, "_MOST_PARTS", 3)
    table = replaced(catalog)
    expire(table)
    with pytest.raises(TableTroubleError, match="it has more than 3 parts"):
        delete(table)


def test_lists_that_take_too_much_memory_together_are_not_read(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forged list of some hundred bytes may name another one, and so on."""
    monkeypatch.setattr(expired_files, "_MOST_FILES", 3)
    table = replaced(catalog)
    expire(table)
    folder = Path(table.table.location().removeprefix("file://"))
    sizes = [len(zlib.decompress(path.read_bytes())) for path in folder.rglob("*.json.z")]
    monkeypatch.setattr(expired_files, "_BYTES_OF_PART", 0)
    monkeypatch.setattr(expired_files, "_MOST_TOGETHER", sum(sizes) - 1)
    assert len(sizes) > 1
    with pytest.raises(TableTroubleError, match="with the lists after it, it holds more than"):
        delete(table)
    monkeypatch.setattr(expired_files, "_MOST_TOGETHER", sum(sizes))
    assert delete(table) is not None


@pytest.mark.parametrize(
    "forged", [{"before": "x" * 100_000}, {"files": {"x" * 100_000: 1}}, {"before": ["x" * 100_000]}]
)
def test_a_list_with_a_path_that_no_storage_takes_is_named_in_short(
    catalog: Catalog, forged: dict[str, object]
) -> None:
    table = replaced(catalog)
    expire(table)
    said = json.loads(zlib.decompress(list_of(table).read_bytes()))
    list_of(table).write_bytes(zlib.compress(json.dumps({**said, **forged}).encode()))
    with pytest.raises(TableTroubleError, match="a path is no text of at most 8,192 characters") as error:
        delete(table)
    assert len(str(error.value)) < 1_000


def test_a_list_of_other_characters_than_a_sink_writes_is_not_read(catalog: Catalog) -> None:
    table = replaced(catalog)
    expire(table)
    said = json.loads(zlib.decompress(list_of(table).read_bytes()))
    text = json.dumps({**said, "files": {"\N{SNOWMAN}": 1}}, ensure_ascii=False)
    list_of(table).write_bytes(zlib.compress(text.encode()))
    with pytest.raises(TableTroubleError, match="it is no ASCII"):
        delete(table)


def test_a_list_that_cannot_be_read_is_named(catalog: Catalog) -> None:
    table = replaced(catalog)
    expire(table)
    list_of(table).write_bytes(b"x")
    with pytest.raises(TableTroubleError, match=r"list of expired files .*calving-expired-.*remove the property"):
        delete(table)


@pytest.mark.parametrize(("name", "value"), [("expired-ms", 10**30), ("expired-ms", True), ("files", {"a": "1"})])
def test_a_list_whose_numbers_are_no_times_and_no_sizes_is_named(catalog: Catalog, name: str, value: object) -> None:
    table = replaced(catalog)
    expire(table)
    said = json.loads(zlib.decompress(list_of(table).read_bytes()))
    list_of(table).write_bytes(zlib.compress(json.dumps(said | {name: value}).encode()))
    with pytest.raises(TableTroubleError, match=r"cannot be read \(ValueError: a size or a time is no whole number"):
        delete(table)


def test_a_property_that_names_another_file_is_refused(catalog: Catalog) -> None:
    table = replaced(catalog)
    name = "calving.expired-files.control.connect-x"
    table.table._do_commit(
        (SetPropertiesUpdate(updates={name: data_files(table.table)[0]}),),
        (AssertTableUUID(uuid=table.table.metadata.table_uuid),),
    )
    with pytest.raises(TableTroubleError, match="no list of calving's is there"):
        delete(table)
