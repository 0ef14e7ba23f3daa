"""Keys of very large tables are looked for by tasks, with the same result."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from calving.iceberg.attempts import Attempts, UnfinishedAttempt
from calving.iceberg.resolution import RowChangeResolver
from calving.model.mutation_counts import MutationCounts
from calving.mutations import runs
from calving.mutations.cache import KeyCache
from calving.mutations.keys import ChangedKeys, Matches
from calving.mutations.lookup import Tasks
from calving.mutations.runs import Run, Runs
from harness.forms import forms
from tests.iceberg.histories import LAYOUTS, MutationTable, create, play, pyiceberg_rows


class Here:
    """Tasks that run in this process, as texts all the same."""

    slots = 2

    def __init__(self) -> None:
        self.ran = 0

    def map(self, function: Callable[[str], str], payloads: Sequence[str]) -> list[str]:
        self.ran += len(payloads)
        return [function(payload) for payload in payloads]


class Failing(Here):
    def map(self, function: Callable[[str], str], payloads: Sequence[str]) -> list[str]:
        raise RuntimeError("no executors")


class Hanging(Here):
    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def map(self, function: Callable[[str], str], payloads: Sequence[str]) -> list[str]:
        self.goes_on.wait(60)
        return super().map(function, payloads)


def by_tasks(table: MutationTable, tasks: Tasks | None, rows_here: int = 0) -> RowChangeResolver:
    """The table's keys are looked for by tasks from now on, but for so many rows."""
    table.resolver = RowChangeResolver(table.order, KeyCache(1_000_000), tasks=lambda: tasks)
    table.resolver.lookups.rows_here = rows_here
    return table.resolver


@pytest.mark.parametrize("order", [None, "g"])
@pytest.mark.parametrize("layout", forms(LAYOUTS, ["by key", "evolved"]))
def test_tasks_find_what_this_process_finds(catalog: Catalog, layout: str, order: str | None) -> None:
    found: dict[bool, list[MutationCounts | None]] = {}
    for as_tasks in (False, True):
        table, tasks = create(catalog, layout, 2, order), Here()
        if as_tasks:
            by_tasks(table, tasks, rows_here=3)
        found[as_tasks] = []
        commit, counts = table.commit, found[as_tasks]
        table.commit = lambda *steps, meanwhile=(), commit=commit, counts=counts: (  # type: ignore[method-assign]
            counts.append((made := commit(*steps, meanwhile=meanwhile)).counts) or made
        )
        play(table, layout, 5, 10)
        assert pyiceberg_rows(table.table) == table.rows()
        assert bool(tasks.ran) == as_tasks
    without_cache = {
        way: [(c.keys, c.located, c.superseded, c.unmatched, c.positions, c.files) for c in each if c is not None]
        for way, each in found.items()
    }
    assert without_cache[True] == without_cache[False]


def test_few_rows_are_read_in_this_process(catalog: Catalog) -> None:
    table, tasks = create(catalog, "flat", 2), Here()
    table.commit(table.step([{"id": key, "name": "a", "g": 0} for key in range(50)]))
    by_tasks(table, tasks, rows_here=50)
    table.commit(table.step([{"id": 1, "name": "b", "g": 0}]))
    assert tasks.ran == 0


def test_each_commit_reads_some_files_for_the_cache_whatever_their_size(catalog: Catalog) -> None:
    table, tasks = create(catalog, "flat", 2), Here()
    for start in (0, 50):
        table.commit(table.step([{"id": key, "name": "a", "g": 0} for key in range(start, start + 50)]))
    by_tasks(table, tasks, rows_here=50)
    ran = []
    for _ in range(3):
        table.commit(table.step([{"id": 1, "name": "b", "g": 0}, {"id": 70, "name": "b", "g": 0}]))
        ran.append(tasks.ran)
    assert ran == [1, 1, 1]
    assert pyiceberg_rows(table.table) == table.rows()


def test_keys_are_hashed_once_for_files_that_have_fewer_rows_together(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(catalog, "flat", 2)
    for start in range(0, 40, 10):
        table.commit(table.step([], inserts=[{"id": key, "name": "a", "g": 0} for key in range(start, start + 10)]))
    searched: list[int] = []
    found_in = ChangedKeys.found_in

    def counted(keys: ChangedKeys, batches: Iterable[pa.RecordBatch]) -> Matches:
        searched.append(len(keys))
        return found_in(keys, batches)

    monkeypatch.setattr(ChangedKeys, "found_in", counted)
    table.commit(table.step([{"id": key, "name": "b", "g": 0} for key in range(0, 40, 4)]))
    assert searched == [10, 10], "two files of ten rows each time"
    assert pyiceberg_rows(table.table) == table.rows()


def test_keys_are_hashed_once_for_the_changes_of_all_publications(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(catalog, "flat", 2, order="g")
    searched: list[int] = []
    found_in = ChangedKeys.found_in

    def counted(keys: ChangedKeys, batches: Iterable[pa.RecordBatch]) -> Matches:
        searched.append(len(keys))
        return found_in(keys, batches)

    monkeypatch.setattr(ChangedKeys, "found_in", counted)
    table.commit(*(table.step([{"id": key, "name": "a", "g": 0}]) for key in range(8)))
    assert searched == [8, 8], "in the new rows, and in the changes"
    assert pyiceberg_rows(table.table) == table.rows()


def test_tasks_that_fail_leave_it_to_this_process(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    table = create(catalog, "by key", 2)
    table.commit(table.step([{"id": key, "name": "a", "g": 0} for key in range(50)]))
    by_tasks(table, Failing())
    with caplog.at_level(logging.WARNING):
        table.commit(table.step([{"id": 1, "name": "b", "g": 0}]))
    assert "the search for keys continues without tasks, because they failed: no executors" in caplog.text
    assert pyiceberg_rows(table.table) == table.rows()


def test_tasks_that_hang_hold_up_their_own_table_alone(catalog: Catalog) -> None:
    tables = [create(catalog, "flat", 2) for _ in range(2)]
    for table in tables:
        table.commit(table.step([{"id": key, "name": "a", "g": 0} for key in range(50)]))
    hanging = Hanging()
    by_tasks(tables[0], hanging)
    by_tasks(tables[1], Here())
    ended = [threading.Event() for _ in tables]

    def job(number: int) -> None:
        table = tables[number]
        table.commit(table.step([{"id": 1, "name": "b", "g": 0}]))
        ended[number].set()

    attempts = Attempts(2, 10.0)
    found = dict(attempts.run({number: partial(job, number) for number in range(2)}))
    assert isinstance(found[0], UnfinishedAttempt) and found[1] is None
    hanging.goes_on.set()
    assert ended[0].wait(120)
    for table in tables:
        assert pyiceberg_rows(table.table) == table.rows()


def test_small_files_that_are_cached_are_searched_as_one(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(catalog, "flat", 2)
    table.resolver = RowChangeResolver(cache=KeyCache(10_000_000))
    searched: list[str] = []
    search = Runs.search

    def counted(runs: Runs, run: Run, keys: ChangedKeys) -> Mapping[str, Matches] | None:
        searched.append(run.name)
        return search(runs, run, keys)

    monkeypatch.setattr(Runs, "search", counted)
    for start in range(0, 100, 10):
        table.commit(table.step([{"id": key, "name": "a", "g": 0} for key in [*range(start, start + 9), 1_000]]))
        searched.clear()
        table.commit(table.step([{"id": key, "name": "b", "g": 0} for key in [*range(5, start, 10), 1_000]]))
    assert 1 <= len(searched) <= 3
    assert pyiceberg_rows(table.table) == table.rows()


@pytest.mark.parametrize("layout", forms(LAYOUTS, ["moving"]))
def test_runs_of_two_files_leave_what_a_replay_leaves(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.setattr(runs, "_TOGETHER", 2)
    table = create(catalog, layout, 2)
    table.resolver = RowChangeResolver(cache=KeyCache(10_000_000))
    searched = set()
    search = Runs.search

    def counted(own: Runs, run: Run, keys: ChangedKeys) -> Mapping[str, Matches] | None:
        searched.add(run.name)
        return search(own, run, keys)

    monkeypatch.setattr(Runs, "search", counted)
    play(table, layout, 5, 25)
    assert pyiceberg_rows(table.table) == table.rows()
    assert len(searched) > 3
