"""``calving maintain --watch``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from calving.cli.maintain import watch
from calving.errors import AccessDeniedError, GaveUpError, UnavailableError
from calving.iceberg.catalog import open_catalog, table_id
from calving.maintenance.lease import LEASE, TableLease
from calving.retries import Retries
from calving.runtime.maintenance.maintainer import MaintenanceOrder
from calving.runtime.maintenance.step import MaintenanceStep
from calving.runtime.maintenance.watch import MaintenanceWatch
from tests.cli.maintaining import lines
from tests.cli.test_compact import file_of, sink_of, table_with
from tests.iceberg.histories import pyiceberg_rows
from tests.maintenance.merging import manifests_of


class Days:
    """A clock that only waiting moves. ``until``: when to stop."""

    def __init__(self, until: float) -> None:
        self.now, self._until = 0.0, until

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.now >= self._until


def step(outcome: str, text: str = "", table: str = "a") -> MaintenanceStep:
    return MaintenanceStep(table, "compact", outcome, text)


def said(
    runs: Callable[[str], Iterator[MaintenanceStep]], until: float, tables: Callable[[], list[str]] = lambda: ["a"]
) -> list[tuple[float, str]]:
    days = Days(until)
    watching = MaintenanceWatch(tables, runs, lambda name: 60.0, lambda: days.now, days.wait, Retries(300.0))
    return [(days.now, f"{each.table} {each.text}") for each in watching.steps(100.0)]


def test_a_pause_comes_after_each_commit_and_after_each_run() -> None:
    def run(name: str) -> Iterator[MaintenanceStep]:
        yield MaintenanceStep(name, "deletes", "nothing", "no deletes")
        yield step("done", "first")
        yield step("done", "second")

    assert said(run, 250) == [(0, "a first"), (60, "a second"), (180, "a first"), (240, "a second")]


def test_files_are_compacted_at_once_after_the_deletes_that_applied_to_them() -> None:
    def run(name: str) -> Iterator[MaintenanceStep]:
        yield MaintenanceStep(name, "deletes", "done", "converted", {"keys": 3})
        yield step("done", "joined")

    assert said(run, 50) == [(0, "a converted"), (0, "a joined")]


def test_after_a_merge_of_deletes_others_get_their_turn() -> None:
    def run(name: str) -> Iterator[MaintenanceStep]:
        yield MaintenanceStep(name, "deletes", "done", "merged", {"files": 3})
        yield step("done", "joined")

    assert said(run, 50) == [(0, "a merged")]


def test_what_was_said_and_has_not_changed_is_not_said_again() -> None:
    texts = iter(["rolled back", "rolled back", "recovered"])

    def run(name: str) -> Iterator[MaintenanceStep]:
        yield step("left alone", next(texts, "recovered"))

    assert said(run, 400) == [(0, "a rolled back"), (120, "a recovered")]


def test_an_error_of_a_table_is_a_step_and_the_other_tables_go_on() -> None:
    def run(name: str) -> Iterator[MaintenanceStep]:
        if name == "a":
            raise UnavailableError("no answer")
        yield step("done", "joined", name)

    failed = "a maintenance failed: no answer"
    assert said(run, 100, lambda: ["a", "b"]) == [(0, failed), (0, "b joined")]


@pytest.mark.parametrize("error", [UnavailableError("no answer"), OSError("no answer")])
def test_a_run_that_failed_begins_again_after_the_pause(error: Exception) -> None:
    errors = iter([error])

    def run(name: str) -> Iterator[MaintenanceStep]:
        if (now := next(errors, None)) is not None:
            raise now
        yield step("done", "joined")

    assert [(at, text[-9:]) for at, text in said(run, 100)] == [(0, "no answer"), (60, "a joined")]


@pytest.mark.parametrize("error", [UnavailableError("no answer"), KeyError("odd")])
def test_tables_that_come_later_are_maintained_and_those_that_cannot_be_listed_stay(error: Exception) -> None:
    answers: list[list[str] | None] = [["a"], None, ["a", "b"]]

    def tables() -> list[str]:
        names = answers.pop(0) if len(answers) > 1 else answers[0]
        if names is None:
            raise error
        return names

    def run(name: str) -> Iterator[MaintenanceStep]:
        yield step("done", "joined", name)

    texts = [text for _, text in said(run, 310, tables)]
    assert texts.count("a joined") == 3 and "b joined" in texts


def test_what_cannot_pass_ends_it_if_nothing_else_succeeds() -> None:
    def run(name: str) -> Iterator[MaintenanceStep]:
        raise AccessDeniedError(f"{name} is not yours")

    with pytest.raises(GaveUpError, match=r"retried for 300 s, .*AccessDeniedError: a is not yours"):
        said(run, 10_000)


@pytest.mark.parametrize(
    "errors",
    [
        {"a": UnavailableError("no answer"), "b": UnavailableError("no answer")},
        {"a": AccessDeniedError("not yours")},
    ],
    ids=["outage", "one of two"],
)
def test_neither_an_outage_nor_one_table_of_several_ends_it(errors: dict[str, Exception]) -> None:
    def run(name: str) -> Iterator[MaintenanceStep]:
        if name in errors:
            raise errors[name]
        yield step("done", "joined", name)

    assert len(said(run, 10_000, lambda: ["a", "b"])) > 1


def test_tables_that_may_not_be_listed_any_more_end_it_if_there_are_none_yet() -> None:
    answers: list[list[str]] = [[]]

    def tables() -> list[str]:
        if not answers:
            raise AccessDeniedError("not yours")
        return answers.pop()

    with pytest.raises(GaveUpError, match="not yours"):
        said(lambda name: iter(()), 10_000, tables)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})


QUICK = {"iceberg.maintenance.manifests": "3", "iceberg.maintenance.pause-ms": "100"}


def test_what_is_due_is_done_beside_commits_until_it_is_stopped_and_no_lease_stays(
    catalog: Catalog, tmp_path: Path
) -> None:
    table, stop = table_with(catalog, 4), threading.Event()
    done = []
    for each in watch(sink_of(tmp_path, table.name, **QUICK), MaintenanceOrder(tasks=["manifests"]), "test", stop):
        done.append(each.outcome)
        if len(done) == 2:
            stop.set()
            continue
        for number in range(4):
            table.commit(table.step([], inserts=[{"id": 10 + number, "name": "a", "g": 0}]))
    assert done == ["done", "done"]
    assert len(manifests_of(table.table)) == 1 and pyiceberg_rows(table.table) == table.rows()
    assert LEASE not in table.table.properties


def test_a_table_that_somebody_else_maintains_is_left_alone_unless_asked_for_anyway(
    catalog: Catalog, tmp_path: Path
) -> None:
    table = table_with(catalog, 4)
    sink = sink_of(tmp_path, table.name, **QUICK)
    lease = TableLease(catalog, table_id(table.name), "main", "host:7", lambda: 0, sleep=lambda seconds: None)
    assert lease.take() is None
    held = f"table {table.name}: host:7 maintains it until 00:15 UTC; to run beside that, add --anyway"
    assert lines(sink, (), ["manifests"]) == [held]
    assert "would become" in lines(sink, (), ["manifests"], dry_run=True)[0]
    assert "became 1 manifest" in lines(sink, (), ["manifests"], beside_others=True)[0]


def test_the_command_goes_on_until_a_signal_and_ends_well(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 4)
    config = str(file_of(tmp_path, table.name, **QUICK))
    code = "from calving.cli.main import main; main()"
    command = [sys.executable, "-c", code, "maintain", config, "--watch", "--json", "--task", "manifests"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["task"], first["outcome"], first["outputs"]) == ("manifests", "done", 1)
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    assert LEASE not in table.table.properties


def test_a_watch_is_no_dry_run(catalog: Catalog, tmp_path: Path) -> None:
    config = str(file_of(tmp_path, table_with(catalog, 1).name))
    code = "from calving.cli.main import main; main()"
    command = [sys.executable, "-c", code, "maintain", config, "--watch", "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and "--watch and --dry-run exclude each other" in done.stderr
