"""The versions that changes leave of rows (rule M16): they are replayed by key.

Shares no code with what makes versions, or ends them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from calving.audit.ledgers import Partition
from calving.audit.rows import PlainRow, plain_row


class VersionIds(NamedTuple):
    """The ids of the columns that say from when on and until when a version holds, and whether that is now."""

    begin: int
    end: int
    current: int


class VersionedChange(NamedTuple):
    """A record's change of one key. ``row``: it begins when the record counts. ``is_gone``: it ends what is there, and
    begins nothing. ``order``: the value of the order field.
    """

    partition: Partition
    offset: int
    row: PlainRow
    is_gone: bool
    order: Any = None


class VersionReplay:
    """The changes of one table, in any order. ``ordered``: an order field says when each counts."""

    def __init__(self, columns: VersionIds, *, ordered: bool) -> None:
        self._columns, self._ordered = columns, ordered
        self._changes: dict[bytes, list[VersionedChange]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._changes

    def see(self, key: bytes, change: VersionedChange) -> None:
        self._changes.setdefault(key, []).append(change)

    def unknown(self) -> set[bytes]:
        """The keys of which the topic alone does not tell the versions: changes of several partitions have no order,
        and after a delete that finds no version, the division into batches decides what becomes of an older row.
        """
        return {key for key, changes in self._changes.items() if not self._is_told(changes)}

    def rows(self) -> Iterator[tuple[bytes, VersionedChange]]:
        """Each version, with its key and the change that began it."""
        for key, changes in self._changes.items():
            placed = sorted(changes, key=lambda each: (each.partition, each.offset))
            chain = self._by_order(placed) if self._ordered else self._by_time(placed)
            for (begin, change), (end, _) in zip(chain, [*chain[1:], (None, None)], strict=True):
                if change is not None:
                    yield key, change._replace(row=self._version(change.row, begin, end))

    def _is_told(self, changes: Sequence[VersionedChange]) -> bool:
        partitions = {each.partition for each in changes}
        if not self._ordered:
            return len(partitions) == 1
        if not any(each.is_gone for each in changes):
            return len({(each.partition, each.order) for each in changes}) == len({each.order for each in changes})
        orders = [each.order for each in sorted(changes, key=lambda each: each.offset)]
        return len(partitions) == 1 and orders == sorted(orders)

    def _by_order(self, changes: Sequence[VersionedChange]) -> list[tuple[Any, VersionedChange | None]]:
        """From which moment on there is a row, or none any more."""
        last = {each.order: each for each in changes}
        chain: list[tuple[Any, VersionedChange | None]] = []
        for order in sorted(last):
            self._add(chain, self._begin(last[order]), last[order])
        return chain

    def _by_time(self, changes: Sequence[VersionedChange]) -> list[tuple[Any, VersionedChange | None]]:
        """As by order; but none counts before the one before it."""
        chain: list[tuple[Any, VersionedChange | None]] = []
        for each in changes:
            begin = self._begin(each)
            self._add(chain, max(begin, chain[-1][0]) if chain else begin, each)
        return chain

    def _add(self, chain: list[tuple[Any, VersionedChange | None]], begin: Any, change: VersionedChange) -> None:
        if not change.is_gone:
            chain.append((begin, change))
        elif chain and chain[-1][1] is not None:
            chain.append((begin, None))

    def _begin(self, change: VersionedChange) -> Any:
        return dict(change.row)[self._columns.begin]

    def _version(self, row: PlainRow, begin: Any, end: Any) -> PlainRow:
        own = {self._columns.begin: begin, self._columns.end: end, self._columns.current: int(end is None)}
        return plain_row((dict(row) | own).items())
