"""A status as JSON for the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from calving.model.members import Member
from calving.model.offsets import Span, TopicPartition
from calving.protocol.members import Disagreement
from calving.protocol.rollback import RolledBack
from calving.serving import views
from calving.status.values import PartitionStatus, Status, TableCommit
from tests.serving.sinks import NOW, not_leading, status


class Walked(tuple[TableCommit, ...]):
    """The tables of a cycle, which count how often somebody goes through them."""

    walks = 0

    def __iter__(self) -> Iterator[TableCommit]:
        Walked.walks += 1
        return super().__iter__()


def test_the_tables_of_a_cycle_are_gone_through_once_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Walked, "walks", 0)
    found = status(tables=50)
    cycles = tuple(replace(cycle, tables=Walked(cycle.tables)) for cycle in found.coordinator.recent)
    found = replace(found, coordinator=replace(found.coordinator, recent=cycles))
    rows = views.tables(found, NOW)
    assert (len(rows), Walked.walks) == (50, len(cycles))
    monkeypatch.setattr(Walked, "walks", 0)
    detail = views.table(found, "db.t007", NOW)
    assert detail is not None and Walked.walks == len(cycles)
    assert detail["table"] == next(row for row in rows if row["table"] == "db.t007")


def with_other_reasons() -> Status:
    """Of a worker with reasons whose subjects are a worker and a partition."""
    found, tp = not_leading(status(broken=1)), TopicPartition("orders", 0)
    differs = (Disagreement(Member("0.2.0", "x", host="h-2", file="sink.json", keys={"topics": "x"}), ("topics",)),)
    return replace(found, worker=replace(found.worker, unread={tp: (Span(5, 9),)}, disagreements=differs))


def test_what_is_wrong_with_a_worker_or_a_partition_is_no_table() -> None:
    assert [row["table"] for row in views.tables(with_other_reasons(), NOW)] == ["db.t000", "db.t001", "db.t002"]
    assert views.table(with_other_reasons(), "h-2 sink.json", NOW) is None


def test_a_table_in_trouble_has_its_reason_and_comes_first() -> None:
    rows = views.tables(status(broken=1), NOW)
    assert [row["trouble"] is None for row in rows] == [False, True, True]


def test_a_table_that_was_rolled_back_tells_how_many_offsets_are_gone_and_what_answers() -> None:
    found = status()
    gone = {"db.t001": RolledBack({TopicPartition("orders", 0): (Span(100, 300),)})}
    found = replace(found, coordinator=replace(found.coordinator, rolled_back=gone))
    first, *others = views.tables(found, NOW)
    assert (first["table"], first["gone_records"]) == ("db.t001", 200)
    assert "calving rollback FILE --table db.t001 --as-is --then restore" in str(first["trouble"])
    assert [row["gone_records"] for row in others] == [0, 0]


def test_the_overview_tells_how_many_records_are_not_visible_and_since_when_the_oldest_waits() -> None:
    one, other, free = (TopicPartition("orders", number) for number in range(3))
    held = {
        one: PartitionStatus(80, 100, 70, waiting_since=NOW - 9),
        other: PartitionStatus(50, 50, 45, waiting_since=NOW - 14),
        free: PartitionStatus(7, 7, 7),
    }
    found = status()
    worker = replace(found.worker, partitions=held, hidden=4)
    told = views.overview(replace(found, worker=worker), NOW, with_values=True)
    assert (told["not_visible"], told["waiting_since"]) == (30 + 5 + 4, NOW - 14)
    worker = replace(worker, partitions={free: held[free]}, hidden=0)
    told = views.overview(replace(found, worker=worker), NOW, with_values=True)
    assert (told["not_visible"], told["waiting_since"]) == (0, None)
