"""Runs: the keys of several files, sorted together. The cost of a search grows with the number of runs, not of files,
so a table may have many small files (L6).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from calving.mutations.cache import KeyCache
from calving.mutations.candidates import Candidate
from calving.mutations.columns import Column
from calving.mutations.keys import KEY, ROW, ChangedKeys, Matches, pays

_TOGETHER = 4
"""The least number of files or runs of about the same size that are merged into one run. So a row is sorted again only
when its run grows by about this factor.
"""
_MOST_ROWS = 1_000_000
"""The most rows of a run. They are held in memory while they are sorted."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The files whose keys the run holds. Their rows are numbered from the first file through the last."""

    name: str
    files: tuple[str, ...]
    starts: tuple[int, ...]
    """The number of each file's first row."""
    rows: int

    @property
    def is_merged(self) -> bool:
        """Whether the run's keys are sorted. False for a file that is in no run yet."""
        return self.files != (self.name,)

    def by_file(self, found: Matches) -> Mapping[str, Matches]:
        """The matches in each file that has any, with the row numbers of that file."""
        order = pc.sort_indices(found.rows)
        rows, keys = found.rows.take(order), found.keys.take(order)
        numbers, divided, first = rows.to_pylist(), {}, 0
        while first < len(numbers):
            file = bisect_right(self.starts, numbers[first]) - 1
            after = self.starts[file + 1] if file + 1 < len(self.starts) else self.rows
            end = bisect_right(numbers, after - 1, first)
            own = pc.subtract(rows.slice(first, end - first), self.starts[file])
            divided[self.files[file]] = Matches(own, keys.slice(first, end - first), pa.nulls(end - first))
            first = end
        return divided


class Runs:
    """The runs of one table, whose keys have one column. The cache alone holds their keys."""

    def __init__(self, cache: KeyCache, column: Column, owner: str) -> None:
        """``owner``: the table's name."""
        self._cache, self._columns, self._owner = cache, (column,), owner
        self._of: dict[str, Run] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._of

    def keep(self, live: Collection[str]) -> None:
        """Give up runs that have lost at least half of their files."""
        for run in set(self._of.values()):
            if 2 * sum(path in live for path in run.files) <= len(run.files):
                self._give_up(run)

    def grow(self, files: Iterable[Candidate], most: int) -> int:
        """Merge cached files and runs of about the same size, at most ``most`` rows. Returns how many rows were sorted.

        The files are searched for the same keys.
        """
        sizes: defaultdict[int, dict[str, Run]] = defaultdict(dict)
        for file in files:
            unit = self._of.get(file.path) or Run(file.path, (file.path,), (0,), file.records)
            if unit.is_merged or (file.step is None and self._cache.holds(file.path, self._columns)):
                sizes[unit.rows.bit_length() // 2][unit.name] = unit
        left = most
        for units in sizes.values():
            fitting = _fitting(units.values(), min(left, _MOST_ROWS))
            if len(fitting) >= _TOGETHER and self._cache.has_room_for([unit.name for unit in fitting], self._columns):
                left -= self._merge(fitting)
        return most - left

    def divided(self, files: Iterable[Candidate]) -> dict[Run, list[Candidate]]:
        """The files that are in runs, by run."""
        by_run: defaultdict[Run, list[Candidate]] = defaultdict(list)
        for file in files:
            if (run := self._of.get(file.path)) is not None:
                by_run[run].append(file)
        return by_run

    def search(self, run: Run, keys: ChangedKeys) -> Mapping[str, Matches] | None:
        """The matches in each file of the run that has any; None if the cache no longer holds the run.

        ``keys`` must not contain null.
        """
        held = self._cache.get(run.name, self._columns)
        if held is None:
            self._give_up(run)
            return None
        (batch,) = held
        if pays(len(keys), run.rows):
            return run.by_file(keys.searched(batch))
        matched = keys.found_in([batch.select([KEY])])
        return run.by_file(Matches(batch.column(ROW).take(matched.rows), matched.keys, matched.orders))

    def _give_up(self, run: Run) -> None:
        self._cache.drop(run.name, self._columns)
        for path in run.files:
            self._of.pop(path, None)

    def _merge(self, units: Sequence[Run]) -> int:
        """Merge the units into one run. Returns how many rows were sorted; 0 if the cache has lost one of the units."""
        held = [self._cache.get(unit.name, self._columns) for unit in units]
        starts = [0, *accumulate(unit.rows for unit in units)]
        parts = [_rows(unit, batches) for unit, batches in zip(units, held, strict=True) if batches is not None]
        if len(parts) < len(units):
            return 0
        keys = pa.concat_arrays([found_keys for found_keys, _ in parts])
        rows = pa.concat_arrays([pc.add(found_keys, at) for (_, found_keys), at in zip(parts, starts, strict=False)])
        order = pc.sort_indices(keys)
        batch = pa.RecordBatch.from_arrays([keys.take(order), rows.take(order)], [KEY, ROW])
        files = tuple(path for unit in units for path in unit.files)
        firsts = tuple(at + start for unit, at in zip(units, starts, strict=False) for start in unit.starts)
        run = Run(f"run {hashlib.sha256(repr(files).encode()).hexdigest()}", files, firsts, starts[-1])
        list(self._cache.batches(run.name, self._columns, lambda: iter([batch]), self._owner)[0])
        if not self._cache.holds(run.name, self._columns):  # the disk is full, say
            return run.rows
        for unit in units:
            self._cache.drop(unit.name, self._columns)
        self._of |= dict.fromkeys(files, run)
        return run.rows


def _rows(unit: Run, held: Sequence[pa.RecordBatch]) -> tuple[pa.Array, pa.Array]:
    """The keys of a file or a run, and the row number of each key."""
    if unit.is_merged:
        (batch,) = held
        return batch.column(KEY), batch.column(ROW)
    keys = pa.Table.from_batches(held).column(0).combine_chunks()
    rows = pa.arange(0, len(keys))
    if keys.null_count:
        rows = rows.filter(keys.is_valid())
        keys = keys.drop_null()
    return keys, rows


def _fitting(units: Iterable[Run], most: int) -> list[Run]:
    """The smallest units, as many as have at most ``most`` rows together."""
    by_size = sorted(units, key=lambda unit: unit.rows)
    rows = accumulate(unit.rows for unit in by_size)
    return [unit for unit, count in zip(by_size, rows, strict=True) if count <= most]
