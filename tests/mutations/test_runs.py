"""Runs: many small files are searched as one, and give what each of them gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

from calving.mutations.cache import KeyCache
from calving.mutations.candidates import Candidate
from calving.mutations.columns import Column
from calving.mutations.keys import ChangedKeys
from calving.mutations.runs import Runs

NUMBERS, TEXTS = Column(1, LongType()), Column(1, StringType())
ALL = 1_000_000


class Small:
    """A table of small files whose keys are cached."""

    def __init__(self, folder: Path, column: Column = NUMBERS, max_bytes: int = 10_000_000) -> None:
        self.column, self.cache = column, KeyCache(max_bytes, folder)
        self.runs = Runs(self.cache, column, "db.t")
        self.rows: dict[str, pa.RecordBatch] = {}
        self.files: list[Candidate] = []

    def add(self, values: list[int | None], *, is_cached: bool = True, step: int | None = None) -> None:
        path = f"file {len(self.files)}"
        shown = values if self.column is NUMBERS else [None if v is None else f"key {v}" for v in values]
        self.rows[path] = pa.RecordBatch.from_arrays([pa.array(shown, self.column.arrow)], ["1"])
        self.files.append(Candidate(path, "parquet", len(values), 1, 0, (), step=step))
        if is_cached:
            list(self.cache.batches(path, [self.column], lambda: iter([self.rows[path]]))[0])

    def grow(self, most: int = ALL) -> int:
        return self.runs.grow(self.files, most)

    @property
    def in_runs(self) -> list[int]:
        """How many files each run has."""
        return [len(files) for files in self.runs.divided(self.files).values()]

    def keys(self, values: list[int]) -> ChangedKeys:
        shown = pa.array(values if self.column is NUMBERS else [f"key {v}" for v in values], self.column.arrow)
        return ChangedKeys([self.column], [[pa.RecordBatch.from_arrays([shown], ["1"])]])

    def found(self, keys: ChangedKeys) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """Rows and keys by file, as runs have them."""
        for run in self.runs.divided(self.files):
            for path, matches in (self.runs.search(run, keys) or {}).items():
                yield path, list(zip(matches.rows.to_pylist(), matches.keys.to_pylist(), strict=True))

    def compared(self, keys: ChangedKeys) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """The same, as a comparison of each file's rows has them."""
        for path, batch in self.rows.items():
            matches = keys.found_in([batch])
            if len(matches.rows):
                yield path, list(zip(matches.rows.to_pylist(), matches.keys.to_pylist(), strict=True))


@pytest.fixture
def small(tmp_path: Path) -> Small:
    return Small(tmp_path)


@pytest.mark.parametrize("column", [NUMBERS, TEXTS], ids=["numbers", "texts"])
@pytest.mark.parametrize("keys", [2, 60], ids=["few keys", "many keys"])
def test_a_run_gives_what_its_files_give(tmp_path: Path, column: Column, keys: int) -> None:
    small, chance = Small(tmp_path, column), random.Random(3)
    for _ in range(70):
        small.add([chance.choice([None, *range(200)]) for _ in range(chance.randrange(8, 12))])
        small.grow()
    assert sum(small.in_runs) > 60
    wanted = small.keys(chance.sample(range(220), keys))
    in_runs = {file.path for files in small.runs.divided(small.files).values() for file in files}
    compared = {path: sorted(found) for path, found in small.compared(wanted) if path in in_runs}
    assert {path: sorted(found) for path, found in small.found(wanted)} == compared


def test_four_files_of_about_the_same_size_become_a_run(small: Small) -> None:
    for number in range(4):
        assert not small.in_runs
        small.add([number] * (8 + number % 4))
        small.grow()
    assert small.in_runs == [4]


def test_files_of_other_sizes_become_none(small: Small) -> None:
    for number in range(4):
        small.add([number] * 10 * 4**number)
        assert small.grow() == 0


def test_runs_become_runs(small: Small) -> None:
    for number in range(16):
        small.add([number] * 10)
        small.grow()
    small.grow()
    assert small.in_runs == [16]


def test_a_large_file_is_in_no_run(small: Small) -> None:
    for number in range(4):
        small.add(list(range(number, number + 300_000)))
    assert small.grow() == 0


def test_a_file_that_is_not_cached_is_in_no_run(small: Small) -> None:
    for number in range(16):
        small.add([number] * 10, is_cached=number % 2 == 0)
    small.grow()
    assert [file.path in small.runs for file in small.files] == [True, False] * 8


def test_a_file_of_the_commit_itself_which_may_fail_is_in_no_run(small: Small) -> None:
    for number in range(8):
        small.add([number] * 10, step=0)
    assert small.grow() == 0


def test_no_more_rows_are_sorted_than_are_allowed(small: Small) -> None:
    for number in range(16):
        small.add([number] * 10)
    assert small.grow(most=39) == 0
    assert small.grow(most=100) == 100
    assert small.in_runs == [10]


def test_a_run_takes_the_place_of_its_files_in_the_cache(small: Small) -> None:
    for number in range(8):
        small.add([number] * 10)
    small.grow()
    assert not any(small.cache.holds(file.path, [NUMBERS]) for file in small.files)


def test_no_run_is_made_where_the_cache_has_no_room_for_it(tmp_path: Path) -> None:
    small = Small(tmp_path, max_bytes=7_000)
    for number in range(8):
        small.add([number] * 10)
    assert all(small.cache.holds(file.path, [NUMBERS]) for file in small.files)
    assert small.grow() == 0


def test_a_run_whose_files_are_mostly_gone_is_given_up(small: Small) -> None:
    for number in range(8):
        small.add([number] * 10)
    small.grow()
    small.runs.keep([file.path for file in small.files[:5]])
    assert small.in_runs == [8]
    small.runs.keep([file.path for file in small.files[:4]])
    assert not small.in_runs and small.cache.bytes == 0


def test_a_run_that_the_cache_has_lost_is_searched_no_more(small: Small, tmp_path: Path) -> None:
    for number in range(8):
        small.add([number] * 10)
    small.grow()
    for path in tmp_path.glob("*/*"):
        path.unlink()
    (run,) = small.runs.divided(small.files)
    assert small.runs.search(run, small.keys([1])) is None
    assert not small.in_runs


def test_files_stay_cached_where_the_disk_is_too_full_for_their_run(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for number in range(8):
        small.add([number] * 10)
    with monkeypatch.context() as patch:
        patch.setattr("calving.mutations.cache.pa.ipc.new_stream", full)
        assert small.grow() == 80
    assert not small.in_runs
    assert all(small.cache.holds(file.path, [NUMBERS]) for file in small.files)


def test_keys_that_are_too_large_together_are_in_no_run(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's arrays of text hold 2 GiB."""
    for number in range(8):
        small.add([number] * 10)
    with monkeypatch.context() as patch:
        patch.setattr("calving.mutations.cache._SORTED_AT_ONCE", small.cache.bytes - 1)
        assert small.grow() == 0
    assert small.grow() == 80
