"""Orphan files are found and deleted; whatever anything names stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import StatisticsFile

from calving.backend.memory import MemoryCursor, MemorySession, MemoryStore
from calving.errors import TableTroubleError
from calving.iceberg.locations import FileRules
from calving.iceberg.manifests import read_entries
from calving.iceberg.parking import CatalogStorage, ParkedCommit, Parking
from calving.maintenance import listing, orphan_search
from calving.maintenance.expired_files import EXPIRED_FILES, ExpiredFiles, new_location
from calving.maintenance.orphan_search import OrphanSearch, delete
from calving.model.events import Attachment, CommitComplete, DataWritten, Envelope, Parked, TableReference
from calving.protocol.ledger import SourceProgress
from harness.structure import check
from tests.iceberg.histories import MutationTable
from tests.iceberg.lake import Lake
from tests.maintenance.compacting import appended, compact
from tests.maintenance.searching import (
    NOW_MS,
    OWNER,
    age,
    data_file,
    deleted,
    left_over,
    log_store,
    orphans,
    path_of,
    publish,
    searching,
)


@pytest.fixture
def table(catalog: Catalog) -> MutationTable:
    return appended(catalog, 2, 3)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_only_what_nothing_names_is_deleted(catalog: Catalog, version: int) -> None:
    table = appended(catalog, version, 3, layout="moving")
    if version > 1:
        table.commit(table.step([{"id": 1, "name": "new", "g": 1}]))
    made = [
        left_over(table.table, name, folder)
        for name, folder in (
            ("", "data/g=1"),
            ("", "data/0101/1010/1100/00110011/g=1"),
            ("9-m0.avro", "metadata"),
            ("snap-1-0-9.avro", "metadata"),
            ("00009-9.metadata.json", "metadata"),
        )
    ]
    before = {path for path in path_of(table.table.location()).rglob("*") if path.is_file()}
    kept = set(made)
    assert deleted(searching(catalog, table.name), table.table) == len(made) + len(keys_of(before))
    left = {path for path in path_of(table.table.location()).rglob("*") if path.is_file()}
    assert before - left == kept | keys_of(before)
    check(table.table)
    assert len(table.table.scan().to_arrow()) == 30
    assert orphans(searching(catalog, table.name)) == set()


def keys_of(paths: set[Path]) -> set[Path]:
    """Key files of the sink, which never become part of a table."""
    return {path for path in paths if "-keys." in path.name}


def test_a_younger_file_stays(catalog: Catalog, table: MutationTable) -> None:
    path = left_over(table.table)
    assert orphans(searching(catalog, table.name), days=4) == set()
    assert orphans(searching(catalog, table.name), days=3) == {path.name}


def test_files_of_older_snapshots_stay_until_they_expire(catalog: Catalog, table: MutationTable) -> None:
    compact(table)
    age(table.table.location())
    assert orphans(searching(catalog, table.name)) == set()


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_files_that_only_a_branch_or_a_tag_names_stay(tmp_path: Path, catalog: Catalog, kind: str) -> None:
    lake = Lake(catalog, "2", "main")
    lake.commit(0, 10)
    first = lake.head
    with lake.table.manage_snapshots() as change:
        (change.create_branch if kind == "branch" else change.create_tag)(first, "old")
    lake.compact()
    lake.expire(first)
    age(lake.table.location())
    snapshot = lake.table.metadata.snapshot_by_id(first)
    assert snapshot is not None
    needed = {path_of(path).name for path in (snapshot.manifest_list, *named_by(lake.table, snapshot))}
    assert len(needed) == 3 and not needed & orphans(searching(catalog, "db.t"))


def named_by(table: Table, snapshot: Snapshot) -> list[str]:
    """The manifests and the files of a snapshot."""
    manifests = snapshot.manifests(table.io)
    files = [entry.data_file.file_path for each in manifests for entry in read_entries(table.io, each)]
    return [*(each.manifest_path for each in manifests), *files]


def test_files_for_readers_of_expired_snapshots_stay(catalog: Catalog, table: MutationTable) -> None:
    needed, location = left_over(table.table), new_location(table.table, uuid4().hex)
    ExpiredFiles(location, None, NOW_MS, {f"file://{needed}": 4}).write(table.table)
    with table.table.transaction() as change:
        change.set_properties({f"{EXPIRED_FILES}.{OWNER}": location})
    orphan = left_over(table.table)
    assert orphans(searching(catalog, table.name)) == {orphan.name}


def test_statistics_stay(catalog: Catalog, table: MutationTable) -> None:
    path = left_over(table.table, "numbers.stats", "metadata")
    head = table.table.current_snapshot()
    assert head is not None
    of = {"snapshot-id": head.snapshot_id, "statistics-path": f"file://{path}", "file-size-in-bytes": 4}
    with table.table.update_statistics() as update:
        update.set_statistics(
            StatisticsFile.model_validate({**of, "file-footer-size-in-bytes": 1, "blob-metadata": []})
        )
    age(table.table.location())
    assert orphans(searching(catalog, table.name)) == set()


@pytest.mark.parametrize("is_whole", [True, False], ids=["a publication", "a publication without its end"])
def test_files_that_wait_in_the_control_log_stay(catalog: Catalog, table: MutationTable, is_whole: bool) -> None:
    store, waiting, orphan = log_store(), left_over(table.table), left_over(table.table)
    publish(store, table.table, waiting, is_whole=is_whole)
    assert orphans(searching(catalog, table.name, {OWNER: store})) == {orphan.name}


def test_they_stay_under_another_scheme_and_table_name(catalog: Catalog, table: MutationTable) -> None:
    store, waiting = log_store(), left_over(table.table)
    publish(store, appended(catalog, 2, 0).table, f"file:/{waiting}")
    assert orphans(searching(catalog, table.name, {OWNER: store})) == set()


def parked(catalog: Catalog, table: MutationTable, *files: Path) -> tuple[MemoryStore, Parked]:
    """A control log whose last cycle has parked commits, one for each file."""
    storage, before = Parking(CatalogStorage(catalog)), None
    name = table.table.name()
    reference = TableReference("c", name[:-1], name[-1], table.table.metadata.table_uuid)
    for number, file in enumerate(files):
        entry = Envelope(0, number, DataWritten(uuid4(), reference, (data_file(file),)))
        commit = ParkedCommit((entry,), {0: number + 1}, SourceProgress({}, {}))
        before = Parked(storage.park(name, commit, before), number + 1, {})
    assert before is not None
    store = log_store()
    attached = Attachment(parked={name: before})
    MemorySession(store, "l").follow(replay=True).acknowledge({0: 0}, (CommitComplete(uuid4()),), attached)
    return store, before


def test_parked_commits_and_the_files_that_they_name_stay(catalog: Catalog, table: MutationTable) -> None:
    first, second, orphan = left_over(table.table), left_over(table.table), left_over(table.table)
    store, _ = parked(catalog, table, first, second)
    stray = left_over(table.table, f"calving-parked-{uuid4().hex}.json.z")
    assert orphans(searching(catalog, table.name, {OWNER: store})) == {orphan.name, stray.name}


def test_without_a_parked_file_nothing_is_deleted(catalog: Catalog, table: MutationTable) -> None:
    store, last = parked(catalog, table, left_over(table.table))
    path_of(last.last).unlink()
    with pytest.raises(TableTroubleError, match="which files its parked commits name"):
        orphans(searching(catalog, table.name, {OWNER: store}))


def test_an_entry_of_the_log_that_cannot_be_read_stops_the_search(
    catalog: Catalog, table: MutationTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_over(table.table)
    monkeypatch.setattr(MemoryCursor, "unreadable", ("partition 0, offset 7: no Avro",))
    with pytest.raises(TableTroubleError, match="names: partition 0, offset 7: no Avro"):
        orphans(searching(catalog, table.name))


def test_a_second_sink_has_to_be_named(catalog: Catalog, table: MutationTable) -> None:
    """The Java sink writes no property, only summaries."""
    with (
        table.table.transaction() as change,
        change.update_snapshot({"kafka.connect.offsets.java.connect-y": '{"0":1}'}).fast_append(),
    ):
        pass
    mine, other, waiting = log_store(), log_store(), left_over(table.table)
    publish(other, table.table, waiting)
    with pytest.raises(TableTroubleError, match=r"also written by sink java\.connect-y"):
        orphans(searching(catalog, table.name, {OWNER: mine}))
    both = {OWNER: mine, "java.connect-y": other}
    assert orphans(searching(catalog, table.name, both)) == set()


def test_a_file_that_is_published_while_files_are_listed_stays(
    catalog: Catalog, table: MutationTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was stuck for days."""
    store, waiting = log_store(), left_over(table.table)
    after_listing(monkeypatch, lambda: publish(store, table.table, waiting))
    assert orphans(searching(catalog, table.name, {OWNER: store})) == set()


def test_a_file_that_is_committed_after_the_log_was_read_stays(
    catalog: Catalog, table: MutationTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log no longer names it, and when the search began the table did not name it yet."""
    (waiting,) = table.write(table.spec(), [{"id": 77, "name": "x", "g": 0}])
    age(table.table.location())

    def commit() -> None:
        table.table.add_files([waiting.file_path], check_duplicate_files=False)

    before_logs(monkeypatch, commit)
    assert orphans(searching(catalog, table.name)) == set()


def after_listing(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    listed = listing.stored_files

    def and_act(*given: Any) -> Any:
        yield from list(listed(*given))
        if given[1].endswith("/metadata"):
            act()

    monkeypatch.setattr(orphan_search, "stored_files", and_act)


def before_logs(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    note = OrphanSearch._note_log

    def and_act(*given: Any) -> Any:
        identity = note(*given)
        act()
        return identity

    monkeypatch.setattr(OrphanSearch, "_note_log", and_act)


def test_a_manifest_that_cannot_be_read_stops_the_search(catalog: Catalog, table: MutationTable) -> None:
    orphan = left_over(table.table)
    head = table.table.current_snapshot()
    assert head is not None
    manifest = path_of(head.manifests(table.table.io)[0].manifest_path)
    manifest.write_bytes(b"Obj")
    with pytest.raises(TableTroubleError, match=f"which files its manifest file://{manifest} names"):
        deleted(searching(catalog, table.name), table.table)
    assert orphan.exists()


def test_a_folder_that_cannot_be_listed_stops_the_search(
    catalog: Catalog, table: MutationTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any) -> Any:
        raise OSError("the line is broken")

    monkeypatch.setattr(orphan_search, "stored_files", broken)
    with pytest.raises(TableTroubleError, match="cannot be listed: OSError: the line is broken"):
        orphans(searching(catalog, table.name))


def test_what_is_deleted_in_parts_is_the_same(catalog: Catalog, table: MutationTable) -> None:
    made = {left_over(table.table).name for _ in range(5)}
    parts = list(searching(catalog, table.name, at_once=2).orphans(3, NOW_MS))
    assert [len(part) for part in parts] == [2, 2, 1]
    assert {file.path.rpartition("/")[2] for part in parts for file in part} == made


def test_snapshots_may_expire_while_the_table_is_read(
    catalog: Catalog, table: MutationTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan, compacted = left_over(table.table), compact(table)
    assert compacted
    age(table.table.location())
    old = table.table.metadata.snapshots[0]
    load = OrphanSearch._load

    def and_expire(search: OrphanSearch) -> Any:
        loaded = load(search)
        if old.snapshot_id in {each.snapshot_id for each in loaded.metadata.snapshots}:
            table.table.maintenance.expire_snapshots().by_id(old.snapshot_id).commit()
            path_of(old.manifest_list).unlink()
        return loaded

    monkeypatch.setattr(OrphanSearch, "_load", and_expire)
    assert orphan.name in orphans(searching(catalog, table.name))


def test_data_elsewhere_is_searched_too(catalog: Catalog, table: MutationTable, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "0011").mkdir(parents=True)
    (elsewhere / "0011" / "f.parquet").write_bytes(b"left")
    age(elsewhere)
    rules = FileRules(write_properties={"write.data.path": f"file://{elsewhere}"})
    assert orphans(searching(catalog, table.name, rules=rules)) == {"f.parquet"}


def test_links_are_not_followed(catalog: Catalog, table: MutationTable, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f.parquet").write_bytes(b"mine")
    age(tmp_path / "outside")
    left_over(table.table)
    (path_of(table.table.location()) / "data" / "link").symlink_to(tmp_path / "outside")
    assert "f.parquet" not in orphans(searching(catalog, table.name))


def test_a_run_that_was_killed_is_finished_by_the_next(catalog: Catalog, table: MutationTable) -> None:
    made = {left_over(table.table).name for _ in range(4)}
    first = next(searching(catalog, table.name, at_once=2).orphans(3, NOW_MS))
    assert delete(table.table.io, first).count == 2
    assert orphans(searching(catalog, table.name)) == made - {file.path.rpartition("/")[2] for file in first}


def test_a_file_that_cannot_be_deleted_is_told(catalog: Catalog, table: MutationTable) -> None:
    left_over(table.table)
    (part,) = searching(catalog, table.name).orphans(3, NOW_MS)

    class Denied:
        def delete(self, path: str) -> None:
            raise PermissionError("not yours")

    done = delete(Denied(), part)  # type: ignore[arg-type]
    assert (done.count, done.failed, done.failure) == (0, 1, "PermissionError: not yours")


def test_a_storage_with_another_time_is_refused(catalog: Catalog, table: MutationTable) -> None:
    search = OrphanSearch(catalog, tuple(table.table.name()), FileRules(), {}, clock=lambda: 0)
    before = set(path_of(table.table.location()).rglob("*"))
    with pytest.raises(TableTroubleError, match="the clocks of its storage and of this machine differ by"):
        search.check_clock(table.table)
    OrphanSearch(catalog, tuple(table.table.name()), FileRules(), {}).check_clock(table.table)
    assert set(path_of(table.table.location()).rglob("*")) == before


def test_other_kinds_of_file_access_are_listed_alike(catalog: Catalog, table: MutationTable) -> None:
    left_over(table.table, folder="data/g=1")
    folder = f"{table.table.location()}/data"
    listed = {each.path: each for each in listing.stored_files(FsspecFileIO({}), folder)}
    assert listed == {each.path: each for each in listing.stored_files(table.table.io, folder)} and len(listed) == 4
