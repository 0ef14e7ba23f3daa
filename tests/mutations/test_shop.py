"""A whole table is mirrored; ``make mirror`` does the same with a million records and a broker."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from calving.model.record_path import Limits
from harness.duckdb_extensions import duckdb_rows
from harness.shop import CDC, COLUMNS, DEBEZIUM, Shop
from tests.mutations.changing import Changing


@pytest.mark.parametrize("lacks", [False, True], ids=["whole rows", "rows without what did not change"])
@pytest.mark.parametrize("partition_by", [(), ("bucket(id, 4)",)])
def test_a_snapshot_and_changes_leave_what_the_source_has(
    tmp_path: Path, partition_by: tuple[str, ...], lacks: bool
) -> None:
    shop = Shop(1, 100, lacks)
    limits = Limits(block_records=200)
    cdc = replace(CDC, on_unavailable_value="keep") if lacks else CDC
    sink = Changing(tmp_path, cdc, transforms=(DEBEZIUM,), limits=limits, slots=2, partition_by=partition_by)
    records = shop.records(2_000)
    while batch := list(islice(records, 700)):
        assert not sink.take(*batch).dead_letters
    assert duckdb_rows(sink.table, ", ".join(COLUMNS)) == sorted(shop.expected(), key=repr)
    assert sink.rows(*COLUMNS) == sorted(shop.expected(), key=repr)
