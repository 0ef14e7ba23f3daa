"""When rows leave the task that has read them for the one that writes them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from calving.model.tables import RowMutations, TableSpec
from calving.records.fields import arrow_schema
from calving.tasks import shuffle
from calving.tasks.shuffle import ShuffleBlock, ShuffleWriter, unpack
from calving.writing.changes import UPDATE, change_schema, marked

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
CHANGES = change_schema(arrow_schema(SCHEMA))


def writer(mutations: RowMutations | None) -> ShuffleWriter:
    kinds = SCHEMA.model_dump_json(), PartitionSpec().model_dump_json()
    return ShuffleWriter(TableSpec("db.t", *kinds, "file:///nowhere", {}, {}, id_columns=("id",), mutations=mutations))


def changes(start: int, count: int) -> pa.RecordBatch:
    rows = pa.RecordBatch.from_arrays(
        [pa.array(range(start, start + count), pa.int64()), pa.array(["v"] * count)], schema=arrow_schema(SCHEMA)
    )
    return marked(rows, CHANGES, pa.array([UPDATE] * count, pa.int8()), 0, rows.column(0), pa.nulls(count, pa.string()))


def ids(sent: ShuffleBlock | shuffle.Sample) -> list[int]:
    assert isinstance(sent, ShuffleBlock)
    return [number for rows in unpack(sent.rows) for number in rows.column("id").to_pylist()]


def test_changes_wait_until_there_are_many_and_then_those_of_all_buckets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox, some = writer(RowMutations(upsert=True)), changes(0, 100)
    monkeypatch.setattr(shuffle, "_CHANGES_BYTES", 3 * some.nbytes)
    for number in range(2):
        outbox.write(changes(100 * number, 100))
        assert outbox.take() == []
    outbox.write(changes(200, 100))
    sent = outbox.take()
    assert sorted(number for block in sent for number in ids(block)) == list(range(300))
    assert len(sent) > 32
    assert outbox.waiting == 0


def test_changes_of_one_key_go_to_one_place_in_their_order() -> None:
    outbox = writer(RowMutations(upsert=True))
    for _ in range(3):
        outbox.write(changes(0, 50))
        outbox.finish()
    places: dict[int, set[str]] = {}
    for block in outbox.take():
        assert isinstance(block, ShuffleBlock)
        for number in ids(block):
            places.setdefault(number, set()).add(block.partition)
    assert len(places) == 50
    assert all(len(found) == 1 for found in places.values())


def test_rows_that_are_appended_go_as_soon_as_their_partition_has_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "_BLOCK_BYTES", 1000)
    outbox = writer(None)
    rows = pa.RecordBatch.from_arrays(
        [pa.array(range(40), pa.int64()), pa.array(["v"] * 40)], schema=arrow_schema(SCHEMA)
    )
    outbox.write(rows)
    assert outbox.take() == []
    outbox.write(rows)
    (sent,) = outbox.take()
    assert ids(sent) == [*range(40), *range(40)]
