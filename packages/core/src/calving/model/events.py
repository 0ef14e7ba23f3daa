"""The five events that workers and the coordinator exchange over the control log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from calving.model.coverage import Coverage
from calving.model.dead_letters import DeadLetter
from calving.model.files import DataFile
from calving.model.offsets import TRUNCATED, Advances, TopicPartition
from calving.model.text import commit_text, counted, listed

NO_COMMIT = UUID(int=0)
"""Commit id of files published outside a commit cycle, as when a partition is handed over before the first one."""


TableId = tuple[str, ...]
"""Namespace levels and name of a table."""


@dataclass(frozen=True, slots=True, order=True)
class TableReference:
    """A table as events name it. ``table_uuid`` is None where the writer did not know it."""

    catalog: str
    namespace: tuple[str, ...]
    name: str
    table_uuid: UUID | None = None

    @property
    def identifier(self) -> TableId:
        """What tells tables apart: references to one table may differ in catalog name or UUID."""
        return (*self.namespace, self.name)

    def __str__(self) -> str:
        return ".".join(self.identifier)


class PartitionProgress(NamedTuple):
    """How far one source partition got in this cycle. Both None: assigned, but nothing new."""

    source: TopicPartition
    offset: int | None = None
    timestamp_us: int | None = None
    """Largest record timestamp, microseconds since the epoch; None if no record had one."""

    def __str__(self) -> str:
        return f"{self.source} to {self.offset}" if self.offset is not None else f"{self.source} idle"


@dataclass(frozen=True, slots=True)
class StartCommit:
    commit_id: UUID

    def __str__(self) -> str:
        return f"StartCommit {commit_text(self.commit_id)}"


@dataclass(frozen=True, slots=True)
class DataWritten:
    commit_id: UUID
    table: TableReference
    data_files: tuple[DataFile, ...] = ()
    delete_files: tuple[DataFile, ...] = ()

    def __str__(self) -> str:
        files = [counted(len(self.data_files), "data file")]
        if self.delete_files:
            files.append(counted(len(self.delete_files), "delete file"))
        return f"DataWritten {commit_text(self.commit_id)} {self.table}, {', '.join(files)}"


@dataclass(frozen=True, slots=True)
class DataComplete:
    commit_id: UUID
    assignments: tuple[PartitionProgress, ...] = ()

    def __str__(self) -> str:
        return f"DataComplete {commit_text(self.commit_id)} {listed(self.assignments)}"


@dataclass(frozen=True, slots=True)
class CommitToTable:
    commit_id: UUID
    table: TableReference
    snapshot_id: int | None = None
    valid_through_us: int | None = None

    def __str__(self) -> str:
        return f"CommitToTable {commit_text(self.commit_id)} {self.table}, snapshot {self.snapshot_id}"


@dataclass(frozen=True, slots=True)
class CommitComplete:
    commit_id: UUID
    valid_through_us: int | None = None

    def __str__(self) -> str:
        through = "" if self.valid_through_us is None else f", valid through {self.valid_through_us} us"
        return f"CommitComplete {commit_text(self.commit_id)}{through}"


Event = StartCommit | DataWritten | DataComplete | CommitToTable | CommitComplete


class Leader(NamedTuple):
    """Who leads. ``url`` is its status server's as others reach it; empty if it has none. A loopback address is good on
    ``host`` only.
    """

    member: str
    host: str
    url: str


class TableMark(NamedTuple):
    """A table that was seen: its UUID, and its last sequence number, which nothing that a table goes through lowers."""

    uuid: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Parked:
    """Commits of a table that does not take its files, kept in storage so that nobody has to hear their entries again.

    ``last`` is the file of the last one, which names the one before it; ``waiting``: what they cover, and maybe more.
    """

    last: str
    entries: int
    waiting: Coverage


Place = tuple[int, int]
"""Partition and offset of an entry of the control log."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """What a coordinator attaches to its events, for whoever leads next; Java refuses new fields in the events.

    All but ``leader`` comes with CommitComplete only.
    """

    settled: Coverage = field(default_factory=dict)
    """All that is known to be in the tables, after a span that ends before it starts where offsets have restarted."""
    marks: Mapping[TableId, TableMark] = field(default_factory=dict)
    """The tables as the coordinator last saw them."""
    parked: Mapping[TableId, Parked] = field(default_factory=dict)
    """All that is parked."""
    released: frozenset[Place] = frozenset()
    """Entries of DataWritten that an operator has released, so that no table gets their files."""
    leader: Leader | None = None
    """The coordinator that sent it; None if it does not say."""


NOTHING_ATTACHED = Attachment()


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event, where in the control log it was found, and what travelled beside it.

    ``spans``, with DataWritten and DataComplete: what their publication covers, for each partition one span, behind
    what is done with elsewhere; a span that ends before it starts says that the topic's offsets have restarted, and
    that it is covered from 0 up to the end. Other senders than calving leave it empty.

    ``parts``, with DataComplete: how many entries of DataWritten its publication has; None if it does not say.
    ``attached``: what its coordinator has attached to it.
    """

    partition: int
    offset: int
    event: Event
    spans: Coverage = field(default_factory=dict)
    parts: int | None = None
    attached: Attachment = NOTHING_ATTACHED

    @property
    def place(self) -> Place:
        """Where it was found."""
        return self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Publication:
    """What a worker publishes in one atomic act: its events, its dead letters, and the move of its source positions.

    ``spans``, of each partition ``within`` its topic, follow each other without a hole, from 0 on: they hold the
    records that were read, and those that the move of a position leaves out for good (below a first position, or gone
    from the broker); what stands before the last one is done with elsewhere. ``topic_ids`` are Kafka's identities of
    the topics that the positions are in, as far as they are known.
    """

    events: tuple[DataWritten | DataComplete, ...]
    advances: Advances
    spans: Coverage
    dead_letters: tuple[DeadLetter, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    truncated: frozenset[TopicPartition] = frozenset()
    """Partitions whose log had lost its end some time: tables hold offsets that were given out again."""

    def __str__(self) -> str:
        moves = [f"{tp} from {'nothing' if a.start is None else a.start} to {a.end}" for tp, a in self.advances.items()]
        letters = f"; {counted(len(self.dead_letters), 'dead letter')}" if self.dead_letters else ""
        return f"{'; '.join(map(str, self.events))}; positions: {listed(moves) or 'unchanged'}{letters}"

    @property
    def identities(self) -> dict[TopicPartition, str]:
        """The identity of each position's topic, empty where it is not known, with a mark if it was truncated."""
        return {
            tp: self.topic_ids.get(tp.topic, "") + (TRUNCATED if tp in self.truncated else "") for tp in self.advances
        }


@dataclass(frozen=True, slots=True)
class TableFiles:
    """What one batch wrote for one table."""

    data_files: tuple[DataFile, ...] = ()
    delete_files: tuple[DataFile, ...] = ()


Written = Mapping[TableReference, TableFiles]
