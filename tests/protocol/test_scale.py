"""What a commit cycle costs the coordinator grows with the tables and with the partitions, not with their product."""

from __future__ import annotations

import json
import sys
from types import FrameType

import pytest

from calving.protocol.ledger_key import SOURCE_OFFSETS
from harness import scale
from harness.scale import Fleet, Shape


def calls(tables: int, partitions: int, in_order: int) -> int:
    """Of Python functions in the third cycle of a sink whose worker has files for each of its tables."""
    scale.RECORDS += 1  # what was decoded of an earlier sink is of no use to this one
    fleet, count = Fleet(Shape(1, partitions, tables, tables, in_order)), 0
    for _ in range(2):
        fleet.cycle()

    def counted(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        fleet.cycle()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture(autouse=True)
def _own_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "RECORDS", 20_000)


@pytest.mark.parametrize("in_order", [0, 1])
def test_a_further_table_costs_the_same_whatever_the_number_of_partitions(in_order: int) -> None:
    few, many = ((calls(12, each, in_order) - calls(4, each, in_order)) / 8 for each in (6, 300))
    assert many < 1.1 * few


@pytest.mark.parametrize("in_order", [0, 1])
def test_a_further_partition_costs_the_same_whatever_the_number_of_tables(in_order: int) -> None:
    one, many = ((calls(each, 300, in_order) - calls(each, 102, in_order)) / 198 for each in (1, 12))
    assert many < 1.1 * one


def test_every_table_holds_all_that_was_published() -> None:
    fleet = Fleet(Shape(3, 12, 4, 4))
    for _ in range(3):
        fleet.cycle()
    for table in fleet.tables.values():
        ends = json.loads(table.properties[f"{SOURCE_OFFSETS}.control-iceberg.connect-scale"])
        assert [end for topic in ends.values() for end in topic] == [60_000] * 12


def test_a_replay_of_the_log_hears_every_entry() -> None:
    fleet = Fleet(Shape(2, 4, 2, 1))
    fleet.cycle()
    assert fleet.replay().entries == len(fleet.log)
