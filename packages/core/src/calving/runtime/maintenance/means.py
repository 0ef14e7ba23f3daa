"""What a driver of maintenance lends to the tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.iceberg.maintenance import Turn, without_turns
from calving.maintenance.rewrite import Rewriting
from calving.model.events import TableId
from calving.model.files import DataFile
from calving.mutations.cache import KeyCache
from calving.mutations.lookup import Tasks
from calving.runtime.maintenance.step import MaintenanceStep


class Observer(Protocol):
    """Sees the tasks of all tables."""

    def begins(self, table: str) -> None:
        """The next task of a table begins."""

    def found(self, table: str, task: str, due: Mapping[str, tuple[int, int]]) -> None:
        """A task has planned work, and has done none of it yet: files and bytes by partition."""

    def ends(self, table: str, step: MaintenanceStep | None, seconds: float) -> None:
        """What came of it, and how long it took; None: there was no task left."""


@dataclass(frozen=True, slots=True)
class Means:
    """``tasks``: the engine, for searches in very large files; None to search in this process. ``turn``: of the commits
    to a table. ``rewriting``: how files are rewritten, by default in this process. ``made``: gets the files that are
    about to replace others, and raises nothing.
    """

    catalog: Catalog
    cache: Callable[[], KeyCache]
    tasks: Callable[[], Tasks | None]
    turn: Callable[[TableId], Turn] = lambda table: without_turns
    rewriting: Rewriting | None = None
    made: Callable[[Table, Sequence[DataFile]], None] = lambda table, outputs: None
    observer: Observer | None = None
