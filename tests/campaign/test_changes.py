"""The records of a campaign, by workload."""

from __future__ import annotations

import pytest

from campaign import changes, records
from campaign.changes import Workload

TABLES = ("db.t0", "db.t1")


def test_an_append_workload_sends_each_record_as_a_row_of_its_own() -> None:
    sent = [changes.payload(number, TABLES, "append") for number in range(100)]
    assert sent == [records.payload(number, TABLES) for number in range(100)]


@pytest.mark.parametrize("workload", ["upsert", "cdc"])
def test_a_key_stays_in_its_table_and_its_partition(workload: Workload) -> None:
    found = [(number, changes.change(number, TABLES, workload)) for number in range(5000)]
    places = {c.key: (c.table, n * 7 % changes.PARTITIONS) for n, c in found if c is not None}
    assert all(places[c.key] == (c.table, n * 7 % changes.PARTITIONS) for n, c in found if c is not None)
    assert len(places) < 1000
