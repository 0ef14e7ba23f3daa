"""Files of a table, and which of their rows equality deletes reach."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Live:
    """An entry of a manifest that is not deleted, with what it inherits."""

    file: dict[str, Any]
    sequence: int
    spec: int

    @property
    def scope(self) -> str:
        """The partition that an equality delete with this partition is about."""
        return f"{self.spec}: {self.file['partition']}"


class DeadKeys:
    """The sequence number of the newest equality delete of each key, by scope."""

    def __init__(self, unpartitioned: Iterable[int]) -> None:
        self._everywhere = {f"{spec}: {{}}" for spec in unpartitioned}
        self._newest: dict[str, dict[int, int]] = defaultdict(dict)

    def add(self, entry: Live, named: Iterable[int]) -> None:
        known = self._newest["" if entry.scope in self._everywhere else entry.scope]
        for key in named:
            known[key] = max(entry.sequence, known.get(key, 0))

    def has(self, data: Live, key: int) -> bool:
        """Whether an equality delete reaches the row of this key in that data file."""
        return any(self._newest[scope].get(key, 0) > data.sequence for scope in ("", data.scope))
