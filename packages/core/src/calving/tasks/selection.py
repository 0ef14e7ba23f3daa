"""What the steps of the record path pass on: records of one block, and the accounts of what becomes of them.

The path is a line of five steps: ``decode``, ``transform``, ``route``, ``cast`` and ``write``. Each has a module, and
``pipeline`` joins them. A step passes on the records that it can, and enters the others in the accounts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from calving.casting.evolution import SchemaChanges
from calving.model.dead_letters import Stage
from calving.records.arrays import Indices, chosen
from calving.records.values import RecordError, Values
from calving.source.reading import Block

Tables = tuple[str, ...]


@dataclass(slots=True)
class Accounts:
    """What becomes of the records of a block: each is written, filtered by a named cause, or bad. The indices of
    ``bad`` are places in the block.
    """

    changes: SchemaChanges
    """The schema changes of the whole task. With one of them the task has to run again, and writes nothing."""
    written: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    bad: list[RecordError] = field(default_factory=list)
    unnamed: Counter[str] = field(default_factory=Counter)
    """Records of mutation tables that name no operation, by what the log says of them."""
    warnings: dict[str, None] = field(default_factory=dict)
    """What else the log has to say, each once."""

    def reject(self, places: Indices, stage: Stage, error: str, reason: str, *, fatal: bool = False) -> None:
        """The records at these places are bad, all for the same reason."""
        self.bad += [RecordError(place, stage, error, reason, fatal) for place in places]


@dataclass(frozen=True, slots=True)
class Selection:
    """The records at ``places``, ascending, of a block. ``topic`` and ``partition`` brought them: those of
    the block or, of replayed dead letters, of the original records.

    ``before``: before images of some of the records, which have the same places in the block.
    """

    block: Block
    topic: str
    partition: int
    places: Indices
    accounts: Accounts
    before: Sequence[Values] = ()

    def at(self, places: Indices) -> Selection:
        """The records at these places of the block, which are some of these."""
        return replace(self, places=places)


@dataclass(frozen=True, slots=True)
class Routed:
    """Values of records, with the tables to which all of them go. ``operations``: by mutation table, what each value
    does to its row. ``holders``: tables that hold the records already, and are asked only whether they refuse them.
    """

    selected: Selection
    tables: Tables
    values: Values
    operations: Mapping[str, pa.Array] = field(default_factory=dict)
    holders: Tables = ()

    def choose(self, rows: Indices) -> Routed:
        """The values at these ascending rows."""
        if len(rows) == len(self.values):
            return self
        operations = {table: chosen(column, rows) for table, column in self.operations.items()}
        return replace(self, values=self.values.choose(rows), operations=operations)


class Timings:
    """Counts the CPU seconds of this thread by step. A step lasts until the next one starts, or until ``stop``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.step = ""
        """The step that was started last."""
        self._started: float | None = None

    def start(self, step: str) -> None:
        self.stop()
        self.step, self._started = step, time.thread_time()

    def stop(self) -> None:
        """What follows belongs to no step."""
        if self._started is not None:
            spent = time.thread_time() - self._started
            self.seconds[self.step] = self.seconds.get(self.step, 0.0) + spent
            self._started = None
