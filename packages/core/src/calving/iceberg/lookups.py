"""Searches data files for keys: in this process, or in tasks if very many rows have to be read (L5)."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from calving.iceberg.locations import carried
from calving.mutations.cache import KeyCache
from calving.mutations.candidates import Candidate, identities
from calving.mutations.columns import Column, ColumnReader, File
from calving.mutations.keys import NO_MATCHES, TOGETHER, ChangedKeys, Matches, in_order, is_searchable, pays
from calving.mutations.lookup import KeyLookup, Tasks, look, matches
from calving.mutations.runs import Run, Runs
from calving.threads import in_thread

log = logging.getLogger(__name__)

_TOGETHER = 4
"""Files that are searched at the same time."""
_ROWS_OF_A_TASK = 1_000_000
_ORDERED_AT_ONCE = 2_000_000
"""The most rows whose keys one commit sorts. Sorting makes this commit slower, and later commits faster."""

Wanted = tuple[Candidate, ChangedKeys]
"""A file, and the keys that it may contain."""
_Found = dict[str, tuple[Matches, bool]]


@dataclass(frozen=True)
class KeySearch:
    """One search for keys: its key files, and how columns are read. ``ids``: how many leading columns form the key."""

    table: Table
    reading: ColumnReader
    ids: int
    key_files: tuple[File, ...]

    def reading_of(self, file: Candidate) -> ColumnReader:
        """How a data file is read: a column that it lacks may have the value of its partition."""
        return self.reading.within(self.constants(file))

    def constants(self, file: Candidate) -> dict[int, Any]:
        """The read columns, by id, that have one value in the partition of a data file; and this value."""
        return {each: file.partition[place] for each, place in self._identities[file.spec_id].items()}

    @cached_property
    def _identities(self) -> Mapping[int, Mapping[int, int]]:
        """For each spec: the read columns that it has as they are, by id, and their places in a partition."""
        ids = {column.field_id for column in self.reading.columns}
        return {number: identities(spec, ids) for number, spec in self.table.metadata.specs().items()}


About = tuple[tuple[int, ...], int, str]
"""The id columns, the number of a part of the keys, and the path of a file."""


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """A part of the keys of these id columns."""

    ids: tuple[int, ...]
    number: int
    columns: tuple[Column, ...]
    keys: ChangedKeys
    search: KeySearch

    def about(self, file: Candidate) -> About:
        return self.ids, self.number, file.path


class Lookups:
    """The searches of one table. ``tasks`` is called on demand; it returns None if tasks would run in this process."""

    rows_here = 5_000_000
    """The rows that one commit reads in this process if the cache does not hold them; at most one file more. The cache
    then holds them.
    """

    def __init__(self, cache: KeyCache | None, tasks: Callable[[], Tasks | None] = lambda: None) -> None:
        self._cache, self._tasks = cache, tasks
        self._lock = threading.Lock()
        self._to_order = 0
        """The number of rows whose keys this commit may still sort."""
        self._runs: dict[Column, Runs] = {}

    def begin(self, live: Collection[str]) -> None:
        """Start a commit to a table with these data files: reset the commit's limits."""
        self._to_order = _ORDERED_AT_ONCE
        for runs in self._runs.values():
            runs.keep(live)

    def look(self, looking: KeySearch, wanted: Sequence[Wanted]) -> tuple[list[Matches], int]:
        """The matches in each file, and the number of files that were answered from the cache."""
        here, away, tasks = self._divided(looking, wanted)
        elsewhere = None
        if tasks is not None:
            elsewhere = in_thread("calving-lookup", partial(self._as_tasks, tasks, looking, away))
        with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="calving-locate") as pool:
            by_path = self._all_here(pool, looking, here)
            if elsewhere is not None:
                try:
                    by_path |= {
                        file.path: (each, False) for (file, _), each in zip(away, elsewhere.result(), strict=True)
                    }
                except Exception as error:  # an engine may raise anything
                    name = ".".join(looking.table.name())
                    log.warning(
                        "table %s: the search for keys continues without tasks, because they failed: %s", name, error
                    )
                    by_path |= self._all_here(pool, looking, away)
        return [by_path[file.path][0] for file, _ in wanted], sum(was_held for _, was_held in by_path.values())

    def learn(self, looking: KeySearch, files: Iterable[Candidate]) -> None:
        """Read the key columns of these files into the cache.

        :raises Exception: whatever the storage raises.
        """
        for file in files if self._cache is not None else ():
            batches, _ = self._batches(looking, file)
            for _ in batches:
                pass

    def _divided(
        self, looking: KeySearch, wanted: Sequence[Wanted]
    ) -> tuple[Sequence[Wanted], Sequence[Wanted], Tasks | None]:
        """The files to search in this process, the files to search in tasks, and the tasks; None if no tasks are
        used.
        """
        cold = {file.path: file.records for file, _ in wanted if not self._holds(looking, file)}
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

    def _holds(self, looking: KeySearch, file: Candidate) -> bool:
        if self._cache is None:
            return False
        runs = self._runs_of(looking)
        return (runs is not None and file.path in runs) or self._cache.holds(
            file.path, looking.reading_of(file).columns
        )

    def _runs_of(self, looking: KeySearch) -> Runs | None:
        """The runs for the read column; None if several columns are read, or if there is no cache."""
        if self._cache is None or len(looking.reading.columns) > 1:
            return None
        (column,) = looking.reading.columns
        if column not in self._runs:
            self._runs[column] = Runs(self._cache, column, ".".join(looking.table.name()))
        return self._runs[column]

    def _as_tasks(self, tasks: Tasks, looking: KeySearch, wanted: Sequence[Wanted]) -> list[Matches]:
        """Search these files in tasks.

        :raises Exception: whatever the engine raises.
        """
        table, mapping = looking.table, looking.table.name_mapping()
        lists = list(_lists(wanted, max(_ROWS_OF_A_TASK, sum(f.records for f, _ in wanted) // max(1, tasks.slots))))
        payloads = [
            KeyLookup(
                io=carried(table.io),
                location=table.metadata.location,
                columns=looking.reading.columns,
                ids=looking.ids,
                key_files=looking.key_files,
                files=tuple((file.path, file.file_format, looking.constants(file)) for file, _ in part),
                mapping=mapping,
            ).to_json()
            for part in lists
        ]
        answers = tasks.map(look, payloads)
        return [
            each
            for answer, part in zip(answers, lists, strict=True)
            for each in matches(answer, [keys for _, keys in part])
        ]

    def _all_here(self, pool: ThreadPoolExecutor, looking: KeySearch, wanted: Sequence[Wanted]) -> _Found:
        """The matches in each file, by path; and whether its keys were cached."""
        in_runs, alone = self._by_run(looking, wanted)
        others = pool.map(partial(self._together, looking), list(with_same_keys(alone)))
        by_path: _Found = {}
        for run, group in in_runs:  # too little work for a thread
            by_path |= self._in_run(looking, run, group)
        for each in others:
            by_path |= each
        return by_path

    def _by_run(
        self, looking: KeySearch, wanted: Iterable[Wanted]
    ) -> tuple[list[tuple[Run, list[Wanted]]], list[Wanted]]:
        """The files that are in runs, and the other files. Before, runs grow."""
        runs = self._runs_of(looking)
        in_runs: list[tuple[Run, list[Wanted]]] = []
        alone: list[Wanted] = []
        for group in _by_keys(wanted):
            keys = group[0][1]
            if runs is None or not is_searchable(keys.columns[0]):
                alone += group
                continue
            # A run holds files that are read in the same way, whatever their partition.
            files = [file for file, _ in group if not looking.constants(file)]
            self._to_order -= runs.grow(files, self._to_order)
            in_runs += ((run, [(file, keys) for file in own]) for run, own in runs.divided(files).items())
            alone += (each for each in group if each[0].path not in runs)
        return in_runs, alone

    def _in_run(self, looking: KeySearch, run: Run, group: Sequence[Wanted]) -> _Found:
        """The matches in files of one run. All files are searched for the same keys."""
        runs = self._runs_of(looking)
        by_path = runs.search(run, group[0][1]) if runs is not None else None
        if by_path is None:
            return self._together(looking, group)
        return {file.path: (by_path.get(file.path, NO_MATCHES), True) for file, _ in group}

    def _together(self, looking: KeySearch, group: Sequence[Wanted]) -> _Found:
        """The matches in files that are searched for the same keys."""
        if len(group) == 1:
            return {group[0][0].path: self._here(looking, *group[0])}
        opened = [self._batches(looking, file) for file, _ in group]
        per_file = group[0][1].found_in_each([batches for batches, _ in opened])
        return {
            file.path: (each, was_held) for (file, _), each, (_, was_held) in zip(group, per_file, opened, strict=True)
        }

    def _here(self, looking: KeySearch, file: Candidate, keys: ChangedKeys) -> tuple[Matches, bool]:
        reading = looking.reading
        is_one = len(reading.columns) == 1 and is_searchable(keys.columns[0])
        ordered = self._ordered(looking, file) if is_one and pays(len(keys), file.records) else None
        if ordered is not None:
            return keys.searched(ordered), True
        batches, was_held = self._batches(looking, file)
        return keys.found_in(batches), was_held

    def _batches(self, looking: KeySearch, file: Candidate) -> tuple[Iterator[pa.RecordBatch], bool]:
        """The key columns of a file, and whether they came from the cache."""
        reading = looking.reading_of(file)

        def read() -> Iterator[pa.RecordBatch]:
            return reading.batches(file.path, file.file_format)

        if self._cache is None:
            return read(), False
        return self._cache.batches(file.path, reading.columns, read, ".".join(looking.table.name()))

    def _ordered(self, looking: KeySearch, file: Candidate) -> pa.RecordBatch | None:
        """The sorted keys of a file; None if sorting does not pay off. It pays off if the file was searched before."""
        if self._cache is None:
            return None
        name, columns = f"{file.path} in order", looking.reading_of(file).columns
        if not self._cache.holds(name, columns) and not (
            self._cache.has_room_for([file.path], columns) and self._may_order(file.records)
        ):
            return None
        held, _ = self._batches(looking, file)
        owner = ".".join(looking.table.name())
        batches, _ = self._cache.batches(name, columns, lambda: in_order(held), owner)
        (batch,) = batches
        return batch

    def _may_order(self, rows: int) -> bool:
        """Whether this commit may still sort so many rows; then they count. Several threads search."""
        with self._lock:
            fits = rows <= self._to_order
            self._to_order -= rows if fits else 0
            return fits


def with_same_keys(wanted: Iterable[Wanted]) -> Iterator[list[Wanted]]:
    """Groups of files that are searched together for the same keys, so that the keys are hashed once for a group. A
    group has at most ``TOGETHER`` times as many rows as there are keys, or is a single file.
    """
    for group in _by_keys(wanted):
        together: list[Wanted] = []
        count = 0
        for file, keys in group:
            if together and count + file.records > TOGETHER * len(keys):
                yield together
                together, count = [], 0
            together.append((file, keys))
            count += file.records
        yield together


def _by_keys(wanted: Iterable[Wanted]) -> Iterable[list[Wanted]]:
    """The files grouped by the keys for which they are searched."""
    groups: defaultdict[int, list[Wanted]] = defaultdict(list)
    for each in wanted:
        groups[id(each[1])].append(each)
    return groups.values()


def _lists(wanted: Iterable[Wanted], rows: int) -> Iterator[list[Wanted]]:
    """The files in groups of about ``rows`` rows."""
    part: list[Wanted] = []
    count = 0
    for each in wanted:
        part.append(each)
        count += each[0].records
        if count >= rows:
            yield part
            part, count = [], 0
    if part:
        yield part
