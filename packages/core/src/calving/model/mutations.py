"""Settings and counts of mutation tables: tables in which records replace and delete rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from calving.model.text import counted

RowDeletes = Literal["positions", "equality"]
Inserts = Literal["upsert", "append"]
DeleteMode = Literal["hard", "soft"]
Tombstones = Literal["skip", "delete"]
OrderType = Literal["parsed", "text"]
SOFT_DELETE_FIELD, FORMER_SOFT_DELETE_FIELD = "_cdc_deleted", "_deleted"
"""The default column that marks deleted rows, and the default of version 0.1.0, a name that Iceberg reserves."""


@dataclass(frozen=True, slots=True)
class RowMutations:
    """The settings of one mutation table: one with ``cdc_field`` or ``upsert``.

    ``cdc_field`` is the dotted path of the field that names a record's operation; without this field every record is an
    update. ``row_deletes``: how rows are deleted. ``inserts``: whether an insert replaces the row of its key.
    ``order_field``: the dotted path of the column that orders the changes of a key; without it, their order in the
    topic counts. ``order_type``: how texts of that column compare: as numbers and as positions in a log, or letter by
    letter. ``delete_mode``: whether a deleted row is removed, or stays with ``soft_delete_field`` true.
    ``tombstones``: the operation of a record without a value. ``on_truncate``: the response to a truncate event,
    which says that the source table was emptied.
    """

    cdc_field: str | None = None
    upsert: bool = False
    row_deletes: RowDeletes = "positions"
    inserts: Inserts = "upsert"
    order_field: str | None = None
    order_type: OrderType = "parsed"
    delete_mode: DeleteMode = "hard"
    soft_delete_field: str = SOFT_DELETE_FIELD
    tombstones: Tombstones = "skip"
    on_truncate: Literal["fail", "skip"] = "fail"

    @property
    def in_steps(self) -> bool:
        """Whether the changes of a batch may be committed in several steps, in the order of their offsets. Each step
        deletes rows of the steps before it, at the cost of searching their files. Tables with an order field need one
        step, because order values are compared within one step. So do tables with equality deletes, because each of
        their steps is a snapshot.
        """
        return self.row_deletes == "positions" and self.order_field is None

    def refusal(self, version: int) -> str | None:
        """The reason why records cannot change the rows of tables of this format version; None if records can change
        them.
        """
        if version < 2:
            return "row mutations need 2 or 3"
        if version > 2 and self.row_deletes == "equality":
            return "row-deletes = equality is for version 2"
        return None


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
