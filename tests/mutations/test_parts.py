"""Keys that do not fit into memory are taken a part after the other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import LongType

from calving.mutations import columns
from calving.mutations.columns import Column, ColumnReader, File
from calving.mutations.keys import parts


def key_file(path: Path, keys: range) -> File:
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table([list(keys)], schema), path)
    return str(path), "PARQUET"


def test_a_part_has_about_as_many_keys_as_may_be_held_and_the_files_that_they_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_BATCH_ROWS", 4)
    large, small, later = (
        key_file(tmp_path / f"{n}", keys) for n, keys in enumerate((range(10), range(20, 23), range(5)))
    )
    reading = ColumnReader(PyArrowFileIO(), (Column(1, LongType()),))
    found = list(parts(reading, 1, [[large, small], [], [later]], at_once=7))
    assert [part.files for part in found] == [(large,), (large, small, later), (later,)]
    assert [sorted(part.keys.columns[0].to_pylist()) for part in found] == [
        [*range(8)],
        [0, 1, 2, 3, 8, 9, 20, 21, 22],
        [4],
    ]
    assert [part.keys.last_steps.unique().sort().to_pylist() for part in found] == [[0], [0, 2], [2]]


def test_large_keys_come_in_smaller_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's arrays of text hold 2 GiB."""
    monkeypatch.setattr(columns, "_BATCH_ROWS", 4)
    monkeypatch.setattr("calving.mutations.keys._BYTES_AT_ONCE", 60)
    reading = ColumnReader(PyArrowFileIO(), (Column(1, LongType()),))
    found = list(parts(reading, 1, [[key_file(tmp_path / "keys", range(20))]]))
    assert [len(part.keys) for part in found] == [8, 8, 4]
