"""Searches data files for keys: in this process, or in tasks if very many rows have to be read (L5)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain

import pyarrow as pa
from pyiceberg.table import Table

from calving.deadline import beside
from calving.mutations.cache import KeyCache
from calving.mutations.candidates import Candidate
from calving.mutations.columns import Reading
from calving.mutations.keys import Keys, Matches
from calving.mutations.lookup import File, Lookup, Tasks, look, matches
from calving.mutations.sorting import in_order, is_searchable, pays

log = logging.getLogger(__name__)

_TOGETHER = 4
"""Files that are searched at the same time."""
_ROWS_OF_A_TASK = 1_000_000
_ORDERED_AT_ONCE = 2_000_000
"""Rows whose keys one commit brings into their order: it takes longer for that, and the later ones less."""

Wanted = tuple[Candidate, Keys]
"""A file, and the keys that it may contain."""


@dataclass(frozen=True, slots=True)
class Looking:
    """For the keys of which files, and how it is read. ``ids``: how many of the columns identify a row."""

    table: Table
    reading: Reading
    ids: int
    key_files: tuple[File, ...]


class Lookups:
    """The searches of one table. ``tasks`` is called on demand; None if tasks would run in this process."""

    rows_here = 5_000_000
    """So many rows that the cache does not hold, or a file more, are read in this process for one commit, and then
    the cache holds them.
    """

    def __init__(self, cache: KeyCache | None, tasks: Callable[[], Tasks | None] = lambda: None) -> None:
        self._cache, self._tasks = cache, tasks
        self._to_order = 0
        """Rows whose keys this commit may still sort."""

    def begin(self) -> None:
        """Start a commit: reset its limits."""
        self._to_order = _ORDERED_AT_ONCE

    def look(self, looking: Looking, wanted: Sequence[Wanted]) -> tuple[list[Matches], int]:
        """The matches in each file, and the number of files that were answered from the cache."""
        here, away, tasks = self._divided(looking.reading, wanted)
        elsewhere = None
        if tasks is not None:
            elsewhere = beside("calving-lookup", partial(self._as_tasks, tasks, looking, away))
        with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="calving-locate") as pool:
            found = self._all_here(pool, looking, here)
            if elsewhere is not None:
                try:
                    found += [(each, False) for each in elsewhere.result()]
                except Exception as error:  # an engine may raise anything
                    name = ".".join(looking.table.name())
                    log.warning(
                        "table %s: the search for keys continues without tasks, because they failed: %s", name, error
                    )
                    found += self._all_here(pool, looking, away)
        by_path = {file.path: each for (file, _), (each, _) in zip((*here, *away), found, strict=True)}
        return [by_path[file.path] for file, _ in wanted], sum(was_held for _, was_held in found)

    def _divided(
        self, reading: Reading, wanted: Sequence[Wanted]
    ) -> tuple[Sequence[Wanted], Sequence[Wanted], Tasks | None]:
        """The files to search in this process, those to search in tasks, and the tasks; None if there are none."""
        cold = {file.path: file.records for file, _ in wanted if not self._holds(reading, file)}
        if sum(cold.values()) <= self.rows_here or (tasks := self._tasks()) is None:
            return wanted, (), None
        here, away, left = [], [], self.rows_here
        for each in wanted:
            records = cold.get(each[0].path, 0)
            if records and left <= 0:
                away.append(each)
            else:
                left -= records
                here.append(each)
        return here, away, tasks

    def _holds(self, reading: Reading, file: Candidate) -> bool:
        return self._cache is not None and self._cache.holds(file.path, reading.columns)

    def _as_tasks(self, tasks: Tasks, looking: Looking, wanted: Sequence[Wanted]) -> list[Matches]:
        """:raises Exception: what an engine raises."""
        table, mapping = looking.table, looking.table.name_mapping()
        properties = {name: str(v) for name, v in table.io.properties.items() if isinstance(v, str | int)}
        lists = list(_lists(wanted, max(_ROWS_OF_A_TASK, sum(f.records for f, _ in wanted) // max(1, tasks.slots))))
        payloads = [
            Lookup(
                properties,
                table.metadata.location,
                looking.reading.columns,
                looking.ids,
                looking.key_files,
                tuple((file.path, file.file_format) for file, _ in found),
                mapping,
            ).to_json()
            for found in lists
        ]
        answers = tasks.map(look, payloads)
        return [
            each
            for answer, found in zip(answers, lists, strict=True)
            for each in matches(answer, [keys for _, keys in found])
        ]

    def _all_here(
        self, pool: ThreadPoolExecutor, looking: Looking, wanted: Sequence[Wanted]
    ) -> list[tuple[Matches, bool]]:
        groups = pool.map(lambda group: self._together(looking, group), list(_with_same_keys(wanted)))
        return list(chain.from_iterable(groups))

    def _together(self, looking: Looking, group: Sequence[Wanted]) -> list[tuple[Matches, bool]]:
        """Files that are searched for the same keys, which are more than their rows."""
        if len(group) == 1:
            return [self._here(looking, *group[0])]
        opened = [self._batches(looking, file) for file, _ in group]
        found = group[0][1].found_in_each([batches for batches, _ in opened])
        return [(each, was_held) for each, (_, was_held) in zip(found, opened, strict=True)]

    def _here(self, looking: Looking, file: Candidate, keys: Keys) -> tuple[Matches, bool]:
        reading = looking.reading
        is_one = len(reading.columns) == 1 and is_searchable(keys.columns[0])
        ordered = self._ordered(looking, file) if is_one and pays(len(keys), file.records) else None
        if ordered is not None:
            return keys.searched(ordered), True
        batches, was_held = self._batches(looking, file)
        return keys.found_in(batches), was_held

    def _batches(self, looking: Looking, file: Candidate) -> tuple[Iterator[pa.RecordBatch], bool]:
        """The key columns of a file, and whether they came from the cache."""
        reading = looking.reading

        def read() -> Iterator[pa.RecordBatch]:
            return reading.batches(file.path, file.file_format)

        if self._cache is None:
            return read(), False
        return self._cache.batches(file.path, reading.columns, read, ".".join(looking.table.name()))

    def _ordered(self, looking: Looking, file: Candidate) -> pa.RecordBatch | None:
        """The sorted keys of a file, if sorting pays off: the file was searched before."""
        if self._cache is None:
            return None
        name, columns = f"{file.path} in order", looking.reading.columns
        if not self._cache.holds(name, columns):
            if self._to_order < file.records or not self._cache.has_room_beside(file.path, columns):
                return None
            self._to_order -= file.records
        held, _ = self._batches(looking, file)
        owner = ".".join(looking.table.name())
        batches, _ = self._cache.batches(name, columns, lambda: in_order(held), owner)
        (found,) = batches
        return found


def _with_same_keys(wanted: Sequence[Wanted]) -> Iterator[list[Wanted]]:
    """Neighbours with the same keys, at most as many rows as keys at a time; else one by one."""
    found: list[Wanted] = []
    for file, keys in wanted:
        if found and (keys is not found[0][1] or sum(f.records for f, _ in found) + file.records > len(keys)):
            yield found
            found = []
        found.append((file, keys))
    if found:
        yield found


def _lists(wanted: Sequence[Wanted], rows: int) -> Iterator[list[Wanted]]:
    """The files in groups of about ``rows`` rows."""
    found: list[Wanted] = []
    for each in wanted:
        found.append(each)
        if sum(file.records for file, _ in found) >= rows:
            yield found
            found = []
    if found:
        yield found
