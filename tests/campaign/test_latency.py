"""From a fault to the next full commit."""

from __future__ import annotations

from campaign.latency import Commit, Gap, longest_gap, recovered, summary

FAULT = 100.0
PARTIAL = Commit(101.0, "a", None, "db.t0")
EARLIER = Commit(102.0, "b", 99_000, "db.t0")
FULL = Commit(103.5, "c", 100_500, "db.t0")


def test_only_a_commit_with_news_of_every_partition_counts() -> None:
    assert recovered([PARTIAL, EARLIER, FULL], FAULT) == 3.5


def test_the_order_of_the_commits_does_not_matter() -> None:
    assert recovered([Commit(105.0, "d", 104_000, "db.t0"), FULL], FAULT) == 3.5


def test_no_full_commit_is_no_recovery() -> None:
    assert recovered([PARTIAL, EARLIER], FAULT) is None


def test_the_slowest_fault_is_shown() -> None:
    assert summary({"worker killed": [1.0, 2.0, 30.0], "never": []}) == {
        "worker killed": {"times": 3, "p50": 2.0, "p99": 30.0, "max": 30.0}
    }


def commits(table: str, *moments: float) -> list[Commit]:
    return [Commit(at, "", None, table) for at in moments]


def test_a_table_without_a_commit_makes_a_gap_while_others_have_some() -> None:
    assert longest_gap([*commits("db.t0", 1, 8), *commits("db.t1", 1, 2, 4, 6, 8)], 0, 10) == Gap(7, 1, "db.t0")


def test_a_gap_may_begin_before_the_first_commit_and_end_after_the_last() -> None:
    assert longest_gap(commits("db.t0", 5, 6, 7), 0, 10) == Gap(5, 0, "db.t0")
    assert longest_gap(commits("db.t0", 2, 3, 4), 0, 10) == Gap(6, 4, "db.t0")


def test_only_the_gaps_of_the_time_that_is_asked_for_count() -> None:
    assert longest_gap(commits("db.t0", -50, 2, 60), 0, 3) == Gap(2, 0, "db.t0")


def test_no_commit_at_all_is_one_gap() -> None:
    assert longest_gap([], 0, 10).seconds == 10
