"""Rows cut by ranges of a sort order: all of them once, in ranges that do not overlap, of about equal size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from calving.model.record_path import RecordPath, Routing
from calving.model.tables import TableSpec
from calving.tasks.shuffle import (
    RangeSplitter,
    Sample,
    ShuffleBlock,
    ShuffleWriter,
    TablePartition,
    range_bounds,
    unpack,
)
from calving.tasks.spec import TaskSpec
from calving.writing.layout import sorting

SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "name", StringType()), NestedField(3, "price", DoubleType())
)
ROWS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
BY_ID = SortOrder(SortField(1, transform=IdentityTransform()))
BY_NAME = SortOrder(
    SortField(2, transform=TruncateTransform(2), direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST),
    SortField(3, transform=IdentityTransform(), direction=SortDirection.ASC, null_order=NullOrder.NULLS_FIRST),
)
NO_PARTITIONS = PartitionSpec()
BY_PRICE = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "price"))


def task(order: SortOrder, spec: PartitionSpec, **properties: str) -> TaskSpec:
    table = TableSpec(
        "db.t",
        SCHEMA.model_dump_json(),
        spec.model_dump_json(),
        "file:///nowhere",
        properties,
        {},
        order.model_dump_json(),
        "range",
    )
    return TaskSpec(0, (), RecordPath({}, Routing()), {"db.t": table}, {}, shuffle=True)


def sent(
    spec: TaskSpec, senders: Sequence[Sequence[tuple[int | None, str | None, float | None]]]
) -> list[ShuffleBlock | Sample]:
    """The samples that these tasks send of their rows."""
    table = spec.tables["db.t"]
    found: list[ShuffleBlock | Sample] = []
    for rows in senders:
        outbox = ShuffleWriter(table, ranges=True)
        for i in range(0, len(rows), 100):
            outbox.write(
                pa.RecordBatch.from_pylist([dict(zip(ROWS.names, r, strict=True)) for r in rows[i : i + 100]], ROWS)
            )
        outbox.finish()
        found += outbox.take()
    return found


def received(
    spec: TaskSpec, found: Sequence[ShuffleBlock | Sample], slots: int
) -> tuple[dict[TablePartition, pa.Table], dict[TablePartition, int]]:
    """The rows of every range, and who gets it."""
    how = range_bounds(spec, [each for each in found if isinstance(each, Sample)], slots)
    splitter = RangeSplitter(spec, how)
    rows: dict[TablePartition, list[pa.RecordBatch]] = {}
    for block in (each for each in found if isinstance(each, ShuffleBlock)):
        for part in splitter.split(block):
            rows.setdefault((part.table, part.partition), []).extend(unpack(part.rows))
    return {place: pa.Table.from_batches(batches) for place, batches in sorted(rows.items())}, dict(how.receivers)


def test_ranges_of_a_batch_are_about_equal_and_do_not_overlap() -> None:
    spec = task(BY_ID, NO_PARTITIONS)
    senders = [[(i * 3 + sender, "x", None) for i in range(1000)] for sender in range(3)]
    ranges, receivers = received(spec, sent(spec, senders), 4)
    ids = [table["id"].to_pylist() for table in ranges.values()]
    assert sorted(chain(*ids)) == list(range(3000))
    assert all(max(a) < min(b) for a, b in pairwise(ids))
    assert max(map(len, ids)) < 1.2 * min(map(len, ids))
    assert list(receivers.values()) == [0, 1, 2, 3]


def test_a_large_partition_is_cut_and_small_ones_are_not() -> None:
    spec = task(BY_ID, BY_PRICE)
    rows = [(i, "x", 0.0) for i in range(4000)] + [(i, "x", 1.0 + i % 4) for i in range(400)]
    ranges, receivers = received(spec, sent(spec, [rows]), 4)
    count = [sum(place[1].startswith(f"price={price}.0#") for place in ranges) for price in range(5)]
    assert count == [4, 1, 1, 1, 1]
    assert sorted(set(receivers.values())) == [0, 1, 2, 3]


def test_a_range_is_not_larger_than_a_file() -> None:
    spec = task(BY_ID, NO_PARTITIONS, **{"write.target-file-size-bytes": "4000"})
    ranges, receivers = received(spec, sent(spec, [[(i, "x" * 8, 1.0) for i in range(4000)]]), 2)
    assert all(table.nbytes < 1.3 * 4 * 4000 for table in ranges.values())
    assert sorted(set(receivers.values())) == [0, 1]


def test_rows_that_are_all_equal_stay_together() -> None:
    spec = task(BY_ID, NO_PARTITIONS)
    ranges, _ = received(spec, sent(spec, [[(7, "x", None)] * 500] * 2), 4)
    assert [table.num_rows for table in ranges.values()] == [1000]


values = st.tuples(
    st.none() | st.integers(-5, 5),
    st.none() | st.text("ab", max_size=3),
    st.none() | st.floats(allow_nan=True, width=16),
)


@pytest.mark.parametrize("order", [BY_ID, BY_NAME])
@given(senders=st.lists(st.lists(values, min_size=1, max_size=40), min_size=1, max_size=3), slots=st.integers(1, 5))
def test_whatever_the_rows_each_goes_to_one_range_and_ranges_follow_the_order(
    order: SortOrder, senders: list[list[tuple[int | None, str | None, float | None]]], slots: int
) -> None:
    spec = task(order, NO_PARTITIONS)
    ranges, _ = received(spec, sent(spec, senders), slots)
    by = sorting(spec.tables["db.t"])
    assert by is not None
    in_ranges = pa.concat_tables(
        [pa.Table.from_batches([by.sort(t.combine_chunks().to_batches()[0])]) for t in ranges.values()]
    )
    everything = pa.RecordBatch.from_pylist(
        [dict(zip(ROWS.names, row, strict=True)) for rows in senders for row in rows], ROWS
    )
    assert sorted(map(str, in_ranges.to_pylist())) == sorted(map(str, everything.to_pylist()))
    keys = by.keys(in_ranges.combine_chunks().to_batches()[0])
    assert str(keys.to_pylist()) == str(keys.take(by.indices(keys)).to_pylist())
