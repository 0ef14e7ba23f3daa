"""What commits of row mutations have done."""

from __future__ import annotations

from dataclasses import dataclass, fields

from calving.model.text import counted


@dataclass(frozen=True, slots=True)
class MutationCounts:
    """Counts of row mutations in commits; equality deletes are not counted."""

    keys: int = 0
    """Changed keys."""
    located: int = 0
    """Live rows with one of these keys."""
    superseded: int = 0
    """The rows among ``located`` that were deleted."""
    unmatched: int = 0
    """Deletes whose key had no row."""
    positions: int = 0
    """Positions in the written delete files, including positions of rows that were deleted before."""
    files: int = 0
    """Data files whose keys were searched."""
    cached: int = 0
    """The files among ``files`` whose keys were in the key cache."""

    def __add__(self, other: MutationCounts) -> MutationCounts:
        return MutationCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __str__(self) -> str:
        looked = f"{counted(self.files, 'file')} looked into, {self.cached} of them in the cache"
        done = f"{counted(self.superseded, 'row')} superseded, {counted(self.positions, 'position')} written"
        return f"{counted(self.keys, 'key')}, {done}, {counted(self.unmatched, 'delete')} without a row, {looked}"
