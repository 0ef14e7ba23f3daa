"""Mutation tables of the simulation: what records do to rows, and what must come of it.

I7  for each key, the order of effects in the table is the order of source offsets
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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


def is_rare_delete(record: Record) -> bool:
    """A delete where inserts are appended: most publications have none, so that nothing in their files tells of changes."""
    return record.serial % 16 == 0


def event_time(record: Record) -> int:
    """The value of an order by time: records are late as often as not."""
    return record.serial * 7919 % 1009


def changes(records: Iterable[Record]) -> Changes:
    """Of each key the last record counts (M3), and it writes one row at most (M4)."""
    last = {key_of(record): record for record in records}
    return Changes(frozenset(last), frozenset(record for record in last.values() if not is_delete(record)))


def inserts(records: Iterable[Record]) -> Changes:
    """The same with ``inserts = append``: only a delete deletes the rows of its key, and all other records insert."""
    keys: set[Key] = set()
    rows: set[Record] = set()
    for record in records:
        if is_rare_delete(record):
            keys.add(key_of(record))
            rows -= {row for row in rows if key_of(row) == key_of(record)}
        else:
            rows.add(record)
    return Changes(frozenset(keys), frozenset(rows))


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


def replayed(
    records: Iterable[Record], plain: Collection[Record] = (), *, inserts_append: bool = False
) -> frozenset[Record]:
    """The oracle: the rows that there are after these records, one after the other. ``plain``: those that a worker has
    appended, whatever they say.
    """
    rows: dict[Key, set[Record]] = {}
    for record in sorted(records, key=lambda r: r.serial):  # offsets may have started over
        here = rows.setdefault(key_of(record), set())
        deletes = (is_rare_delete if inserts_append else is_delete)(record)
        if record not in plain and (deletes or not inserts_append):
            here.clear()
        if record in plain or not deletes:
            here.add(record)
    return frozenset().union(*rows.values())
