"""The live view of a sink at a terminal."""

from __future__ import annotations

import io
import logging
from dataclasses import replace

import pytest
from rich.console import Console

from calving.status.backlog import Backlog, Mark
from calving.status.values import CoordinatorStatus, LogStatus, Status, WorkerStatus
from calving.terminal.live import showing, view
from calving.terminal.texts import duration
from tests.serving.sinks import NOW, status


def shown(found: Status, *, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(view(found, NOW, "http://127.0.0.1:8083/"))
    return console.export_text()


def test_a_sink_that_is_well_shows_lag_speed_commits_and_freshness() -> None:
    text = shown(status())
    assert "orders  running, leads  OK" in text and "http://127.0.0.1:8083/" in text
    assert all(part in text for part in ("45,000", "4,000", "3.0 s ago, 0.40 s", "5.0 s ago", "db.t002"))


def test_an_idle_sink_still_says_when_it_has_committed_last() -> None:
    found = status()
    shown_there = shown(replace(found, coordinator=replace(found.coordinator, recent=())))
    assert "last commit 3.0 s ago" in shown_there


def test_the_table_in_trouble_comes_first_and_the_reason_is_said() -> None:
    text = shown(status(tables=30, broken=1))
    assert "DEGRADED" in text and "the catalog answers 500" in text
    assert "next: calving validate FILE (see docs/how-to/on-call.md#table-failing)" in text
    assert text.index("db.t000") < text.index("db.t001")
    assert "and 20 more" in text


def test_a_sink_that_is_behind_shows_a_bar_its_speed_what_remains_and_how_long_that_takes() -> None:
    text = shown(status())
    assert "95%  45,000 records to read, 4,000 records/s, about 11 s left" in text


def with_backlog(backlog: Backlog) -> Status:
    found = status()
    return replace(found, worker=replace(found.worker, backlog=backlog))


def test_what_is_not_known_yet_is_no_number() -> None:
    text = shown(with_backlog(Backlog()))
    assert "how much is to read is not known yet" in text
    assert all(f"{name} -" in text for name in ("not visible", "to read", "records/s")) and "0%" not in text
    text = shown(with_backlog(Backlog().then(NOW, 0, 2_000_000, frozenset())))
    assert "2,000,000 records to read, speed and time left not measured yet" in text


def test_a_backlog_that_grows_is_said_to_grow() -> None:
    growing = Backlog(
        200, 900, 0, frozenset(), (Mark(NOW - 20, 100, 500), Mark(NOW - 10, 150, 700), Mark(NOW, 200, 900))
    )
    assert "900 records to read, 5.0 records/s, more come than are read" in shown(with_backlog(growing))


def test_records_that_are_read_wait_for_the_next_commit() -> None:
    assert "all are read, 57,000 records wait for the next commit" in shown(with_backlog(Backlog(9, 0)))


def test_a_worker_that_starts_over_says_why() -> None:
    worker = WorkerStatus(restarts=1, error="UnavailableError: the broker is away")
    text = shown(Status(status().sink, worker, LogStatus(), CoordinatorStatus()))
    assert "starting" in text and "starts over: UnavailableError: the broker is away" in text
    assert "next: calving validate FILE" in text


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, shown(status(broken=1), width=width).splitlines())) <= width


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.44, "0.4 s"), (59.0, "59 s"), (600.0, "10 min"), (10_000.0, "3 h"), (200_000.0, "2 d")],
)
def test_durations_have_one_unit(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_warnings_stand_above_the_view_and_the_handlers_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALVING_LOG_LEVEL", raising=False)
    console = Console(width=100, file=io.StringIO(), force_terminal=True)
    before, log = list(logging.getLogger().handlers), logging.getLogger("calving.test")
    found = replace(status(), worker=WorkerStatus())
    with showing(console, lambda: found, lambda: None):
        log.warning("[bold]a table[/bold] is late")
        log.info("commit")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "WARNING [bold]a table[/bold] is late" in text and "commit\n" not in text
    assert logging.getLogger().handlers == before


HOSTILE = "orders\x1b]0;title\x07\x1b[2J\u202e"


def test_names_and_errors_of_others_do_not_command_the_terminal() -> None:
    found = status(tables=1)
    (table,) = found.log.tables.values()
    worker = WorkerStatus(error=f"KafkaError: {HOSTILE}")
    hostile = replace(found, worker=worker, log=replace(found.log, tables={f"db.{HOSTILE}": table}))
    screen = io.StringIO()
    Console(width=150, file=screen, force_terminal=True).print(view(hostile, NOW, None))
    text = screen.getvalue()
    assert "db.orders?]0;title" in text and "KafkaError: orders?]0;title" in text
    assert not [code for code in ("\x1b]", "\x1b[2J", "\u202e") if code in text]
