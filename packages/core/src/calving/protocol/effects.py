"""The effects: the closed set of actions that a machine asks of its driver. Each prints as one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from calving.model.events import NOTHING_ATTACHED, Attachment, Envelope, Event, Parked, Publication, TableId
from calving.model.forms import OLDEST, StoredForm
from calving.model.marks import TableMark
from calving.model.offsets import ControlOffsets, Spans, Topic
from calving.model.text import commit_text, counted, listed, offsets_text
from calving.protocol.ledger import SourceProgress


@dataclass(frozen=True, slots=True)
class RunBatch:
    """Read, convert and write these spans, then call ``WorkerMachine.finished`` with the same number."""

    number: int
    spans: Spans

    def __str__(self) -> str:
        return f"RunBatch {self.number}: {listed([f'{tp} {span}' for tp, span in self.spans.items()])}"


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish atomically, then call ``WorkerMachine.published``. On any error discard the worker and make a new one."""

    publication: Publication

    def __str__(self) -> str:
        return f"Publish {self.publication}"


@dataclass(frozen=True, slots=True)
class RequestCycle:
    """Publish atomically. On any error discard the worker and make a new one."""

    publication: Publication

    def __str__(self) -> str:
        return "RequestCycle"


@dataclass(frozen=True, slots=True)
class Announce:
    """Write the coordinator's own events to the control log."""

    events: tuple[Event, ...]

    def __str__(self) -> str:
        return f"Announce {'; '.join(map(str, self.events))}"


@dataclass(frozen=True, slots=True)
class CommitTables:
    """Commit each table on its own by rule C6, and call ``Coordinator.settled`` for each table when its commit is
    done.
    """

    commit_id: UUID
    tables: Mapping[TableId, tuple[Envelope, ...]]
    read: ControlOffsets
    progress: SourceProgress
    valid_through_us: int | None
    marks: Mapping[TableId, TableMark] = field(default_factory=dict)
    """The tables as last loaded. If a table's mark is older now, the catalog shows an older state of it."""
    parked: Mapping[TableId, Parked] = field(default_factory=dict)
    """Parked commits, to be committed before the entries of their tables."""
    park: frozenset[TableId] = frozenset()
    """Tables whose commits are parked if they fail."""
    form: StoredForm = OLDEST
    """The form in which the tables are written."""
    disputed: frozenset[TableId] = frozenset()
    """Tables that workers commit to different branches, or whose rows they change in different ways, as far as this
    worker has heard. None of their files may be committed.
    """
    heard_all: bool = False
    """Whether all workers have told their branches. Then files of the other tables go to the branches of this worker,
    whatever branches they were written for.
    """
    has_read: bool = True
    """Whether no older entry of the control log is unread, or the leader has waited long enough for one. Otherwise it
    may not know all workers that change rows of a table, and keeps the order of all files.
    """

    def __str__(self) -> str:
        tables = listed(
            [
                f"{'.'.join(table)} ({counted(len(entries), 'entry', 'entries')})"
                for table, entries in self.tables.items()
            ]
        )
        return f"CommitTables {commit_text(self.commit_id)} {tables}; read up to {offsets_text(self.read)}"


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Save ``position`` and write ``events`` with ``attached``, atomically."""

    position: ControlOffsets
    events: tuple[Event, ...]
    attached: Attachment = NOTHING_ATTACHED
    departed: frozenset[Topic] = frozenset()
    """Topics whose stored positions are deleted in the same atomic write."""

    def __str__(self) -> str:
        return f"Acknowledge {'; '.join(map(str, self.events))}; saved position {offsets_text(self.position)}"


WorkerEffect = RunBatch | Publish | RequestCycle
CoordinatorEffect = Announce | CommitTables | Acknowledge
