"""Which files the bounds of a column exclude (L2)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.types import StringType, TimestampNanoType, TimestampType

from calving.mutations.candidates import Candidate, Pruning
from calving.mutations.columns import Column
from calving.mutations.keys import ChangedKeys

TEXT = Column(1, StringType())
CUT = "aaé".encode()[:3]


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (b"b", b"d", True),
        (b"d", b"e", False),
        (b"a", b"b", False),
        (CUT, b"d", True),
        (CUT, b"b", False),
        (b"b", CUT, True),
        (b"d", CUT, False),
        (CUT, CUT, True),
    ],
)
@pytest.mark.parametrize("few", [100_000, 0])
def test_a_bound_that_ends_within_a_character_is_not_known(
    lower: bytes, upper: bytes, expected: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calving.mutations.candidates._FEW", few)
    keys = ChangedKeys([TEXT], [[pa.RecordBatch.from_arrays([pa.array(["c", "cc"])], ["1"])]])
    file = Candidate("f", "parquet", 9, 99, 0, (), {1: lower}, {1: upper})
    assert (Pruning(keys, [TEXT], {0: UNPARTITIONED_PARTITION_SPEC}).keys_of(file) is not None) == expected


@pytest.mark.parametrize(
    ("kind", "per_day"), [(TimestampType(), 86_400 * 10**6), (TimestampNanoType(), 86_400 * 10**9)]
)
def test_a_column_that_was_a_date_when_a_file_was_written_is_found_in_it(
    kind: TimestampType | TimestampNanoType, per_day: int
) -> None:
    column, day = Column(1, kind), (19_000).to_bytes(4, "little")
    dates = pa.array([19_000], pa.int32()).cast(pa.date32())
    assert column.plain(dates).to_pylist() == [19_000 * per_day]
    keys = ChangedKeys([column], [[pa.RecordBatch.from_arrays([column.plain(dates)], ["1"])]])
    file = Candidate("f", "parquet", 9, 99, 0, (), {1: day}, {1: day})
    assert Pruning(keys, [column], {0: UNPARTITIONED_PARTITION_SPEC}).keys_of(file) is not None
