"""How records change the rows of a table that is more than appended to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
