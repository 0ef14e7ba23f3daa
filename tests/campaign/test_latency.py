"""From a fault to the next full commit."""

from __future__ import annotations

from campaign.latency import Commit, recovered, summary

FAULT = 100.0
PARTIAL: Commit = (101.0, "a", None)
EARLIER: Commit = (102.0, "b", 99_000)
FULL: Commit = (103.5, "c", 100_500)


def test_only_a_commit_with_news_of_every_partition_counts() -> None:
    assert recovered([PARTIAL, EARLIER, FULL], FAULT) == 3.5


def test_the_order_of_the_commits_does_not_matter() -> None:
    assert recovered([(105.0, "d", 104_000), FULL], FAULT) == 3.5


def test_no_full_commit_is_no_recovery() -> None:
    assert recovered([PARTIAL, EARLIER], FAULT) is None


def test_the_slowest_fault_is_shown() -> None:
    assert summary({"worker killed": [1.0, 2.0, 30.0], "never": []}) == {
        "worker killed": {"times": 3, "p50": 2.0, "p99": 30.0, "max": 30.0}
    }
