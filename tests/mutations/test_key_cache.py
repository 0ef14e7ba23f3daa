"""The key cache: what it holds, what it lets go, and what it leaves behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyiceberg.types import LongType

from calving.mutations.cache import KeyCache
from calving.mutations.columns import Column

ID = (Column(1, LongType()),)
ROWS = 1_000


def rows(start: int) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_arrays([pa.array(range(start, start + ROWS), pa.int64())], ["1"])


def read(cache: KeyCache, name: str, start: int = 0) -> tuple[list[int], bool]:
    batches, was_held = cache.batches(name, ID, lambda: rows(start))
    return [value for batch in batches for value in batch.column(0).to_pylist()], was_held


def test_a_file_is_read_once(tmp_path: Path) -> None:
    cache = KeyCache(1_000_000, tmp_path)
    assert read(cache, "a", 5) == (list(range(5, 5 + ROWS)), False)
    assert read(cache, "a", 7) == (list(range(5, 5 + ROWS)), True)


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = KeyCache(20_000, tmp_path)
    for name in ("a", "b", "a", "c"):
        read(cache, name)
    assert cache.bytes <= 20_000
    assert [read(cache, name)[1] for name in ("a", "c", "b")] == [True, True, False]


def test_a_file_that_is_larger_than_the_cache_is_not_held(tmp_path: Path) -> None:
    cache = KeyCache(100, tmp_path)
    assert [read(cache, "a")[1] for _ in range(2)] == [False, False]
    assert cache.bytes == 0


def test_what_is_read_half_is_not_held(tmp_path: Path) -> None:
    cache = KeyCache(1_000_000, tmp_path)
    batches, _ = cache.batches("a", ID, lambda: rows(0))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert not read(cache, "a")[1]


def test_a_file_that_somebody_has_deleted_is_read_again(tmp_path: Path) -> None:
    cache = KeyCache(1_000_000, tmp_path)
    read(cache, "a")
    for path in tmp_path.glob("*/*"):
        path.unlink()
    assert read(cache, "a") == (list(range(ROWS)), False)


def test_another_type_of_a_column_is_another_entry(tmp_path: Path) -> None:
    from pyiceberg.types import StringType

    cache = KeyCache(1_000_000, tmp_path)
    read(cache, "a")
    _, was_held = cache.batches("a", (Column(1, StringType()),), lambda: rows(0))
    assert not was_held


def test_a_process_that_was_killed_leaves_nothing_for_long(tmp_path: Path) -> None:
    left = tmp_path / f"calving-keys-{os.getuid()}-4194999-x"
    left.mkdir()
    mine = KeyCache(100, tmp_path)
    assert not left.exists()
    assert len(list(tmp_path.iterdir())) == 1
    del mine
    assert list(tmp_path.iterdir()) == []
