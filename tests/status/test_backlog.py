"""How far a worker is behind, and how fast it catches up."""

from __future__ import annotations

from uuid import uuid4

import pytest

from calving.model.events import DataComplete, Envelope
from calving.model.offsets import Span, TopicPartition
from calving.status.backlog import Backlog
from calving.status.published import Published


def after(*looks: tuple[float, int, int | None], held: int = 1) -> Backlog:
    """A backlog after looks at a worker: when, records read, records to read."""
    backlog = Backlog()
    for now, read, behind in looks:
        backlog = backlog.then(now, read, behind, held)
    return backlog


def test_before_the_ends_are_known_nothing_is_known() -> None:
    backlog = after((0.0, 0, None))
    assert (backlog.behind, backlog.share, backlog.rate(0.0), backlog.pace) == (None, None, None, "unknown")
    assert backlog.seconds_left(0.0) is None


def test_before_the_first_batch_ends_its_speed_is_not_known() -> None:
    backlog = after((0.0, 0, 1_000), (5.0, 0, 1_000))
    assert (backlog.share, backlog.rate(5.0), backlog.pace) == (0.0, None, "unknown")


def test_a_worker_that_catches_up_has_a_speed_a_share_and_a_time() -> None:
    backlog = after((0.0, 0, 1_000), (10.0, 300, 800), (20.0, 600, 600))
    assert (backlog.rate(20.0), backlog.seconds_left(20.0), backlog.share) == (30.0, 30.0, 0.5)
    assert backlog.pace == "catching-up"


def test_a_worker_that_reads_less_than_comes_falls_behind_and_has_no_time() -> None:
    backlog = after((0.0, 0, 1_000), (10.0, 300, 1_200), (20.0, 600, 1_400))
    assert (backlog.pace, backlog.seconds_left(20.0)) == ("falling-behind", None)


def test_a_worker_whose_batches_read_nearly_all_keeps_up() -> None:
    assert after((0.0, 0, 100), (10.0, 100, 5), (19.0, 100, 90)).pace == "keeping-up"


def test_a_speed_falls_while_a_batch_takes_longer_than_all_before() -> None:
    backlog = after((0.0, 0, 1_000), (10.0, 300, 700), (20.0, 600, 400))
    assert backlog.rate(30.0) == 30.0
    assert backlog.rate(50.0) == 15.0


def test_speeds_are_those_of_the_last_minute() -> None:
    looks = [(10.0 * n, 10 * n if n < 20 else 200 + 1_000 * (n - 20), 10**6 - n) for n in range(40)]
    assert after(*looks).rate(390.0) == 100.0


def test_long_batches_are_measured_over_two_of_them_at_least() -> None:
    assert after((0.0, 0, 9_000), (300.0, 3_000, 6_000), (600.0, 6_000, 3_000)).rate(600.0) == 10.0


def test_many_short_batches_keep_few_marks() -> None:
    assert len(after(*((0.01 * n, n, 10_000 - n) for n in range(9_000))).marks) < 100


def test_time_without_records_is_no_slow_reading() -> None:
    idle = after((0.0, 0, 100), (1.0, 100, 0))
    assert idle.rate(400.0) == 0.0
    late = idle.then(500.0, 100, 1_000, 1).then(510.0, 600, 500, 1)
    assert (late.rate(510.0), late.share) == (50.0, 0.5)


def test_speeds_are_measured_anew_when_partitions_come_or_go() -> None:
    backlog = after((0.0, 0, 1_000), (10.0, 500, 500)).then(11.0, 500, 90_000, 2)
    assert (backlog.rate(11.0), backlog.pace, backlog.share) == (None, "unknown", 0.0)


def publication(at: float, end: int, start: int = 0, partition: int = 0) -> Envelope:
    spans = {TopicPartition("t", partition): (Span(start, end),)}
    return Envelope(0, int(at), DataComplete(uuid4()), spans, at_us=int(at * 1e6))


@pytest.mark.parametrize(
    ("entries", "rate"),
    [
        ([], None),
        ([publication(100, 500)], None),
        ([publication(100, 500), publication(110, 900), publication(120, 1_300)], 40.0),
        ([publication(100, 500), publication(110, 500), publication(120, 900)], 20.0),
        ([publication(100, 500), publication(110, 300, partition=1)], 30.0),
        ([publication(100, 500), publication(100, 900, 500)], None),
    ],
    ids=["none", "one", "three", "one that adds nothing", "two workers", "at once"],
)
def test_the_speed_of_all_workers_is_that_of_their_publications(entries: list[Envelope], rate: float | None) -> None:
    published = Published()
    for entry in entries:
        published.hear(entry)
    assert published.rate(130.0) == rate
    assert published.rate(10_000.0) is None  # they are too old to tell anything
