"""What changes leave of the rows of a table: they are replayed one after the other, as the topic has them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from campaign.changes import Change, told


class Replay(Protocol):
    """The changes of one partition of the topic, as far as they were told."""

    def take(self, change: Change, timestamp_ms: int) -> None:
        """The next change, and the timestamp of its record."""

    def rows(self) -> Mapping[int, Sequence[str]]:
        """The rows of each key that has some, as text."""


class Rows:
    """Each key has one row at most."""

    def __init__(self) -> None:
        self._known: dict[int, Change] = {}

    def take(self, change: Change, timestamp_ms: int = 0) -> None:
        if change.key is None:
            self._empty(change.others.get("source"))
        elif change.proof is None:
            self._known.pop(change.key, None)
        else:
            self._put(change, change.key)

    def _empty(self, source: str | None) -> None:
        self._known = {
            key: known
            for key, known in self._known.items()
            if source is not None and known.others.get("source") != source
        }

    def _put(self, change: Change, key: int) -> None:
        known = self._known.get(key)
        if known is None and change.skips:
            return
        if known is not None and known.order > change.order:
            return
        if known is not None and change.keeps:
            change = change._replace(others={**known.others, **change.others})
        self._known[key] = change

    def rows(self) -> Mapping[int, Sequence[str]]:
        return {key: [told(known.proof or "", known.others)] for key, known in self._known.items()}


class Versions:
    """Each key has all the rows that it ever had, each from a moment on, until the next one."""

    def __init__(self, *, is_ordered: bool) -> None:
        """``is_ordered``: the order of a change is its moment; else its record's timestamp, which does not go back."""
        self._is_ordered = is_ordered
        self._moments: dict[int, list[tuple[int, str | None]]] = defaultdict(list)

    def take(self, change: Change, timestamp_ms: int) -> None:
        assert change.key is not None, "no truncate empties a table with history"
        moments = self._moments[change.key]
        if not self._is_ordered:
            last, row = moments[-1] if moments else (timestamp_ms, None)
            if change.proof is not None or row is not None:
                moments.append((max(last, timestamp_ms), change.proof))
            return
        at = bisect_left(moments, change.order, key=lambda each: each[0])
        if at < len(moments) and moments[at][0] == change.order:
            del moments[at]
        if change.proof is not None or (at and moments[at - 1][1] is not None):
            moments.insert(at, (change.order, change.proof))

    def rows(self) -> Mapping[int, Sequence[str]]:
        found: dict[int, list[str]] = defaultdict(list)
        for key, moments in self._moments.items():
            for (at, proof), end in zip(moments, [*(at for at, _ in moments[1:]), None], strict=False):
                if proof is not None:
                    found[key].append(version(proof, at, end, is_current=end is None))
        return found


def version(row: str, begin: int, end: int | None, *, is_current: bool | None) -> str:
    """A version of a row as text."""
    return f"{row} from {begin} to {end}, {'current' if is_current else 'former'}"
