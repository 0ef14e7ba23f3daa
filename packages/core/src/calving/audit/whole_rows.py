"""What updates that lack columns leave of rows: each keeps what the row of its key has right before it.

Shares no code with what joins and completes such updates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from calving.audit.ledgers import Partition
from calving.audit.rows import PlainRow, plain_row, value_at


class PartialChange(NamedTuple):
    """A record's change. ``key``: None if all rows go. ``row``: None if that of the key goes. ``lacks``: the ids of the
    columns that the row keeps; None if it keeps parts of lists, too.
    """

    partition: Partition
    offset: int
    key: bytes | None
    row: PlainRow | None = None
    lacks: Collection[int] | None = ()


@dataclass
class WholeRows:
    """The changes of one table, in any order. ``paths``: of each column the ids of the structs around it, and its own.
    ``skips``: an update that finds no row adds none. ``is_whole``: nothing but the changes that are told has made the
    rows.
    """

    paths: Mapping[int, Sequence[int]]
    skips: bool
    is_whole: bool
    _seen: list[PartialChange] = field(default_factory=list)
    _rows: dict[bytes, PlainRow | None] = field(default_factory=dict)
    _partitions: dict[bytes, Partition] = field(default_factory=dict)
    _guessed: set[bytes] = field(default_factory=set)
    _scattered: set[bytes] = field(default_factory=set)
    _completed: set[bytes] = field(default_factory=set)
    _emptied: set[Partition] = field(default_factory=set)

    def see(self, change: PartialChange) -> None:
        self._seen.append(change)

    def replayed(self) -> Iterator[tuple[bytes, PartialChange]]:
        """All changes of a key, each with the whole row that it leaves."""
        for each in sorted(self._seen, key=lambda each: (each.partition, each.offset)):
            if each.key is None:
                self._empty(each.partition)
            else:
                yield each.key, each._replace(row=self._take(each, each.key))

    def _take(self, change: PartialChange, key: bytes) -> PlainRow | None:
        partition, row, lacks = change.partition, change.row, change.lacks
        if self._partitions.setdefault(key, partition) != partition:
            self._scattered.add(key)
        if row is None or (lacks is not None and not lacks):
            self._guessed.discard(key)
        else:
            self._completed.add(key)
            if lacks is None or not (self.is_whole or key in self._rows):
                self._guessed.add(key)
            row = self._whole(self._rows.get(key), row, lacks or ())
        self._rows[key] = row
        return row

    def _empty(self, partition: Partition) -> None:
        self._emptied.add(partition)
        for key, of in self._partitions.items():
            if of == partition:
                self._rows[key] = None
                self._guessed.discard(key)

    def unknown(self) -> set[bytes]:
        """The keys whose rows the changes alone do not tell, once they are replayed."""
        others = {key for key in self._completed if self._emptied - {self._partitions[key]}}
        return self._guessed | (self._scattered & self._completed) | others

    def _whole(self, before: PlainRow | None, row: PlainRow, lacks: Collection[int]) -> PlainRow | None:
        if before is None:
            return None if self.skips else row
        for path in sorted((self.paths[each] for each in lacks if each in self.paths), key=len):  # structs first
            row = _with(row, path, value_at(before, path))
        return row


def _with(row: PlainRow, path: Sequence[int], value: Any) -> PlainRow:
    """The row with another value of a column. A struct that is null stays null."""
    first, *inner = path
    values = dict(row)
    if inner and first not in values:
        return row
    values[first] = _with(values[first], inner, value) if inner else value
    return plain_row(values.items())
