"""The leader maintains tables beside the sink's commits."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.iceberg.attempts import Attempts
from calving.iceberg.catalog import open_catalog, table_id
from calving.iceberg.resolvers import Resolvers
from calving.maintenance.lease import LEASE, TableLease
from calving.maintenance.rewriting_process import RewritingProcess
from calving.runtime.maintenance.leader import LeaderMaintenance, half_of
from calving.serving.metrics import exposition
from calving.serving.views import tables
from calving.status.board import Board
from calving.status.maintenance import DueWork, TableMaintenance
from calving.status.values import LogStatus, SinkFacts, TableStatus
from harness.waiting import wait_for
from tests.cli.maintaining import lines
from tests.cli.test_compact import files_of, sink_of, table_with
from tests.iceberg.histories import MutationTable, pyiceberg_rows

ON = {
    "iceberg.maintenance.enabled": "true",
    "iceberg.maintenance.pause-ms": "100",
    "iceberg.maintenance.small-files": "2",
}


FACTS = SinkFacts("x", "connect-x", "m", "0", "kafka", "local", 0.0, 1.0, 1.0)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})


@contextmanager
def leading(
    tmp_path: Path,
    table: MutationTable,
    attempts: Attempts | None = None,
    board: Board | None = None,
    others: Sequence[str] = (),
    **keys: Any,
) -> Iterator[LeaderMaintenance]:
    """The maintenance of a leader, which is stopped in the end."""
    maintenance = LeaderMaintenance(
        sink=sink_of(tmp_path, table.name, **(ON | keys)),
        catalog=table.catalog,
        tables=lambda: [*others, table.name],
        resolvers=Resolvers(lambda name: None, 10**6),
        attempts=attempts or Attempts(1, 60.0),
        tasks=lambda: None,
        board=board or Board(FACTS),
    )
    try:
        yield maintenance
    finally:
        maintenance.stop()
        maintenance.join(60)


def test_files_are_joined_and_when_it_stops_no_lease_stays(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 4)
    with leading(tmp_path, table):
        wait_for(lambda: files_of(table.table) == 1)
        wait_for(lambda: LEASE in table.table.properties)
    assert pyiceberg_rows(table.table) == table.rows()
    assert LEASE not in table.table.properties


def after_rewriting(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do this between each rewriting of files and its commit."""
    rewrite = RewritingProcess.__call__

    def and_act(self: RewritingProcess, *given: Any) -> Any:
        rewritten = rewrite(self, *given)
        act()
        return rewritten

    monkeypatch.setattr(RewritingProcess, "__call__", and_act)


def test_it_commits_nothing_while_the_sink_commits(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, attempts = table_with(catalog, 4), Attempts(1, 60.0)
    rewritten, end = threading.Event(), threading.Event()
    after_rewriting(monkeypatch, rewritten.set)
    cycle = threading.Thread(target=lambda: dict(attempts.run({table_id(table.name): end.wait})))
    cycle.start()
    with leading(tmp_path, table, attempts):
        assert rewritten.wait(180)
        time.sleep(0.3)
        assert files_of(table.table) == 4
        end.set()
        wait_for(lambda: files_of(table.table) == 1)
    cycle.join()


def test_what_the_sink_commits_during_the_rewriting_costs_no_attempt(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, attempts = table_with(catalog, 4), list[str]()
    commit = Table._do_commit

    def noted(self: Table, *given: Any) -> Any:
        attempts.append("refused")
        answer = commit(self, *given)
        attempts[-1] = "landed"
        return answer

    after_rewriting(monkeypatch, lambda: table.commit(table.step([], [{"id": 0}])))
    monkeypatch.setattr(Table, "_do_commit", noted)
    with leading(tmp_path, table):
        wait_for(lambda: files_of(table.table) == 1)
    assert pyiceberg_rows(table.table) == table.rows()
    assert "refused" not in attempts


def test_a_table_that_a_watch_maintains_is_left_alone_and_the_other_way_round(
    catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    table = table_with(catalog, 4)
    watch = TableLease(
        catalog, table_id(table.name), "main", "host:7", lambda: int(time.time() * 1000), lambda seconds: None
    )
    watch.take()
    with leading(tmp_path, table):
        wait_for(lambda: "host:7 maintains it until" in caplog.text)
        assert files_of(table.table) == 4
        watch.release()
        wait_for(lambda: LEASE in table.table.properties)
        assert files_of(table.table) == 1
        (held,) = lines(sink_of(tmp_path, table.name), now_ms=int(time.time() * 1000))
        assert f"table {table.name}: the leader of connect-x maintains it until" in held


def test_the_next_leader_goes_on_at_once_where_one_was_killed(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 4)
    killed = TableLease(
        catalog,
        table_id(table.name),
        "main",
        "the leader of connect-x",
        lambda: int(time.time() * 1000),
        lambda seconds: None,
    )
    killed.take()
    with leading(tmp_path, table):
        wait_for(lambda: files_of(table.table) == 1)


def test_only_tables_are_maintained_that_the_settings_name(catalog: Catalog, tmp_path: Path) -> None:
    one = table_with(catalog, 4)
    off = {f"iceberg.table.{one.name}.maintenance.enabled": "false"}
    sink = sink_of(tmp_path, one.name, **(ON | off))
    assert sink.maintains_any and (sink.maintains(one.name), sink.maintains("db.other")) == ("false", "true")
    assert not sink_of(tmp_path, one.name).maintains_any


def test_with_auto_it_maintains_the_table_that_the_sink_has_created_and_no_other(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calving.runtime.maintenance.watch._LOOK_SECONDS", 0.1)
    own, other = table_with(catalog, 4), table_with(catalog, 4, "moving")
    own.table.transaction().set_properties({"calving.created-by": "control-iceberg.connect-x"}).commit_transaction()
    keys: dict[str, Any] = {"iceberg.maintenance.enabled": "auto"}
    with leading(tmp_path, own, others=[other.name], **keys):
        wait_for(lambda: files_of(own.table) == 1)
    assert files_of(other.table) == 4


def test_each_run_is_reported_by_task_and_outcome_and_by_table(catalog: Catalog, tmp_path: Path) -> None:
    table, board = table_with(catalog, 4), Board(FACTS)
    with leading(tmp_path, table, board=board):
        wait_for(lambda: ("compact", "nothing") in board.status.maintenance.seconds)
    text, _ = exposition(lambda: board.status)("")
    assert 'calving_maintenance_runs_total{outcome="done",sink="x",task="compact"} 1.0' in text.decode()
    done = board.status.maintenance
    assert done.seconds["compact", "done"].sum > 0 and done.rewritten["compact", "done"] > 1_000
    (row,) = tables(replace(board.status, log=LogStatus(tables={table.name: TableStatus()})), time.time())
    last = row["maintenance"]["last"]
    assert (last["task"], last["outcome"], last["text"][:9]) == ("compact", "done", "4 files (")
    assert row["maintenance"]["running_since"] is None and row["maintenance"]["looked_at"] >= last["ended_at"]


def test_files_are_due_until_they_are_joined(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, board = table_with(catalog, 4), Board(FACTS)
    size = sum(file["file_size_in_bytes"] for file in table.table.inspect.files().to_pylist())
    met, end = threading.Event(), threading.Event()

    def meet() -> None:
        met.set()
        end.wait()

    after_rewriting(monkeypatch, meet)
    with leading(tmp_path, table, board=board):
        assert met.wait(180)
        due = board.status.maintenance.tables[table.name]
        end.set()
        wait_for(lambda: not board.status.maintenance.tables[table.name].due)
    assert (due.due_files, due.due_bytes, due.pause) == (4, size, 0.1)
    assert due.due_since is not None and due.due_since <= time.time()


def test_a_new_leader_does_not_know_what_is_due_until_it_has_looked(catalog: Catalog, tmp_path: Path) -> None:
    table, board = table_with(catalog, 1), Board(FACTS)
    stale = {"db.gone": TableMaintenance(due={("compact", ""): DueWork(1.0)})}
    board.maintenance(lambda before: replace(before, tables=stale))
    with leading(tmp_path, table, board=board):
        assert not board.status.maintenance.tables["db.gone"].due


class Slots:
    def __init__(self, slots: int) -> None:
        self.slots, self.jobs = slots, list[int]()

    def map(self, function: Callable[[str], str], payloads: Sequence[str]) -> list[str]:
        self.jobs.append(len(payloads))
        return [*map(function, payloads)]


def test_searches_take_half_of_the_slots_and_never_the_last_one() -> None:
    five = Slots(5)
    half = half_of(five)
    assert half is not None and half.slots == 2
    assert half.map(str.upper, ["a", "b", "c"]) == ["A", "B", "C"] and five.jobs == [2, 1]
    assert half_of(Slots(1)) is None and half_of(None) is None
