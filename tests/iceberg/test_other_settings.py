"""A leader with other settings commits files as their workers meant them, or leaves them to a leader that can."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import table_id
from calving.iceberg.commit import IcebergCommitter
from calving.iceberg.parking import CatalogStorage, ParkedCommit, Parking
from calving.model.events import Envelope, Parked
from calving.model.offsets import Span
from calving.model.tables import RowMutations
from calving.protocol.commit import Step
from calving.protocol.coordinator import Committed, Failed
from calving.protocol.effects import CommitTables
from calving.protocol.ledger import SourceProgress
from calving.writing.key_files import key_file_properties
from tests.iceberg.histories import MutationTable, create
from tests.iceberg.reader import rows_of
from tests.iceberg.test_mutation_commits import TP, UPSERT, committer, entry

Row = dict[str, object]
ORDERED = replace(UPSERT, order_field="g")
TWICE_AND_DELETED = [(1, "b", 0)]
"""The rows that ``waiting`` leaves."""


@pytest.fixture
def table(catalog: Catalog) -> MutationTable:
    return create(catalog, "flat", 2)


def row(key: int, name: str, g: int = 0) -> Row:
    return {"id": key, "name": name, "g": g}


def commit(
    leader: IcebergCommitter, table: MutationTable, *entries: Envelope, heard_all: bool = False, disputed: bool = False
) -> Committed | Failed:
    end = entries[-1].offset + 1
    progress = SourceProgress({TP: (Span(0, end * 10),)}, {})
    request = CommitTables(uuid4(), {table_id(table.name): entries}, {0: end}, progress, None)
    if disputed:
        request = replace(request, disputed=frozenset(request.tables))
    request = replace(request, heard_all=heard_all)
    (outcome,) = dict(leader.commit(request)).values()
    return outcome


def waiting(table: MutationTable) -> list[Envelope]:
    """Entries of workers that change rows by the table's id column: a key twice, and a delete."""
    steps = [table.step([row(1, "a"), row(2, "a")]), table.step([row(1, "b")], deleted=[row(2, "")])]
    return [entry(table, offset, step) for offset, step in enumerate(steps)]


@pytest.mark.parametrize(
    "leader",
    [
        RowMutations(upsert=True, row_deletes="equality"),
        RowMutations("op", delete_mode="soft"),
        RowMutations("op", inserts="append"),
        RowMutations("op", tombstones="delete"),
    ],
    ids=["row-deletes", "delete-mode", "inserts", "tombstones"],
)
def test_a_leader_that_deletes_or_inserts_in_another_way_commits_what_the_files_say(
    catalog: Catalog, table: MutationTable, leader: RowMutations
) -> None:
    assert isinstance(commit(committer(catalog, mutations=leader), table, *waiting(table)), Committed)
    assert rows_of(table.table) == TWICE_AND_DELETED


def test_a_leader_with_other_id_columns_takes_those_of_the_files(catalog: Catalog, table: MutationTable) -> None:
    by_name = MutationTable(catalog, table.name, ids=("name",))
    entries = [entry(table, 0, by_name.step([row(1, "a")])), entry(table, 1, by_name.step([row(2, "a")]))]
    assert isinstance(commit(committer(catalog), table, *entries), Committed)
    assert rows_of(table.table) == [(2, "a", 0)]


def test_a_leader_that_appends_leaves_files_with_changes_to_one_that_changes_rows(
    catalog: Catalog, table: MutationTable
) -> None:
    entries = waiting(table)
    refused = commit(committer(catalog, mutations=None), table, *entries)
    assert isinstance(refused, Failed)
    assert "this worker's settings append to the table" in refused.reason
    assert isinstance(commit(committer(catalog), table, *entries), Committed)
    assert rows_of(table.table) == TWICE_AND_DELETED


def test_a_leader_that_changes_rows_appends_files_that_were_written_to_be_appended(
    catalog: Catalog, table: MutationTable
) -> None:
    entries = [entry(table, i, Step(table.step([row(1, name)]).data_files, ())) for i, name in enumerate("ab")]
    assert isinstance(commit(committer(catalog), table, *entries), Committed)
    assert rows_of(table.table) == [(1, "a", 0), (1, "b", 0)]


@pytest.mark.parametrize(("workers", "leader"), [(None, ORDERED), ("g", UPSERT)], ids=["set", "left out"])
def test_a_leader_with_another_order_field_leaves_the_files_to_one_with_theirs(
    catalog: Catalog, table: MutationTable, workers: str | None, leader: RowMutations
) -> None:
    """Without the order value of a change nobody knows whether it wins; and without an order-field the last one wins."""
    written = MutationTable(catalog, table.name, order=workers)
    entries = [entry(table, i, written.step([row(1, name, 9 - i)])) for i, name in enumerate("ab")]
    refused = commit(committer(catalog, mutations=leader), table, *entries)
    assert isinstance(refused, Failed)
    assert refused.parked is None
    assert refused.waits
    assert "2 files for it delete rows by key, and this worker's settings have another order-field" in refused.reason
    assert table.table.current_snapshot() is None
    former = UPSERT if workers is None else ORDERED
    assert isinstance(commit(committer(catalog, mutations=former), table, *entries), Committed)
    assert rows_of(table.table) == [(1, "b", 8) if workers is None else (1, "a", 9)]


def test_a_leader_whose_order_field_is_no_column_of_the_table_leaves_the_files_to_another(
    catalog: Catalog, table: MutationTable
) -> None:
    leader = committer(catalog, mutations=replace(UPSERT, order_field="seen.at"))
    refused = commit(leader, table, *waiting(table))
    assert isinstance(refused, Failed)
    assert refused.waits and refused.parked is None
    assert f"table {table.name} has no column 'seen.at', which is its order-field" in refused.reason
    assert isinstance(commit(committer(catalog), table, *waiting(table)), Committed)


def test_key_files_of_which_nobody_knows_the_columns_are_committed(catalog: Catalog, table: MutationTable) -> None:
    """Version 0.1.0 wrote such files for tables without column statistics."""
    entries = []
    for offset, step in enumerate([table.step([row(1, "a")]), table.step([row(1, "b")])]):
        files = tuple(replace(file, value_counts=None) for file in step.delete_files)
        entries.append(entry(table, offset, replace(step, delete_files=files)))
    assert isinstance(commit(committer(catalog), table, *entries), Committed)
    assert rows_of(table.table) == [(1, "b", 0)]


def written_for(branch: str | None, entries: list[Envelope]) -> list[Envelope]:
    return [replace(entry, branch=branch) for entry in entries]


@pytest.mark.parametrize("mutations", [UPSERT, None], ids=["changed", "appended"])
def test_files_for_another_branch_wait_until_all_workers_commit_to_one(
    catalog: Catalog, table: MutationTable, mutations: RowMutations | None
) -> None:
    steps = [table.step([row(1, name)]) for name in "ab"]
    entries = [entry(table, i, step if mutations else Step(step.data_files, ())) for i, step in enumerate(steps)]
    entries = [*written_for("audit", entries[:1]), *written_for("main", entries[1:])]
    for branch, other in (("main", "audit"), ("audit", "main")):
        refused = commit(committer(catalog, branch, mutations), table, *entries)
        assert isinstance(refused, Failed)
        assert refused.waits and refused.parked is None
        assert f"this worker commits it to branch '{branch}'" in refused.reason
        assert f", and files were written for branch '{other}'; another worker may" in refused.reason
    assert table.table.current_snapshot() is None
    assert isinstance(commit(committer(catalog, "main", mutations), table, *entries, heard_all=True), Committed)
    assert [name for _, name, _ in rows_of(table.table)] == (["b"] if mutations else ["a", "b"])


def test_files_for_the_leaders_branch_wait_too_while_another_worker_has_another_branch(
    catalog: Catalog, table: MutationTable
) -> None:
    """Otherwise that branch would lack them once all workers have gone back to it."""
    entries = written_for("main", waiting(table))
    refused = commit(committer(catalog), table, *entries, heard_all=True, disputed=True)
    assert isinstance(refused, Failed)
    assert refused.waits
    assert isinstance(commit(committer(catalog), table, *entries), Committed)


def test_files_of_a_worker_that_tells_no_branch_go_to_that_of_the_leader(
    catalog: Catalog, table: MutationTable
) -> None:
    first, *later = waiting(table)
    assert isinstance(commit(committer(catalog), table, first), Committed)
    assert isinstance(commit(committer(catalog, "audit"), table, *later), Committed)
    audit = table.table.metadata.refs["audit"].snapshot_id
    assert rows_of(table.table) == [(1, "a", 0), (2, "a", 0)]
    assert sorted(table.table.scan(snapshot_id=audit).to_arrow()["name"].to_pylist()) == ["b"]


def names_in(table: MutationTable, branch: str) -> list[str]:
    head = table.table.metadata.refs[branch].snapshot_id
    return sorted(table.table.scan(snapshot_id=head).to_arrow()["name"].to_pylist())


@pytest.mark.parametrize("mutations", [UPSERT, None], ids=["changed", "appended"])
def test_what_one_branch_holds_is_not_committed_to_another_one_again(
    catalog: Catalog, table: MutationTable, mutations: RowMutations | None
) -> None:
    """The position was held back, so each leader reads all entries; and the branch was there before ``b`` was."""
    steps = [table.step([row(key, name)]) for key, name in enumerate("abcd")]
    entries = [entry(table, i, step if mutations else Step(step.data_files, ())) for i, step in enumerate(steps)]
    main, audit = (committer(catalog, branch, mutations) for branch in ("main", "audit"))
    assert isinstance(commit(main, table, entries[0]), Committed)
    head = table.table.current_snapshot()
    assert head is not None
    table.table.manage_snapshots().create_branch(head.snapshot_id, "audit").commit()
    for leader, count in ((main, 2), (audit, 3), (main, 4)):
        assert isinstance(commit(leader, table, *entries[:count]), Committed)
    assert names_in(table, "main") == ["a", "b", "d"]
    assert names_in(table, "audit") == ["a", "c"]


def test_an_appending_leader_keeps_the_order_of_workers_that_change_rows(
    catalog: Catalog, table: MutationTable
) -> None:
    """A file of inserts deletes nothing; but the change before it, which is read later, must not delete its row."""
    insert = replace(entry(table, 1, Step(table.step([row(1, "b")]).data_files, ())), ordered=True)
    progress = SourceProgress({TP: (Span(10, 20),)}, {})
    request = CommitTables(uuid4(), {table_id(table.name): (insert,)}, {0: 2}, progress, None)
    leader = committer(catalog, mutations=None)
    (outcome,) = dict(leader.commit(request)).values()
    assert isinstance(outcome, Committed)
    assert outcome.held_back == (insert,)
    change = replace(entry(table, 0, table.step([row(1, "a")])), offset=2)
    progress = SourceProgress({TP: (Span(0, 20),)}, {})
    request = CommitTables(uuid4(), {table_id(table.name): (insert, change)}, {0: 3}, progress, None)
    (outcome,) = dict(leader.commit(request)).values()
    assert isinstance(outcome, Failed)
    assert outcome.waits
    (outcome,) = dict(committer(catalog).commit(request)).values()
    assert isinstance(outcome, Committed)
    assert [name for _, name, _ in rows_of(table.table)] == ["a", "b"]


def test_a_leader_that_has_not_read_all_of_the_log_appends_over_no_gap(catalog: Catalog, table: MutationTable) -> None:
    late = entry(table, 1, Step(table.step([row(1, "b")]).data_files, ()))
    progress = SourceProgress({TP: (Span(10, 20),)}, {})
    request = CommitTables(uuid4(), {table_id(table.name): (late,)}, {0: 2}, progress, None, has_read=False)
    leader = committer(catalog, mutations=None)
    (outcome,) = dict(leader.commit(replace(request, park=frozenset(request.tables)))).values()
    assert isinstance(outcome, Committed)
    assert outcome.held_back == (late,)
    (outcome,) = dict(leader.commit(replace(request, has_read=True))).values()
    assert isinstance(outcome, Committed)
    assert not outcome.held_back
    assert rows_of(table.table) == [(1, "b", 0)]


def test_a_leader_that_has_not_read_all_of_the_log_parks_what_waits_for_nothing(
    catalog: Catalog, table: MutationTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many workers write, there may always be something that is not read yet."""
    first, late = (entry(table, i, Step(table.step([row(i, "a")]).data_files, ())) for i in (0, 2))
    progress = SourceProgress({TP: (Span(0, 10), Span(20, 30))}, {})
    name = table_id(table.name)
    request = CommitTables(
        uuid4(), {name: (first, late)}, {0: 3}, progress, None, park=frozenset({name}), has_read=False
    )

    def away(*_: object) -> None:
        raise ConnectionError("no catalog")

    with monkeypatch.context() as patch:
        patch.setattr(type(catalog), "load_table", away)
        patch.setattr("calving.iceberg.target.LOAD_TRIES", 1)
        (failed,) = dict(committer(catalog, mutations=None).commit(request)).values()
    assert isinstance(failed, Failed)
    assert failed.parked is not None
    assert failed.held_back == (late,)


def test_parked_files_for_another_branch_wait_as_well(catalog: Catalog, table: MutationTable) -> None:
    identifier, entries = table_id(table.name), written_for("audit", waiting(table))
    progress = SourceProgress({TP: (Span(0, 20),)}, {})
    parking = Parking(CatalogStorage(catalog))
    last = parking.park(
        identifier, ParkedCommit(tuple(entries), {0: 2}, progress), None, f"{table.table.location()}/data"
    )
    request = CommitTables(uuid4(), {identifier: ()}, {0: 2}, progress, None, parked={identifier: Parked(last, 2, {})})
    (refused,) = dict(committer(catalog).commit(request)).values()
    assert isinstance(refused, Failed)
    assert refused.waits
    (done,) = dict(committer(catalog).commit(replace(request, heard_all=True))).values()
    assert isinstance(done, Committed)
    assert rows_of(table.table) == TWICE_AND_DELETED


def test_the_columns_of_key_files_are_counted_whatever_the_table_says_of_statistics() -> None:
    properties = {
        "write.metadata.metrics.default": "none",
        "write.metadata.metrics.column.id": "none",
        "write.metadata.metrics.column.g": "full",
        "write.parquet.bloom-filter-enabled.column.id": "true",
    }
    assert key_file_properties(properties) == {
        "write.metadata.metrics.default": "counts",
        "write.metadata.metrics.column.id": "counts",
        "write.metadata.metrics.column.g": "full",
        "write.format.default": "parquet",
    }
    assert key_file_properties({})["write.metadata.metrics.default"] == "truncate(16)"


def test_parked_files_that_an_appending_leader_did_not_hold_back_are_not_lost(
    catalog: Catalog, table: MutationTable
) -> None:
    """Their earlier records have not been read, so a leader that changes rows holds them back; but parked files wait in
    no buffer.
    """
    late, last = (entry(table, i, Step(table.step([row(i, "a")]).data_files, ())) for i in (1, 2))
    read = SourceProgress({TP: (Span(10, 20),)}, {})
    file = Parking(CatalogStorage(catalog)).park(table_id(table.name), ParkedCommit((late,), {0: 2}, read), None)
    parked = {table_id(table.name): Parked(file, 1, {TP: (Span(10, 20),)})}
    progress = SourceProgress({TP: (Span(10, 30),)}, {})
    request = CommitTables(uuid4(), {table_id(table.name): (last,)}, {0: 3}, progress, None, parked=parked)
    (outcome,) = dict(committer(catalog).commit(request)).values()
    assert isinstance(outcome, Failed)
    assert outcome.waits and outcome.parked is None
    assert "1 parked entry comes before earlier records" in outcome.reason
    (outcome,) = dict(committer(catalog, mutations=None).commit(request)).values()
    assert isinstance(outcome, Committed)
    assert rows_of(table.table) == [(1, "a", 0), (2, "a", 0)]
