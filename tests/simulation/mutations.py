"""Mutation tables of the simulation: what records do to rows, and what must come of it.

I7  for each key, the order of effects in the table is the order of source offsets
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from calving.model.files import DataFile
from calving.protocol.commit import Step
from tests.simulation.broker import Record

Key = tuple[object, ...]


class Changes(NamedTuple):
    """The changes of one batch to a table: deleted keys, and added rows."""

    keys: frozenset[Key]
    rows: frozenset[Record]


def key_of(record: Record) -> Key:
    """A few rows of each partition are changed again and again."""
    return record.tp, record.topic, record.offset // 2 % 3


def is_delete(record: Record) -> bool:
    return record.serial % 4 == 0


def event_time(record: Record) -> int:
    """The value of an order by time: records are late as often as not."""
    return record.serial * 7919 % 1009


def changes(records: Iterable[Record]) -> Changes:
    """Of each key the last record counts (M3), and it writes one row at most (M4)."""
    last = {key_of(record): record for record in records}
    return Changes(frozenset(last), frozenset(record for record in last.values() if not is_delete(record)))


class Row(NamedTuple):
    """A row that is there, in a file."""

    record: Record
    file: str


Rows = frozenset[Row]


def located(live: Rows, step: Step, done: Mapping[str, Changes]) -> Rows:
    """The rows that a step deletes."""
    keys = {key for file in step.delete_files for key in done[file.file_path].keys}
    return frozenset(row for row in live if key_of(row.record) in keys)


def resolved(live: Rows, steps: Iterable[Step], done: Mapping[str, Changes]) -> Rows:
    """The rows that there are after all steps."""
    for step in steps:
        live -= located(live, step, done)
        for file in step.data_files:
            live |= {Row(record, file.file_path) for record in done[file.file_path].rows}
    return live


def appended(live: Rows, files: Iterable[DataFile], done: Mapping[str, Changes]) -> Rows:
    """The rows that there are with those of the files added, and none deleted."""
    return live | {Row(record, file.file_path) for file in files for record in done[file.file_path].rows}


def compacted(live: Rows, file: str) -> Rows:
    """The same rows in a new file."""
    return frozenset(Row(row.record, file) for row in live)


def replayed(records: Iterable[Record]) -> frozenset[Record]:
    """The oracle: the rows that there are after these records, one after the other."""
    rows: dict[Key, Record] = {}
    for record in sorted(records, key=lambda r: r.serial):  # offsets may have started over
        rows.pop(key_of(record), None)
        if not is_delete(record):
            rows[key_of(record)] = record
    return frozenset(rows.values())
