"""Whether the rows of a table are those that its records make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from calving.audit.findings import AuditFinding, FindingKind
from calving.audit.ledgers import Partition, Ranges, named
from calving.audit.replay import KeyChange
from calving.audit.rows import KEY_SIZE

_SHOWN = 5


@dataclass
class RowComparison:
    """The rows of a table against those that its records make. ``there``: how often each row is in the table, by its
    digest; of a table whose rows change, by the digest of its key and its own.

    ``unread``: offsets that the topics do not have any more. ``foreign``: whether others may have written rows, too.
    ``deleted``: how many rows other writers have deleted; None if nobody knows. ``keys``: in a table whose rows change,
    the keys of all records, whose other rows should not be there.
    """

    table: str
    where: str
    there: Counter[bytes]
    unread: Mapping[Partition, Ranges] = field(default_factory=dict)
    foreign: bool = False
    deleted: int | None = 0
    keys: Container[bytes] | None = None
    compared: int = 0
    left_out: int = 0
    lost: dict[Partition, list[int]] = field(default_factory=dict)

    def expect(self, changes: Sequence[KeyChange], key: bytes = b"") -> None:
        """One of these records makes a row, unless one makes none."""
        self.compared += 1
        for each in changes:
            if each.digest is not None and self.there[key + each.digest] > 0:
                self.there[key + each.digest] -= 1
                return
        if all(each.digest is not None for each in changes):
            self.lost.setdefault(changes[-1].partition, []).append(changes[-1].offset)

    def leave_out(self, keys: Set[bytes]) -> None:
        """The rows of these keys are not compared."""
        self.left_out = len(keys)
        for each in [each for each in self.there if each[:KEY_SIZE] in keys]:
            del self.there[each]

    def judge(self) -> Iterator[AuditFinding]:
        """What is wrong, once all records were told."""
        if not self._deleted_by_others:
            for partition, offsets in sorted(self.lost.items()):
                text = f"the rows of offsets {_shown(offsets)} of {named(partition)} are not in table {self.table}"
                yield self._wrong(f"{text}, or differ")
        stale, left = self._left()
        if stale:
            yield self._wrong(f"{stale} rows of table {self.table} should be replaced or deleted")
        if left and not self.foreign and not self.unread:
            yield self._wrong(f"{left} rows of table {self.table} are of no record that it has taken")

    def notes(self) -> Iterator[str]:
        """What could not be compared."""
        if self.left_out:
            yield f"not compared: the rows of {self.left_out} keys, which the topics alone do not tell"
        for partition, offsets in sorted(self.lost.items() if self._deleted_by_others else ()):
            yield (
                f"the rows of offsets {_shown(offsets)} of {named(partition)} are not there, or differ: other writers"
                " have deleted so many rows"
            )
        left = self._left()[1]
        if left and (self.foreign or self.unread):
            yield f"not compared: {left} rows, which may be of other writers or of records that are gone"

    @property
    def _deleted_by_others(self) -> bool:
        return self.deleted is None or sum(map(len, self.lost.values())) <= self.deleted

    def _left(self) -> tuple[int, int]:
        """The rows of no record: those of a known key, which a change has replaced or deleted, and the others."""
        left = +self.there
        if self.keys is None or self.deleted != 0:
            return 0, sum(left.values())
        stale = sum(number for each, number in left.items() if each[:KEY_SIZE] in self.keys)
        return stale, sum(left.values()) - stale

    def _wrong(self, text: str) -> AuditFinding:
        return AuditFinding(FindingKind.RECORDS, self.where, text)


def _shown(offsets: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(offsets)[:_SHOWN]))
    return shown + (f" and {len(offsets) - _SHOWN} more" if len(offsets) > _SHOWN else "")
