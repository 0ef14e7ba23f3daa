"""The last events of a worker, as the page shows them."""

from __future__ import annotations

from dataclasses import replace

from calving.serving.history import Events
from calving.status.values import Status
from tests.serving.sinks import NOW, Worker, serving, sink, status


def after(*looks: Status) -> list[str]:
    """The events of these looks, ten seconds apart, the oldest first, without that of the start."""
    events = Events()
    for n, each in enumerate(looks):
        events.look(each, NOW + 10 * n)
    return [event.text for event in events.newest_first[::-1]][1:]


def test_a_worker_that_has_started_says_so_with_its_version() -> None:
    events = Events()
    events.look(status(), NOW)
    (event,) = events.newest_first
    assert (event.text, event.at) == ("the worker has started, version 0.2.0", NOW - 7_200)


def test_a_status_that_stays_the_same_has_no_events() -> None:
    well = status()
    assert after(well, well, replace(well)) == []


def test_a_new_reason_is_an_event_with_its_next_command_and_so_is_its_end() -> None:
    begun, ended = after(status(), status(broken=1), status())
    assert begun.startswith("DEGRADED: table-failing: table db.t000:") and "next: calving validate FILE" in begun
    assert ended == "no longer DEGRADED: table-failing db.t000"


def test_each_commit_cycle_is_an_event_once_and_its_failed_tables_are_named() -> None:
    now = status(broken=1)
    newest, *older = now.coordinator.recent
    before = replace(now, coordinator=replace(now.coordinator, recent=tuple(older)))
    assert after(before, now, replace(now))[1:] == [
        "commit to 3 tables: 8000 records in 4 files, 0.4 s",
        "table db.t000 was not committed: the catalog answers 500",
    ]
    empty = replace(now, coordinator=replace(now.coordinator, recent=(replace(newest, outcome="empty"), *older)))
    assert after(before, empty)[1:] == []


def test_what_happens_to_the_worker_itself_is_an_event() -> None:
    well = status()
    worker = well.worker
    changed = replace(
        worker, leads=False, paused_at=NOW, restarts=2, error="UnavailableError: away", lost={"orders": 3}
    )
    fewer = replace(worker, partitions=dict(list(worker.partitions.items())[:4]))
    assert after(well, replace(well, worker=changed))[:4] == [
        "starting over from the stored positions: UnavailableError: away",
        "leads no longer",
        "was paused",
        "3 records were no longer at the broker, and skipped",
    ]
    assert after(well, replace(well, worker=fewer)) == ["has 4 partitions: 0 more, 2 fewer"]


def test_events_are_bounded_in_number_and_length_and_show_no_secret() -> None:
    sink()  # its secrets are known from now on
    events, well = Events(), status()
    for n in range(500):
        error = f"hunter2-kafka\n{'x' * 5_000}"
        events.look(replace(well, worker=replace(well.worker, restarts=2 + n, error=error)), NOW)
    texts = [event.text for event in events.newest_first]
    assert len(texts) == 200 and max(map(len, texts)) <= 1_000
    assert "***" in texts[0] and "hunter2" not in texts[0]
    assert len({event.number for event in events.newest_first}) == 200


def test_events_show_no_value_of_a_dead_letter() -> None:
    well = status()
    records = replace(well.worker.batches.records, dead_lettered={"VALUE_CONVERTER": 70, "TASK_PUT": 40})
    more = replace(well, worker=replace(well.worker, batches=replace(well.worker.batches, records=records)))
    assert after(well, more) == ["10 records have become dead letters"]


def test_the_server_notes_events_by_itself() -> None:
    with serving(Worker(status())) as client:
        assert client.get("/api/events").json[-1]["text"] == "the worker has started, version 0.2.0"
