"""What maintenance has found at a table and not done yet, and when that is a reason not to be well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calving.status.health import reasons
from calving.status.maintenance import (
    NO_MAINTENANCE,
    MaintenanceRun,
    MaintenanceStatus,
    TableMaintenance,
    after_begin,
    after_look,
    after_run,
    with_due_of,
)
from calving.status.remedies import Cause
from calving.status.values import SinkFacts, Status, WorkerStatus

FACTS = SinkFacts("x", "connect-x", "m", "0", "kafka", "local", 0.0, 1.0, 1.0)


def found(at: float, before: MaintenanceStatus = NO_MAINTENANCE, pause: float = 60.0, **due: int) -> MaintenanceStatus:
    """Files that are due after a look, by partition, with 100 bytes each."""
    sizes = {part: (files, 100 * files) for part, files in due.items()}
    return after_look(after_begin(before, "db.t", at, pause), "db.t", "compact", sizes, at)


def ran(before: MaintenanceStatus, outcome: str, at: float, part: str = "a", files: int = 4) -> MaintenanceStatus:
    return after_run(before, "db.t", MaintenanceRun("compact", outcome, "why", at, 1.0, 100 * files, part, files))


def failed(before: MaintenanceStatus, at: float) -> MaintenanceStatus:
    """The table could not be loaded."""
    return after_run(before, "db.t", MaintenanceRun("all", "failed", "the catalog is away", at, 1.0))


def table(of: MaintenanceStatus) -> TableMaintenance:
    return of.tables["db.t"]


def causes(of: MaintenanceStatus, now: float, *, leads: bool = True) -> list[tuple[str, str]]:
    status = Status(FACTS, WorkerStatus(joined=True, leads=leads), maintenance=of)
    overdue = (each for each in reasons(status, now) if each.cause is Cause.MAINTENANCE_OVERDUE)
    return [(each.subject, each.text) for each in overdue]


def test_work_is_due_since_it_was_found_first() -> None:
    again = found(50.0, found(10.0, a=4), a=6, b=2)
    assert (table(again).due_since, table(again).due_files, table(again).due_bytes) == (10.0, 8, 800)
    assert table(found(60.0, again, b=2)).due_since == 50.0


def test_of_a_partition_with_two_groups_the_second_is_due_after_the_first_was_done() -> None:
    first = ran(found(10.0, a=6), "done", 20.0)
    assert (table(first).due_since, table(first).due_files, table(first).due_bytes) == (10.0, 2, 200)
    assert not table(ran(first, "done", 30.0, files=2)).due


@pytest.mark.parametrize("outcome", ["failed", "dropped"])
def test_work_that_fails_stays_due_although_other_work_is_done(outcome: str) -> None:
    after = found(10.0, a=4, b=4)
    for at in range(20, 700, 20):
        after = found(at, ran(ran(after, outcome, at), "done", at + 1.0, part="b"), a=4, b=4)
    ((subject, text),) = causes(after, 690.0)
    assert subject == "db.t"
    assert text == (
        "table db.t: maintenance (compact) has been due since 1970-01-01T00:00:10+00:00, 4 files (400 B); the last run:"
        " done: why"
    )


def test_a_backlog_that_is_worked_off_is_no_reason_and_one_at_which_nothing_happens_is() -> None:
    after = found(10.0, a=400)
    for at in range(60, 3_600, 60):
        after = ran(after, "done", float(at))
    assert table(after).due_since == 10.0 and not causes(after, 3_600.0)
    assert causes(after, 3_540.0 + 601.0) and not causes(after, 3_540.0 + 600.0)


def test_ten_long_pauses_pass_before_work_is_overdue() -> None:
    after = found(0.0, pause=600.0, a=4)
    assert not causes(after, 6_000.0) and causes(after, 6_001.0)


def test_a_table_that_cannot_be_reached_is_overdue_until_a_task_has_looked_at_it() -> None:
    after = failed(failed(NO_MAINTENANCE, 10.0), 300.0)
    assert "(all) has been due" in causes(after, 611.0)[0][1]
    assert not causes(ran(after, "nothing", 620.0, part="", files=0), 630.0)


def test_nothing_is_due_where_somebody_else_maintains_the_table() -> None:
    held = after_run(found(10.0, a=4), "db.t", MaintenanceRun("all", "left alone", "held", 20.0, 1.0))
    assert not table(held).due


def test_only_the_worker_that_leads_has_the_reason_and_only_for_tables_that_it_maintains() -> None:
    after = found(0.0, a=4)
    assert not causes(after, 700.0, leads=False)
    assert causes(with_due_of(after, ["db.t"]), 700.0) and not causes(with_due_of(after, []), 700.0)


def test_work_that_succeeds_at_last_has_not_failed() -> None:
    after = ran(ran(found(0.0, a=8), "failed", 10.0), "done", 20.0)
    assert [work.failed_since for work in table(after).due.values()] == [None]
    assert replace(table(after), due={}).due_since is None
