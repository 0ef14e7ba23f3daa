"""What changes leave of the rows of a table: they are replayed by key, in the order of the topic.

Shares no code with what reduces, locates and deletes rows. Where the topic alone does not decide, as for a key that
comes in several partitions, there are several outcomes, of which one must be in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from calving.audit.ledgers import Partition


class KeyChange(NamedTuple):
    """A record's change of the row of one key. ``digest``: the row; None if it is deleted. ``replaces``: whether
    earlier rows of the key go. ``order``: the value of the order field. ``source``: the digest of the value of the
    truncate-field, if there is one.
    """

    partition: Partition
    offset: int
    digest: bytes | None
    replaces: bool = True
    order: Any = None
    source: bytes | None = None


class KeyReplay:
    """The changes of one table, in any order. ``ordered``: the greatest order value of a key wins, not the last."""

    def __init__(self, *, ordered: bool = False) -> None:
        self._ordered = ordered
        self._changes: dict[bytes, list[KeyChange]] = {}
        self._emptied: dict[tuple[Partition, bytes | None], int] = {}
        self._partitions: set[Partition] = set()

    def __contains__(self, key: object) -> bool:
        return key in self._changes

    def see(self, key: bytes, change: KeyChange) -> None:
        """A change. Without an order field only what may still count is kept."""
        self._partitions.add(change.partition)
        found = self._changes.setdefault(key, [])
        if not self._ordered:
            own = [each for each in found if each.partition == change.partition]
            if any(each.replaces and each.offset > change.offset for each in own):
                return
            if change.replaces:
                found[:] = [each for each in found if each.partition != change.partition or each.offset > change.offset]
        found.append(change)

    def empty(self, partition: Partition, offset: int, source: bytes | None = None) -> None:
        """A record that deletes all rows, or those of a source."""
        self._partitions.add(partition)
        self._emptied[partition, source] = max(offset, self._emptied.get((partition, source), 0))

    def rows(self, *, whole: bool) -> Iterator[tuple[bytes, Sequence[KeyChange]]]:
        """The key of each row, and the changes of which one has made it; one without a row if there may be none.
        ``whole``: no change is missing that could have won.
        """
        sure = whole and not (self._emptied and len(self._partitions) > 1)
        for key, changes in self._changes.items():
            left = [each for each in changes if each.offset > self._emptied.get((each.partition, each.source), -1)]
            for outcomes in self._outcomes(left) if left else ():
                yield key, outcomes if sure else [*outcomes, outcomes[0]._replace(digest=None)]

    def _outcomes(self, changes: Sequence[KeyChange]) -> Iterator[Sequence[KeyChange]]:
        """For each row, the changes that may have made it."""
        if self._ordered:
            yield _by_order(changes)
        elif len({each.partition for each in changes}) == 1:
            yield from ([each] for each in changes if each.digest is not None)
        elif all(each.replaces for each in changes):
            yield changes
        else:
            yield from ([each, each._replace(digest=None)] for each in changes if each.digest is not None)


def _by_order(changes: Sequence[KeyChange]) -> Sequence[KeyChange]:
    """The change that has made the row. If a change deletes it and the orders do not ascend, commits decide, because a
    deleted row has no memory: an older change after it brings the row back.
    """
    placed = sorted(changes, key=lambda each: (each.partition, each.offset))
    orders = [each.order for each in placed]
    if any(each.digest is None for each in placed):
        several = placed[0].partition != placed[-1].partition
        return placed if several or orders != sorted(orders) else placed[-1:]
    first = [each for each in placed if each.order == max(orders)]
    return first if first[0].partition != first[-1].partition else first[-1:]
