"""Mutation tables through the committer: its order, its books, and what it leaves behind."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from calving.iceberg.attempts import Attempts, Report, Stopwatch
from calving.iceberg.catalog import open_catalog, table_id
from calving.iceberg.commit import CommitStyle, IcebergCommitter
from calving.iceberg.history import LoadedTable
from calving.iceberg.resolution import RowChangeResolver
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope, Parked, TableReference
from calving.model.files import FileContent
from calving.model.offsets import Span, TopicPartition, merged
from calving.model.tables import Branches, RowMutations
from calving.mutations.cache import KeyCache
from calving.protocol.commit import Admitted, CommitLoop, Step, admit
from calving.protocol.coordinator import Committed, Failed
from calving.protocol.effects import CommitTables
from calving.protocol.ledger import NO_LEDGER, SourceProgress
from calving.status.values import STEPS
from calving.wire.codec import divide
from tests.iceberg.histories import KEY, MutationTable, create, pyiceberg_rows

TP = TopicPartition("s", 0)
UPSERT = RowMutations(upsert=True)


@pytest.fixture
def table(catalog: Catalog) -> MutationTable:
    return create(catalog, "flat", 2)


def committer(catalog: Catalog, branch: str = "main", mutations: RowMutations | None = UPSERT) -> IcebergCommitter:
    style = CommitStyle("control", "connect-x", "log-1", "x-0", Branches(branch), lambda table: mutations, 1024**3)
    return IcebergCommitter(catalog, "iceberg", style, Attempts(4, 60))


def entry(table: MutationTable, offset: int, step: Step) -> Envelope:
    namespace, name = table.name.split(".")
    event = DataWritten(uuid4(), TableReference("iceberg", (namespace,), name), step.data_files, step.delete_files)
    return Envelope(0, offset, event, {TP: (Span(offset * 10, offset * 10 + 10),)})


def commit(made: IcebergCommitter, table: MutationTable, *entries: Envelope) -> None:
    covered = {TP: merged(span for e in entries for spans in e.spans.values() for span in (Span(0, spans[-1].end),))}
    read = {0: max(e.offset for e in entries) + 1}
    request = CommitTables(uuid4(), {table_id(table.name): entries}, read, SourceProgress(covered, {}), None)
    (outcome,) = dict(made.commit(request)).values()
    assert isinstance(outcome, Committed), outcome


def test_delete_files_that_take_several_events_are_one_step_with_the_rows(catalog: Catalog) -> None:
    """M8: a row that lost to the table's is known by the key of its own step."""
    table = create(catalog, "flat", 2, order="g")
    table.commit(table.step([{"id": key, "name": "a", "g": 9} for key in range(4)]))
    parts = [table.step([{"id": key, "name": "b", "g": key * 6} for key in keys]) for keys in ((0, 1), (2, 3))]
    data, keys = (tuple(f for part in parts for f in getattr(part, name)) for name in ("data_files", "delete_files"))
    events = list(divide(entry(table, 0, Step(data, keys)).event, 1))  # type: ignore[arg-type]
    assert len(events) == 4
    covers = {TP: (Span(0, 4),)}
    entries = [Envelope(0, offset, event, covers) for offset, event in enumerate(events)]
    admitted = admit(entries, {0: 4}, SourceProgress(covers, {}), NO_LEDGER, in_order=True)
    table.commit(*admitted.steps)
    assert pyiceberg_rows(table.table) == table.rows() == [(0, "a", 9), (1, "a", 9), (2, "b", 12), (3, "b", 18)]


def key_files(table: MutationTable) -> int:
    data = Path(table.table.location().removeprefix("file://")) / "data"
    return len(list(data.glob("*-keys.parquet")))


def row(key: int, name: str) -> dict[str, object]:
    return {"id": key, "name": name, "g": 0}


def test_key_files_are_deleted_once_the_next_commit_is_there(catalog: Catalog, table: MutationTable) -> None:
    made = committer(catalog)
    commit(made, table, entry(table, 0, table.step([row(1, "a")])), entry(table, 1, table.step([row(1, "b")])))
    assert key_files(table) == 2
    commit(made, table, entry(table, 2, table.step([row(1, "c")])))
    assert key_files(table) == 1
    assert pyiceberg_rows(table.table) == [(1, "c", 0)]


def data_files(table: MutationTable) -> set[str]:
    folder = Path(table.table.location().removeprefix("file://")) / "data"
    return {path.name for path in folder.rglob("*.parquet") if not path.name.endswith("-keys.parquet")}


def test_files_of_workers_with_other_settings_stay_buffered_until_a_leader_has_their_settings(
    catalog: Catalog, table: MutationTable
) -> None:
    """As of a second sink with the same group, or of a rolling change from appends to upserts."""
    waiting = [entry(table, i, table.step([row(1, name)])) for i, name in enumerate("ab")]
    request = CommitTables(
        uuid4(),
        {table_id(table.name): tuple(waiting)},
        {0: 2},
        SourceProgress({TP: (Span(0, 20),)}, {}),
        None,
        park=frozenset([table_id(table.name)]),
    )
    (failed,) = dict(committer(catalog, mutations=None).commit(request)).values()
    assert isinstance(failed, Failed) and failed.parked is None
    assert failed.reason.startswith(
        f"table {table.name}: 2 files for it delete rows by key, but this worker's settings append to the table: the"
        " files were written with other settings. If two sinks have the group connect-x,"
    )
    assert table.table.current_snapshot() is None
    (done,) = dict(committer(catalog).commit(request)).values()
    assert isinstance(done, Committed)
    assert pyiceberg_rows(table.table) == [(1, "b", 0)]
    (again,) = dict(committer(catalog, mutations=None).commit(request)).values()
    assert isinstance(again, Committed), "the table holds the files, whatever the settings are now"


def test_files_of_workers_with_other_settings_are_not_parked_whatever_the_table_fails_with(
    catalog: Catalog, table: MutationTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that appends does not know which of them wait for earlier ones."""
    name = table_id(table.name)
    late = (entry(table, 1, table.step([row(1, "b")])),)
    progress = SourceProgress({TP: (Span(10, 20),)}, {})
    request = CommitTables(uuid4(), {name: late}, {0: 2}, progress, None, park=frozenset({name}))
    monkeypatch.setattr(type(catalog), "load_table", _unreachable)
    monkeypatch.setattr("calving.iceberg.target.LOAD_TRIES", 1)
    (failed,) = dict(committer(catalog, mutations=None).commit(request)).values()
    assert isinstance(failed, Failed) and failed.parked is None


@pytest.mark.parametrize("row_deletes", ["positions", "equality"])
def test_position_deletes_of_another_sink_are_not_taken_for_keys(
    catalog: Catalog, table: MutationTable, row_deletes: Literal["positions", "equality"]
) -> None:
    step = table.step([row(1, "a")])
    foreign = tuple(
        replace(file, content=FileContent.POSITION_DELETES, equality_ids=None) for file in step.delete_files
    )
    made = committer(catalog, mutations=RowMutations(upsert=True, row_deletes=row_deletes))
    entries = (entry(table, 0, replace(step, delete_files=foreign)),)
    progress = SourceProgress({TP: (Span(0, 10),)}, {})
    request = CommitTables(uuid4(), {table_id(table.name): entries}, {0: 1}, progress, None)
    (failed,) = dict(made.commit(request)).values()
    assert isinstance(failed, Failed)
    assert "1 file for it deletes rows by position, but this worker's settings delete rows by key" in failed.reason
    assert f"`calving release FILE --table {table.name}`" in failed.reason


def test_data_files_without_a_row_that_stays_are_deleted_once_the_next_commit_is_there(
    catalog: Catalog, table: MutationTable
) -> None:
    """Not before: until the position is saved behind them a successor hears of them again."""
    made = committer(catalog)
    first, second = table.step([row(1, "a")]), table.step([row(1, "b")])
    (unused,) = (Path(file.file_path).name for file in first.data_files)
    commit(made, table, entry(table, 0, first), entry(table, 1, second))
    assert unused in data_files(table)
    commit(made, table, entry(table, 2, table.step([row(2, "c")])))
    assert data_files(table) == {Path(task.file.file_path).name for task in table.table.scan().plan_files()}
    assert pyiceberg_rows(table.table) == [(1, "b", 0), (2, "c", 0)]


def test_a_replay_deletes_nothing_twice(catalog: Catalog, table: MutationTable) -> None:
    made = committer(catalog)
    first = entry(table, 0, table.step([row(1, "a"), row(2, "a")]))
    second = entry(table, 1, table.step([row(1, "b")]))
    commit(made, table, first)
    commit(made, table, first, second)
    snapshots = len(table.table.metadata.snapshots)
    commit(committer(catalog), table, first, second)
    assert len(table.table.metadata.snapshots) == snapshots
    assert pyiceberg_rows(table.table) == table.rows()


def test_what_a_failing_table_has_ready_is_parked_and_comes_back_in_order(
    catalog: Catalog, table: MutationTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, name = committer(catalog), table_id(table.name)
    first, second, third = (entry(table, n, table.step([row(1, f"{n}"), row(2 + n, "a")])) for n in range(3))
    early = replace(third, partition=1)  # it is heard before the second one
    progress = SourceProgress({TP: (Span(0, 10), Span(20, 30))}, {})
    request = CommitTables(uuid4(), {name: (first, early)}, {0: 1, 1: 3}, progress, None, park=frozenset({name}))
    with monkeypatch.context() as patch:
        patch.setattr(type(catalog), "load_table", _unreachable)
        patch.setattr("calving.iceberg.target.LOAD_TRIES", 1)
        (failed,) = dict(made.commit(request)).values()
    assert isinstance(failed, Failed) and failed.parked is not None
    assert failed.held_back == (early,)
    parked = {name: Parked(failed.parked, 1, {TP: (Span(0, 10),)})}
    request = CommitTables(
        uuid4(), {name: (second, early)}, {0: 2, 1: 3}, SourceProgress({TP: (Span(0, 30),)}, {}), None, parked=parked
    )
    (done,) = dict(made.commit(request)).values()
    assert isinstance(done, Committed) and not done.held_back
    assert pyiceberg_rows(table.table) == table.rows()
    assert key_files(table) == 3  # a successor may be told of what is parked until the next cycle
    commit(made, table, entry(table, 3, table.step([row(9, "b")])))
    assert key_files(table) == 1


def _unreachable(*_: object) -> None:
    raise ConnectionError("no catalog")


def test_an_entry_held_back_by_three_commits_is_reported_with_the_missing_offsets(
    catalog: Catalog, table: MutationTable
) -> None:
    made, late = committer(catalog), entry(table, 5, table.step([row(1, "a")]))
    read = {0: 6}
    for _ in range(3):
        assert made.held_back == {}
        progress = SourceProgress({TP: late.spans[TP]}, {})
        list(made.commit(CommitTables(uuid4(), {table_id(table.name): (late,)}, read, progress, None)))
    waits = "1 entry is not committed after 3 commit cycles: offsets 0 to 50 of s-0 are missing"
    assert made.held_back == {table_id(table.name): waits}
    commit(made, table, late)
    assert made.held_back == {}
    assert pyiceberg_rows(table.table) == [(1, "a", 0)]


def test_the_log_says_what_a_commit_did(
    catalog: Catalog, table: MutationTable, caplog: pytest.LogCaptureFixture
) -> None:
    made = committer(catalog)
    with caplog.at_level("INFO"):
        commit(made, table, entry(table, 0, table.step([row(1, "a"), row(2, "a")])))
        commit(made, table, entry(table, 1, table.step([row(1, "b")], [row(5, "")])))
    said = "2 keys, 1 row superseded, 1 position written, 1 delete without a row, 2 files looked into, 0 of them in the cache"
    assert f"table {table.name}: {said}" in caplog.text
    times = re.search("0 of them in the cache; (.*)", caplog.text)
    assert times is not None
    assert re.sub(r"\d+", "N", times[1]) == "load N ms, resolve N ms, write N ms, commit N ms"


def test_the_time_of_resolving_has_no_pauses(
    catalog: Catalog, table: MutationTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog does not answer at once, then others are faster twice. Only pauses take time, and the resolver's steps
    by a clock of its own: each takes a second.
    """
    now, load_table = 0.0, catalog.load_table

    def sleep(_: float) -> None:
        nonlocal now
        now += 100

    def late(name: Identifier) -> Table:
        if not now:
            raise ConnectionError("no catalog")
        return load_table(name)

    class Raced(IcebergTarget):
        def attempt(self, state: LoadedTable, admitted: Admitted) -> int:
            if now < 300:
                table.commit(table.step([], inserts=[row(7, "other")]))
            return super().attempt(state, admitted)

    changed, report, ticks = entry(table, 0, table.step([row(1, "a")])), Report(table.name, uuid4()), itertools.count()
    report.watch = Stopwatch(lambda: now)
    resolver = RowChangeResolver(None, KeyCache(1_000_000), lambda: float(next(ticks)))
    target = Raced(catalog, table_id(table.name), "main", KEY, {}, sleep=sleep, watch=report.watch, resolver=resolver)
    monkeypatch.setattr(catalog, "load_table", late)
    done = CommitLoop(target, KEY, 3, in_order=True).settle([changed], {0: 1})
    report.settled(done, target.head, target.counts)
    found = report.value(Committed(TableReference("iceberg", (), "t"), done.snapshot_id))
    assert found.steps == {"load": 3.0, "resolve": 3.0, "write": 3.0, "commit": 0.0}
    assert found.seconds == 300.0


def test_a_report_has_the_time_of_each_step_and_of_the_commit_that_made_it(
    catalog: Catalog, table: MutationTable
) -> None:
    for mutations in (UPSERT, None):
        step = table.step([row(1, "a")])
        sent = entry(table, 0, step if mutations is not None else replace(step, delete_files=()))
        made = committer(catalog, mutations=mutations)
        request = CommitTables(uuid4(), {table_id(table.name): (sent,)}, {0: 1}, SourceProgress({}, {}), None)
        list(made.commit(request))
        (report,) = made.reports()
        assert (tuple(report.steps), report.commit_id) == (STEPS, str(request.commit_id))
        table = create(catalog, "flat", 2)


@pytest.mark.parametrize(
    ("waiting", "said"),
    [
        (1, "1 entry waits for earlier records: offsets 0 to 50 of s-0"),
        (2, "2 entries wait for earlier records: offsets 0 to 50 of s-0"),
    ],
)
def test_the_log_names_the_offsets_that_held_back_entries_wait_for(
    catalog: Catalog, table: MutationTable, caplog: pytest.LogCaptureFixture, waiting: int, said: str
) -> None:
    late = tuple(entry(table, 5 + n, table.step([row(1, "a")])) for n in range(waiting))
    progress = SourceProgress({TP: (Span(50, 50 + 10 * waiting),)}, {})
    with caplog.at_level("INFO"):
        list(committer(catalog).commit(CommitTables(uuid4(), {table_id(table.name): late}, {0: 7}, progress, None)))
    assert [each.message for each in caplog.records if "earlier" in each.message] == [f"table {table.name}: {said}"]


@pytest.mark.parametrize(
    ("parked", "said"), [(1, "1 entry with its files is parked in"), (2, "2 entries with their files are parked in")]
)
def test_the_log_counts_the_entries_that_are_parked(
    catalog: Catalog,
    table: MutationTable,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    parked: int,
    said: str,
) -> None:
    name = table_id(table.name)
    entries = tuple(entry(table, n, table.step([row(1, f"{n}")])) for n in range(parked))
    progress = SourceProgress({TP: (Span(0, 10 * parked),)}, {})
    request = CommitTables(uuid4(), {name: entries}, {0: parked}, progress, None, park=frozenset({name}))
    monkeypatch.setattr(type(catalog), "load_table", _unreachable)
    monkeypatch.setattr("calving.iceberg.target.LOAD_TRIES", 1)
    list(committer(catalog).commit(request))
    assert f"table {table.name}: {said} file:" in caplog.text


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.services)])
def test_rows_of_a_branch_change_and_those_of_others_stay(
    tmp_path: Path, version: int, request: pytest.FixtureRequest
) -> None:
    if version == 2:
        catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    else:
        catalog = open_catalog("iceberg", {"type": "rest", "uri": request.getfixturevalue("rest_uri")})
    table = create(catalog, "flat", version)
    commit(committer(catalog), table, entry(table, 0, table.step([row(1, "a"), row(2, "a")])))
    head, main = table.table.current_snapshot(), table.rows()
    assert head is not None
    table.table.manage_snapshots().create_branch(head.snapshot_id, "audit").commit()
    made = committer(catalog, "audit")
    commit(made, table, entry(table, 1, table.step([row(1, "b")], [row(2, "")])))
    commit(made, table, entry(table, 2, table.step([row(1, "c"), row(3, "c")])))
    found = table.table.scan().use_ref("audit").to_arrow().to_pylist()
    assert sorted(tuple(each.values()) for each in found) == table.rows() == [(1, "c", 0), (3, "c", 0)]
    assert pyiceberg_rows(table.table) == main
