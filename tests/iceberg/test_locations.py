"""Entries of the control log that name files which are not their table's: anybody may write entries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.update import SetLocationUpdate

from calving.backend.memory import MemorySession, MemoryStore
from calving.cli.release import _files, discard
from calving.errors import CommandFailedError, TableTroubleError
from calving.iceberg.attempts import Attempts
from calving.iceberg.catalog import table_id
from calving.iceberg.commit import CommitStyle, IcebergCommitter
from calving.iceberg.locations import FileRules
from calving.iceberg.parking import CatalogStorage, Parking
from calving.iceberg.rules import TableRules
from calving.iceberg.tables import Tables
from calving.model.events import DataComplete, DataWritten, Envelope, Parked, Publication, TableReference
from calving.model.files import DataFile, FileContent, sink_name
from calving.model.offsets import Advance, Span, TopicPartition
from calving.model.sink import Claim
from calving.model.tables import Branches, RowMutations
from calving.protocol.coordinator import Committed, Failed
from calving.protocol.effects import CommitTables
from calving.protocol.ledger import SourceProgress
from tests.iceberg.histories import MutationTable, create, pyiceberg_rows

TP = TopicPartition("s", 0)
UPSERT = RowMutations(upsert=True)
BOSS = {"id": 1, "name": "boss", "g": 99}
MINE = {"id": 7, "name": "mine", "g": 0}


@pytest.fixture
def table(catalog: Catalog) -> MutationTable:
    return create(catalog, "flat", 2)


@pytest.fixture
def payroll(catalog: Catalog) -> MutationTable:
    """A table of somebody else, which the sink's credentials reach."""
    made = create(catalog, "flat", 2)
    made.commit(made.step([BOSS]))
    return made


def committer(
    catalog: Catalog,
    mutations: RowMutations | None = None,
    files: FileRules = FileRules(),  # noqa: B008
    branch: str = "main",
) -> IcebergCommitter:
    style = CommitStyle("control", "connect-x", "log-1", "x-0", Branches(branch), lambda _: mutations, 1024**3, files)
    return IcebergCommitter(catalog, "iceberg", style, Attempts(1, 60))


def entry(table: MutationTable, offset: int, files: Sequence[DataFile]) -> Envelope:
    data = tuple(file for file in files if file.content is FileContent.DATA)
    deletes = tuple(file for file in files if file.content is not FileContent.DATA)
    event = DataWritten(
        uuid4(), TableReference("iceberg", table_id(table.name)[:-1], table_id(table.name)[-1]), data, deletes
    )
    return Envelope(0, offset, event, {TP: (Span(offset, offset + 1),)}, sender="mallory")


def commit(made: IcebergCommitter, table: MutationTable, *entries: Envelope) -> Committed | Failed:
    read = max(e.offset for e in entries) + 1
    progress = SourceProgress({TP: (Span(0, read),)}, {})
    (outcome,) = dict(
        made.commit(CommitTables(uuid4(), {table_id(table.name): entries}, {0: read}, progress, None))
    ).values()
    return outcome


def data_file(table: MutationTable) -> DataFile:
    """The one file of a table, as an entry names it."""
    (task,) = table.table.scan().plan_files()
    return DataFile(task.file.file_path, "PARQUET", 1, task.file.file_size_in_bytes)


def as_keys(file: DataFile) -> DataFile:
    return replace(file, content=FileContent.EQUALITY_DELETES, equality_ids=(1,))


def test_a_file_of_another_table_is_not_added(catalog: Catalog, table: MutationTable, payroll: MutationTable) -> None:
    foreign = data_file(payroll)
    outcome = commit(committer(catalog), table, entry(table, 0, [foreign]))
    assert isinstance(outcome, Failed)
    assert "the entry of sender 'mallory' at partition 0, offset 0 of the control log names file" in outcome.reason
    assert foreign.file_path in outcome.reason
    assert "iceberg.tables.allowed-locations" in outcome.reason
    assert f"`calving release FILE --table {table.name} --record OUT`" in outcome.reason
    assert pyiceberg_rows(table.table) == []


@pytest.mark.parametrize(
    "path",
    ["file:///etc/passwd", "{}/../payroll/f.parquet", "s3://b/f", "/etc/passwd", "{}2/data/f.parquet", "{}", "\0"],
)
def test_a_path_that_leads_out_of_the_table_is_not_added(catalog: Catalog, table: MutationTable, path: str) -> None:
    file = DataFile(path.format(table.table.location()), "PARQUET", 1, 1)
    outcome = commit(committer(catalog), table, entry(table, 0, [file]))
    assert isinstance(outcome, Failed) and "outside the table's location" in outcome.reason


@pytest.mark.parametrize("row_deletes", ["positions", "equality"])
def test_a_file_of_another_table_is_not_deleted_as_a_key_file(
    catalog: Catalog, table: MutationTable, payroll: MutationTable, row_deletes: str
) -> None:
    made = committer(catalog, RowMutations(upsert=True, row_deletes=row_deletes))  # type: ignore[arg-type]
    for offset in range(3):
        commit(made, table, entry(table, offset, [as_keys(data_file(payroll))]))
    assert pyiceberg_rows(payroll.table) == [tuple(BOSS.values())]


def test_a_data_file_of_the_table_itself_is_not_deleted_as_a_key_file(catalog: Catalog, table: MutationTable) -> None:
    table.commit(table.step([MINE]))
    file, made = data_file(table), committer(catalog, UPSERT)
    for offset in range(2):
        commit(made, table, entry(table, offset, [as_keys(file)]))
    assert Path(file.file_path.removeprefix("file://")).exists()


def test_a_data_file_that_the_table_holds_is_not_deleted_when_an_entry_names_it_again(
    catalog: Catalog, table: MutationTable
) -> None:
    """The keys of a later entry delete each of its rows, so it would not be needed if it were new."""
    table.commit(table.step([MINE]))
    file, made = data_file(table), committer(catalog, UPSERT)
    again = table.step([{**MINE, "name": "new"}])
    commit(made, table, entry(table, 0, [file]), entry(table, 1, [*again.data_files, *again.delete_files]))
    commit(made, table, entry(table, 2, [*table.step([{**MINE, "id": 8}]).data_files]))
    assert Path(file.file_path.removeprefix("file://")).exists()


def test_a_data_file_that_the_table_holds_is_not_deleted_by_another_name_for_it(
    catalog: Catalog, table: MutationTable
) -> None:
    """The key file has the name of the writer of the data file, as if both were new."""
    table.commit(table.step([MINE]))
    file, made = data_file(table), committer(catalog, UPSERT)
    new = table.step([{**MINE, "name": "new"}])
    (keys,) = new.delete_files
    moved = keys.file_path.replace(writer(keys), writer(file))
    Path(keys.file_path.removeprefix("file://")).rename(moved.removeprefix("file://"))
    first = entry(table, 0, [replace(file, file_path=file.file_path.replace("/data/", "/data//"))])
    commit(made, table, first, entry(table, 1, [*new.data_files, replace(keys, file_path=moved)]))
    commit(made, table, entry(table, 2, [*table.step([{**MINE, "id": 8}]).data_files]))
    assert Path(file.file_path.removeprefix("file://")).exists()


@pytest.mark.parametrize("mark", ["?", "#"])
def test_a_data_file_of_the_table_is_not_deleted_by_the_name_of_a_key_file_after_its_own(
    catalog: Catalog, table: MutationTable, mark: str
) -> None:
    table.commit(table.step([MINE]))
    file, made = data_file(table), committer(catalog, UPSERT)
    keys = f"{file.file_path}{mark}/00000-0-{uuid4()}-00001-keys.parquet"
    for offset in range(2):
        commit(made, table, entry(table, offset, [replace(as_keys(file), file_path=keys)]))
    assert Path(file.file_path.removeprefix("file://")).exists()


def writer(file: DataFile) -> str:
    name = sink_name(file.file_path)
    assert name is not None
    return name.writer


def test_an_equality_delete_that_the_table_holds_is_not_deleted_as_a_key_file(catalog: Catalog) -> None:
    table = create(catalog, ["g"], 2, ids=("g",))
    table.equality = True
    made = committer(catalog, RowMutations(upsert=True, row_deletes="equality"))
    for offset, step in enumerate((table.step([MINE]), first := table.step([MINE]))):
        assert isinstance(commit(made, table, entry(table, offset, [*step.data_files, *step.delete_files])), Committed)
    held = [file["file_path"] for file in table.table.inspect.delete_files().to_pylist()]
    assert held
    for offset in range(2, 4):
        commit(made, table, entry(table, offset, [as_keys(replace(first.delete_files[0], file_path=held[0]))]))
    assert Path(held[0].removeprefix("file://")).exists()


def test_an_equality_delete_that_another_branch_holds_is_not_deleted_as_a_key_file(catalog: Catalog) -> None:
    table = create(catalog, ["g"], 2, ids=("g",))
    table.equality = True
    by_equality = RowMutations(upsert=True, row_deletes="equality")
    audited = committer(catalog, by_equality, branch="audit")
    for offset, step in enumerate((table.step([MINE]), first := table.step([MINE]))):
        commit(audited, table, entry(table, offset, [*step.data_files, *step.delete_files]))
    there = table.table.metadata.refs["audit"].snapshot_id
    held = [file["file_path"] for file in table.table.inspect.delete_files(there).to_pylist()]
    assert held
    made = committer(catalog, by_equality)
    for offset in range(2, 4):
        commit(made, table, entry(table, offset, [as_keys(replace(first.delete_files[0], file_path=held[0]))]))
    assert Path(held[0].removeprefix("file://")).exists()


def step_of(table: MutationTable) -> list[DataFile]:
    return list(table.step([MINE]).data_files)


@pytest.mark.parametrize(
    "properties",
    [{"write.data.path": "{}/elsewhere"}, {"write.object-storage.enabled": "true"}],
    ids=["path", "hashes"],
)
def test_files_where_the_tables_properties_say_are_added(
    catalog: Catalog, table: MutationTable, tmp_path: Path, properties: dict[str, str]
) -> None:
    with table.table.transaction() as change:
        change.set_properties({name: text.format(tmp_path) for name, text in properties.items()})
    assert isinstance(commit(committer(catalog), table, entry(table, 0, step_of(table))), Committed)
    assert pyiceberg_rows(table.table) == table.rows()


def test_files_where_the_sinks_own_write_properties_say_are_added(
    catalog: Catalog, table: MutationTable, tmp_path: Path
) -> None:
    write = {"write.data.path": f"file://{tmp_path}/elsewhere"}
    tables = Tables(catalog, "iceberg", TableRules(write_properties=write))
    tables.refresh([table.name])
    files = table.write(tables.specs()[table.name], [MINE])
    made = committer(catalog, files=FileRules(write_properties=write))
    assert isinstance(commit(made, table, entry(table, 0, files)), Committed)


@pytest.mark.parametrize("name", ["location", "write.data.path"])
def test_files_written_before_a_location_changed_are_added(
    catalog: Catalog, table: MutationTable, tmp_path: Path, name: str
) -> None:
    places = iter([f"file://{tmp_path}/first", f"file://{tmp_path}/second"])
    move(table, name, next(places))
    files = step_of(table)
    assert "/first/" in files[0].file_path
    move(table, name, next(places))
    assert isinstance(commit(committer(catalog), table, entry(table, 0, files)), Committed)
    assert pyiceberg_rows(table.table) == table.rows()


def move(table: MutationTable, name: str, place: str) -> None:
    with table.table.transaction() as change:
        if name == "location":
            change._apply((SetLocationUpdate(location=place),))
        else:
            change.set_properties({name: place})


def test_files_below_an_allowed_location_are_added(catalog: Catalog, table: MutationTable, tmp_path: Path) -> None:
    moved = Path(step_of(table)[0].file_path.removeprefix("file://"))
    target = tmp_path / "archive" / moved.name
    target.parent.mkdir()
    file = DataFile(f"file://{moved.rename(target)}", "PARQUET", 1, target.stat().st_size)
    assert isinstance(commit(committer(catalog), table, entry(table, 0, [file])), Failed)
    made = committer(catalog, files=FileRules((f"{tmp_path}/archive",)))
    assert isinstance(commit(made, table, entry(table, 0, [file])), Committed)


def test_a_file_of_an_unknown_partition_spec_is_named(catalog: Catalog, table: MutationTable) -> None:
    (file,) = step_of(table)
    outcome = commit(committer(catalog), table, entry(table, 0, [replace(file, spec_id=99)]))
    assert isinstance(outcome, Failed)
    assert re.search(r"sender 'mallory' .* of partition spec 99, which the table does not have", outcome.reason)


def test_a_publication_that_somebody_writes_again_is_added_once(catalog: Catalog, table: MutationTable) -> None:
    """Signed or not: whoever reads and writes the control log can append its bytes again."""
    made, first = committer(catalog), entry(table, 0, step_of(table))
    assert isinstance(commit(made, table, first), Committed)
    outcome = commit(made, table, replace(first, offset=7))
    assert isinstance(outcome, Failed) and "`calving recover FILE`" in outcome.reason
    assert len(pyiceberg_rows(table.table)) == 1


def test_a_release_discards_the_entries_with_files_elsewhere_and_no_others(
    catalog: Catalog, table: MutationTable
) -> None:
    session, released = MemorySession(store := MemoryStore(1), "w"), list[str]()
    forged, own = DataFile("s3://payroll/f.parquet", "PARQUET", 1, 1), step_of(table)
    for start, files in enumerate(([forged], own)):
        event = entry(table, 0, files).event
        assert isinstance(event, DataWritten)
        advance = Advance(start or None, start + 1)
        session.publish(
            Publication((event, DataComplete(event.commit_id)), {TP: advance}, {TP: (Span(start, start + 1),)}),
            Claim("w", 1),
        )

    def run() -> None:
        discard(
            MemorySession(store, "operator").follow(replay=True),
            Parking(CatalogStorage(catalog)),
            [table_id(table.name)],
            uuid4(),
            lambda _: table.table.metadata.table_uuid,
            lambda stale: released.extend(_files([e for entries in stale.values() for e in entries])[0]),
            lambda _, paths: FileRules().outside(table.table, paths),
        )

    run()
    assert released == [forged.file_path]
    with pytest.raises(CommandFailedError, match="can take all"):
        run()


def test_commits_are_parked_below_the_table_and_read_from_nowhere_else(
    catalog: Catalog, table: MutationTable, payroll: MutationTable
) -> None:
    """Though the first file that the entries name is elsewhere."""
    made, name = committer(catalog), table_id(table.name)
    forged = entry(table, 0, [data_file(payroll)])
    request = CommitTables(uuid4(), {name: (forged,)}, {0: 1}, SourceProgress({}, {}), None, park=frozenset([name]))
    (failed,) = dict(made.commit(request)).values()
    assert isinstance(failed, Failed) and failed.parked is not None
    assert failed.parked.startswith(f"{table.table.location()}/data/calving-parked-")
    elsewhere = failed.parked.replace(table.table.location(), payroll.table.location())
    Path(failed.parked.removeprefix("file://")).rename(elsewhere.removeprefix("file://"))
    with pytest.raises(TableTroubleError, match="outside the table's location"):
        list(Parking(CatalogStorage(catalog)).commits(name, Parked(elsewhere, 1, {})))


def test_parked_commits_of_a_table_that_is_gone_are_read_below_the_warehouse_and_the_allowed_locations_alone(
    catalog: Catalog, tmp_path: Path
) -> None:
    place, gone = tmp_path.parent / f"{tmp_path.name}-elsewhere", table_id("db.gone")
    inside, outside = (
        f"{folder}/calving-parked-1.json.z" for folder in (catalog.properties["warehouse"], f"file://{place}")
    )
    for file in (inside, outside):
        CatalogStorage(catalog).write(gone, file, b"x")
    assert CatalogStorage(catalog).read(gone, inside) == b"x"
    for touch in (CatalogStorage(catalog).read, CatalogStorage(catalog).delete):
        with pytest.raises(
            TableTroubleError, match=r"below neither the catalog's warehouse nor iceberg\.tables\.allowed"
        ):
            touch(gone, outside)
    assert CatalogStorage(catalog, FileRules((f"file://{place}",))).read(gone, outside) == b"x"
