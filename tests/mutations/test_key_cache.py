"""The key cache: what it holds, what it lets go, and what it leaves behind."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
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


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("what", ["calving.mutations.cache.pa.ipc.new_stream", "calving.mutations.cache.Path.rename"])
def test_a_full_disk_ends_only_the_caching_and_the_log_says_so_once(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = KeyCache(1_000_000, tmp_path)
    read(cache, "a")
    with monkeypatch.context() as patch:
        patch.setattr(what, full)
        for name in ("b", "b", "c"):
            assert read(cache, name) == (list(range(ROWS)), False)
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING] == [
        "files of the table are read again and again, because the key cache fails: [Errno 28] No space left on device"
    ]
    assert [read(cache, name)[1] for name in ("a", "b", "b")] == [True, False, True]
    assert len(list(tmp_path.glob("*/*"))) == 2


def test_the_disk_may_become_full_within_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, path: Path, *_: object) -> None:
            path.touch()

        def write_batch(self, batch: pa.RecordBatch) -> None:
            if batch.column(0)[0].as_py():
                full()

        def close(self) -> None:
            full()

    monkeypatch.setattr("calving.mutations.cache.pa.ipc.new_stream", Full)
    cache = KeyCache(1_000_000, tmp_path)
    batches, _ = cache.batches("a", ID, lambda: (batch for start in (0, 1, 0) for batch in rows(start)))
    assert [batch.column(0)[0].as_py() for batch in batches] == [0, 1, 0]
    assert not cache.holds("a", ID)
    assert list(tmp_path.glob("*/*")) == []


def test_an_error_of_the_table_is_no_error_of_the_cache(tmp_path: Path) -> None:
    def gone() -> Iterator[pa.RecordBatch]:
        yield from rows(0)
        raise FileNotFoundError("s3://b/a.parquet")

    batches, _ = KeyCache(1_000_000, tmp_path).batches("a", ID, gone)
    with pytest.raises(FileNotFoundError, match="s3://b"):
        list(batches)


def test_a_folder_that_somebody_has_deleted_is_made_again(tmp_path: Path) -> None:
    cache = KeyCache(1_000_000, tmp_path)
    for name in ("a", "b"):
        read(cache, name)
    (folder,) = tmp_path.iterdir()
    shutil.rmtree(folder)
    assert [read(cache, name)[1] for name in ("a", "a")] == [False, True]
    assert cache.bytes == sum(path.stat().st_size for path in tmp_path.glob("*/*"))
    del cache
    assert list(tmp_path.iterdir()) == []


def test_a_cache_whose_folder_cannot_be_made_holds_nothing(tmp_path: Path) -> None:
    cache = KeyCache(1_000_000, tmp_path / "no")
    assert [read(cache, "a") for _ in range(2)] == [(list(range(ROWS)), False)] * 2
    (tmp_path / "no").mkdir()
    assert [read(cache, "a")[1] for _ in range(2)] == [False, True]


def test_a_folder_that_is_locked_belongs_to_a_process_whatever_its_id(tmp_path: Path) -> None:
    """A process in another container has an id that is not known here."""
    other = tmp_path / f"calving-keys-{os.getuid()}-4194999-x"
    other.mkdir()
    lock = os.open(other, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    KeyCache(100, tmp_path)
    assert other.exists()
    os.close(lock)
    KeyCache(100, tmp_path)
    assert not other.exists()


def test_a_process_that_was_killed_leaves_nothing_for_long(tmp_path: Path) -> None:
    left = tmp_path / f"calving-keys-{os.getuid()}-4194999-x"
    left.mkdir()
    mine = KeyCache(100, tmp_path)
    assert not left.exists()
    assert len(list(tmp_path.iterdir())) == 1
    del mine
    assert list(tmp_path.iterdir()) == []
