"""The entries of Spark's jobs beside the ledgers of sinks."""

from __future__ import annotations

import json

import pytest
from pyiceberg.catalog import Catalog

from calving.cli.audit import as_text
from calving.protocol.batch_ledger import OneWrite, StreamBatch
from tests.audit.conftest import audited, found
from tests.audit.sabotage import Record, Sabotage
from tests.iceberg.lake import Lake
from tests.iceberg.test_batches import commit

NAME = "calving.spark-batch.orders"


@pytest.fixture
def lake(catalog: Catalog) -> Lake:
    """A table of a query beside a sink, and of a write that has an id."""
    made = Lake(catalog, "2", "main")
    for batch in range(3):
        commit(made, StreamBatch("db.t", "orders", "q1", batch), 1000 + batch)
        made.commit(batch * 100, batch * 100 + 100)
    commit(made, OneWrite("one"), 2000)
    return made


def test_the_batches_of_a_query_beside_a_sink_are_sound_and_shown(lake: Lake) -> None:
    audit = audited(lake.table)
    assert audit.findings == []
    (query,) = audit.queries
    assert (query.sink, query.query, query.batch, query.batches) == ("orders", "q1", 2, 3)
    assert "  Spark, sink orders: batch 2 of query q1; 3 batches in the snapshots left" in [*as_text(audit)]


def test_a_query_with_a_new_checkpoint_is_sound(lake: Lake) -> None:
    commit(lake, StreamBatch("db.t", "orders", "q2", 0, continues=True), 3000)
    assert found(lake.table) == []


def test_a_branch_that_was_rolled_back_is_sound(lake: Lake) -> None:
    lake.roll_back(lake.table.metadata.snapshots[1].snapshot_id)
    assert found(lake.table) == []
    lake.expire()
    assert found(lake.table) == []


@pytest.mark.parametrize("lie", ['{"query":"q1","batch":0}', "7", '{"query":"q1","batch":"x"}', '{"query":"q3"}'])
def test_a_falsified_entry_of_a_snapshot_is_found(lake: Lake, lie: str) -> None:
    lake.drop_history()
    Sabotage(lake.table).change_summary(NAME, lambda said: lie)
    assert {each.kind for each in found(lake.table)} == {"ledger"}


@pytest.mark.parametrize("name", [NAME, "calving.spark-write.one"])
def test_a_property_that_its_snapshot_contradicts_is_found(lake: Lake, name: str) -> None:
    first = lake.table.metadata.snapshots[0].snapshot_id

    def lie(raw: Record) -> None:
        raw["properties"][name] = json.dumps({**json.loads(raw["properties"][name]), "snapshot": f"{first}:1"})

    Sabotage(lake.table).change_metadata(lie)
    assert {each.kind for each in found(lake.table)} == {"ledger"}
