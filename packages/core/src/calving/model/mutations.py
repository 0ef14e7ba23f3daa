"""How records change the rows of a table that is more than appended to."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from calving.model.text import counted


@dataclass(frozen=True, slots=True)
class RowMutations:
    """The settings of one mutation table: one with ``cdc_field`` or ``upsert``.

    ``cdc_field`` is the dotted path of the field that says what a record does; without it every record is an update.
    ``row_deletes``: how rows are deleted. ``inserts``: whether an insert replaces a row of its key. ``order_field``:
    the dotted path of the column by which the last change of a key is found, instead of the order of the topic.
    ``delete_mode``: whether a deleted row goes, or stays with ``soft_delete_field`` true. ``tombstones``: what a record
    without a value does. ``on_truncate``: what is done about an event that empties its source.
    """

    cdc_field: str | None = None
    upsert: bool = False
    row_deletes: Literal["positions", "equality"] = "positions"
    inserts: Literal["upsert", "append"] = "upsert"
    order_field: str | None = None
    delete_mode: Literal["hard", "soft"] = "hard"
    soft_delete_field: str = "_deleted"
    tombstones: Literal["skip", "delete"] = "skip"
    on_truncate: Literal["fail", "skip"] = "fail"


@dataclass(frozen=True, slots=True)
class MutationCounts:
    """What commits of a mutation table did by positions."""

    keys: int = 0
    """Keys of changed rows."""
    located: int = 0
    """Live rows that had one of them."""
    superseded: int = 0
    """Those of them that were deleted."""
    unmatched: int = 0
    """Deletes whose key no row had."""
    positions: int = 0
    """In the delete files that were written: those of rows that were deleted before are among them."""
    files: int = 0
    """Data files that were looked into."""
    cached: int = 0
    """Those of them that the key cache had."""

    def __add__(self, other: MutationCounts) -> MutationCounts:
        return MutationCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __str__(self) -> str:
        looked = f"{counted(self.files, 'file')} looked into, {self.cached} of them in the cache"
        done = f"{counted(self.superseded, 'row')} superseded, {counted(self.positions, 'position')} written"
        return f"{counted(self.keys, 'key')}, {done}, {counted(self.unmatched, 'delete')} without a row, {looked}"
