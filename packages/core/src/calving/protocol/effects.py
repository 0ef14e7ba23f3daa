"""The closed set of things that a machine asks its driver to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from calving.model.coverage import Coverage
from calving.model.events import Envelope, Event, Publication, TableId, TableMark
from calving.model.offsets import ControlOffsets, Spans
from calving.protocol.ledger import Reach


@dataclass(frozen=True, slots=True)
class RunBatch:
    """Read, convert and write these spans, then call ``Worker.finished`` with the same number."""

    number: int
    spans: Spans


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish atomically, then call ``Worker.published``. On any error the worker is thrown away."""

    publication: Publication


@dataclass(frozen=True, slots=True)
class Announce:
    """Write the coordinator's own events to the control log."""

    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class CommitTables:
    """Commit each table by rule C6, each on its own, and call ``Coordinator.settled`` for each as it settles."""

    commit_id: UUID
    tables: Mapping[TableId, tuple[Envelope, ...]]
    read: ControlOffsets
    reach: Reach
    valid_through_us: int | None
    marks: Mapping[TableId, TableMark] = field(default_factory=dict)
    """How far tables were seen to be: one that is less far has gone back."""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Save ``position`` and write ``events``, both or neither; ``settled`` and ``marks`` go beside them."""

    position: ControlOffsets
    events: tuple[Event, ...]
    settled: Coverage
    marks: Mapping[TableId, TableMark] = field(default_factory=dict)


WorkerEffect = RunBatch | Publish
CoordinatorEffect = Announce | CommitTables | Acknowledge
