"""Needs of many records, and of many tasks, as few."""

from __future__ import annotations

from collections.abc import Iterable

from calving.data.conversion.kinds import merge
from calving.data.spec import Need


class Needs:
    """One need for each change of each column: types merge to the narrowest that takes all."""

    def __init__(self, needs: Iterable[Need] = ()) -> None:
        self._found: dict[tuple[str, str, tuple[str, ...]], Need] = {}
        for need in needs:
            self.add(need)

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, need: Need) -> None:
        key = (need.table, need.kind, need.path)
        known = self._found.get(key)
        kind = need.type if known is None else merge(known.type, need.type)
        self._found[key] = Need(need.table, need.kind, need.path, kind)

    def list(self) -> list[Need]:
        return list(self._found.values())
