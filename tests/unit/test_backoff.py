"""Pauses between tries."""

from __future__ import annotations

from calving.retries import Backoff

BACKOFF = Backoff(first=0.5, longest=3.0)


def test_a_pause_doubles_with_each_failure_up_to_the_longest() -> None:
    assert [BACKOFF.pause(failures) for failures in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_jitter_makes_each_pause_longer_or_shorter_by_a_share() -> None:
    assert [BACKOFF.pause(failures, jitter=0.5) for failures in (1, 9)] == [0.75, 4.5]
    assert BACKOFF.pause(2, jitter=-0.5) == 0.5


def test_failures_without_end_have_the_longest_pause() -> None:
    assert BACKOFF.pause(1_000_000) == 3.0
