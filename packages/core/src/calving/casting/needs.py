"""Needs of many records, and of many tasks, as few."""

from __future__ import annotations

from collections.abc import Iterable

from calving.model.tables import Need
from calving.records.kinds import folded, merge


class Needs:
    """One need for each change of each column: types merge to the narrowest that takes all."""

    def __init__(self, needs: Iterable[Need] = (), *, fold: bool = False) -> None:
        """``fold``: names that differ by case only are one name."""
        self._fold = fold
        self._found: dict[tuple[str, str, tuple[str, ...]], Need] = {}
        for need in needs:
            self.add(need)

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, need: Need) -> None:
        path = tuple(name.lower() for name in need.path) if self._fold else need.path
        key = (need.table, need.kind, path)
        known = self._found.get(key)
        kind = need.type if known is None else merge(known.type, need.type)
        spelt = need.path if known is None else min(need.path, known.path)
        self._found[key] = Need(need.table, need.kind, spelt, folded(kind) if self._fold else kind)

    def list(self) -> list[Need]:
        return list(self._found.values())
