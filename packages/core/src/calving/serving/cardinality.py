"""Bounds on the number of series that a sink makes (O4)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from calving.status.values import Status, TableStatus

MOST_PARTITIONS, MOST_TABLES = 1_000, 500
ALL, OTHER = "all", "other"
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Lag:
    source_lag: int
    commit_lag: int | None
    seconds: float | None


def partitions_of(status: Status, now: float) -> Iterable[tuple[tuple[str, str], Lag]]:
    """Lag by topic and partition. If there are too many partitions, lag by topic: the sum of records, and the largest
    time.
    """
    partitions = status.worker.partitions
    if len(partitions) <= MOST_PARTITIONS:
        for tp, p in partitions.items():
            yield (tp.topic, str(tp.partition)), Lag(p.source_lag, p.commit_lag, p.lag_seconds(now))
        return
    topics: dict[str, Lag] = {}
    for tp, p in partitions.items():
        before = topics.get(tp.topic, Lag(0, None, None))
        topics[tp.topic] = Lag(
            before.source_lag + p.source_lag,
            _of_known(sum, before.commit_lag, p.commit_lag),
            _of_known(max, before.seconds, p.lag_seconds(now)),
        )
    for topic, lag in topics.items():
        yield (topic, ALL), lag


def tables_of(status: Status) -> Mapping[str, TableStatus]:
    """The first tables by name. The other tables are one entry, with their earliest times, the sum of their buffered
    files, and their largest number of cycles.
    """
    tables = status.log.tables
    if len(tables) <= MOST_TABLES:
        return tables
    names = sorted(tables)
    shown = {name: tables[name] for name in names[:MOST_TABLES]}
    rest = [tables[name] for name in names[MOST_TABLES:]]
    shown[OTHER] = TableStatus(
        min((t.committed_at for t in rest if t.committed_at is not None), default=None),
        None,
        min((t.valid_through_us for t in rest if t.valid_through_us is not None), default=None),
        sum(t.buffered_files for t in rest),
        min((t.buffered_since for t in rest if t.buffered_since is not None), default=None),
        max(t.cycles for t in rest),
    )
    return shown


def by_table(
    status: Status,
    values: Iterable[tuple[tuple[str, ...], float]],
    combine: Callable[[float, float], float] = operator.add,
) -> Iterable[tuple[tuple[str, ...], float]]:
    """Values whose first label is a table. The values of the rest of the tables are combined into one."""
    samples = list(values)
    names = {labels[0] for labels, _ in samples} | status.log.tables.keys()
    if len(names) <= MOST_TABLES:
        return samples
    shown = set(sorted(names)[:MOST_TABLES])
    bounded: dict[tuple[str, ...], float] = {}
    for (table, *others), value in samples:
        labels = (table if table in shown else OTHER, *others)
        bounded[labels] = combine(bounded[labels], value) if labels in bounded else value
    return bounded.items()


def _of_known(combine: Callable[[list[N]], N], *values: N | None) -> N | None:
    known = [value for value in values if value is not None]
    return combine(known) if known else None
