"""The five events that workers and the coordinator exchange over the control log."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from calving.model.dead_letters import DeadLetter
from calving.model.files import DataFile
from calving.model.forms import OLDEST, StoredForm
from calving.model.marks import TableMark
from calving.model.members import Member
from calving.model.offsets import TRUNCATED, Advances, ControlOffsets, Coverage, TopicPartition, as_key
from calving.model.tables import Branches
from calving.model.text import commit_text, counted, listed

NO_COMMIT = UUID(int=0)
"""Commit id of files published outside a commit cycle, for example if a partition is handed over before the first
cycle.
"""


TableId = tuple[str, ...]
"""Namespace levels and name of a table."""


@dataclass(frozen=True, slots=True, order=True)
class TableReference:
    """A table as events name it. ``table_uuid`` is None if the writer did not know the UUID."""

    catalog: str
    namespace: tuple[str, ...]
    name: str
    table_uuid: UUID | None = None

    @property
    def identifier(self) -> TableId:
        """Namespace and name, the key for tables: references to one table may differ in catalog name or UUID."""
        return (*self.namespace, self.name)

    def __str__(self) -> str:
        return ".".join(self.identifier)


class PartitionProgress(NamedTuple):
    """How far one source partition got in this cycle. Both fields None: the partition is assigned, but has nothing
    new.
    """

    source: TopicPartition
    offset: int | None = None
    timestamp_us: int | None = None
    """Largest record timestamp, microseconds since the epoch; None if no record had one."""

    def __str__(self) -> str:
        return f"{self.source} to {self.offset}" if self.offset is not None else f"{self.source} idle"


@dataclass(frozen=True, slots=True)
class StartCommit:
    """The coordinator opens a commit cycle: each worker answers with DataWritten and DataComplete. The coordinator
    repeats the event while answers are missing. A worker answers once in a cycle for each partition.
    """

    commit_id: UUID

    def __str__(self) -> str:
        return f"StartCommit {commit_text(self.commit_id)}"


@dataclass(frozen=True, slots=True)
class DataWritten:
    """A worker has written files for one table. The files are no part of the table before the coordinator commits them.

    ``commit_id`` is the cycle in which the files were published, or NO_COMMIT. It does not bind the files to that
    cycle: the next commit takes them. One publication may have several of these events for one table.
    """

    commit_id: UUID
    table: TableReference
    data_files: tuple[DataFile, ...] = ()
    delete_files: tuple[DataFile, ...] = ()

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All of them."""
        return (*self.data_files, *self.delete_files)

    def __str__(self) -> str:
        files = [counted(len(self.data_files), "data file")]
        if self.delete_files:
            files.append(counted(len(self.delete_files), "delete file"))
        return f"DataWritten {commit_text(self.commit_id)} {self.table}, {', '.join(files)}"


@dataclass(frozen=True, slots=True)
class DataComplete:
    """A worker's answer to StartCommit: how far each of its partitions got. It follows the DataWritten events with the
    files of these partitions.

    A commit waits for the answers of all partitions, or for its timeout. ``assignments`` may name only some of the
    worker's partitions; a later answer names the others.
    """

    commit_id: UUID
    assignments: tuple[PartitionProgress, ...] = ()

    def __str__(self) -> str:
        return f"DataComplete {commit_text(self.commit_id)} {listed(self.assignments)}"


@dataclass(frozen=True, slots=True)
class CommitToTable:
    """The coordinator has committed the files of a table. ``snapshot_id`` is None if the table held the files before.

    ``valid_through_us``: all records up to this time are in the table, in microseconds since the epoch; None if
    unknown, because an answer was missing or a partition had no timestamp.
    """

    commit_id: UUID
    table: TableReference
    snapshot_id: int | None = None
    valid_through_us: int | None = None

    def __str__(self) -> str:
        return f"CommitToTable {commit_text(self.commit_id)} {self.table}, snapshot {self.snapshot_id}"


@dataclass(frozen=True, slots=True)
class CommitComplete:
    """The coordinator ends a cycle; workers owe no answer until the next StartCommit.

    ``valid_through_us``: all records up to this time are in all tables, in microseconds since the epoch. It is None if
    unknown, and while a table waits for its commit.
    """

    commit_id: UUID
    valid_through_us: int | None = None

    def __str__(self) -> str:
        through = "" if self.valid_through_us is None else f", valid through {self.valid_through_us} us"
        return f"CommitComplete {commit_text(self.commit_id)}{through}"


Event = StartCommit | DataWritten | DataComplete | CommitToTable | CommitComplete


class Leader(NamedTuple):
    """The worker that leads. ``url`` is the address of its status server for other hosts; empty if it has no server. A
    loopback address works on ``host`` only.
    """

    member: str
    host: str
    url: str


class WorkerEnd(NamedTuple):
    """The end of a worker that ended with an error."""

    version: str
    at_ms: int
    """Milliseconds since the epoch."""
    member: str
    host: str
    error: str
    """One line."""


@dataclass(frozen=True, slots=True)
class Parked:
    """Commits that a failing table could not take. They are kept in files, so that no coordinator has to read their
    entries again.

    ``last`` is the newest file; each file names the one before it. ``waiting`` is a superset of the source offsets of
    these commits.
    """

    last: str
    entries: int
    waiting: Coverage


Place = tuple[int, int]
"""Partition and offset of an entry of the control log."""


class TargetState(StrEnum):
    """The state of a sink that an operator has asked for, as Kafka Connect names it. In ``STOPPED`` no worker is a
    member of the group, also after a restart of the process.
    """

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class Attachment:
    """Data that a coordinator attaches to its events for its successor, as headers: Java refuses new fields in events.

    All fields but ``leader``, ``form`` and ``state`` are set with CommitComplete only.
    """

    settled: Coverage = field(default_factory=dict)
    """All offsets known to be in the tables."""
    marks: Mapping[TableId, TableMark] = field(default_factory=dict)
    """The tables as the coordinator last loaded them."""
    parked: Mapping[TableId, Parked] = field(default_factory=dict)
    """All parked commits."""
    released: frozenset[Place] = frozenset()
    """Entries of DataWritten that an operator has released: no table gets their files."""
    leader: Leader | None = None
    """The coordinator that sent the event; None if unknown."""
    restarted: frozenset[TopicPartition] = frozenset()
    """Partitions whose offsets have restarted, with or without settled offsets since."""
    restarts: Mapping[TopicPartition, Place] = field(default_factory=dict)
    """For each of these partitions, the first entry of the publication of its last restart. Earlier versions leave it
    empty.
    """
    form: StoredForm = OLDEST
    """With StartCommit and CommitComplete: the form in use. With a worker's event: the form that it is written in.
    Earlier versions leave it out.
    """
    read: ControlOffsets = field(default_factory=dict)
    """The next control offset that the coordinator had not read, by partition. Earlier versions leave it empty."""
    members: tuple[Member, ...] = ()
    """While workers have different settings: one with the usual ones, and then those with others. A store may have
    removed their own answers.
    """
    unanswered: int = 0
    """How many partitions had not answered when the cycle ended. Earlier versions leave it out."""
    state: TargetState | None = None
    """The state that an operator has asked for; None if the event tells nothing of it."""


NOTHING_ATTACHED = Attachment()


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event, its place in the control log, and the data of its message's headers.

    ``spans``, with DataWritten and DataComplete: the source offsets that the publication covers. The last span of a
    partition is the publication's own; other publications cover the offsets below it. Senders other than calving leave
    ``spans`` empty.

    ``restarted``: partitions of ``spans`` whose offsets have restarted. Earlier spans describe records that are gone.

    ``parts``, with DataComplete: the number of DataWritten entries in its publication; None if unknown. ``attached``:
    the coordinator's attachment to the event; with a worker's event only its form. ``writer``: the version of calving
    that has published it; None for a version before 0.2.0, and for other senders. ``end``, with DataComplete: the end
    of the worker that sent it; it covers nothing then, and answers no cycle. ``paused_ms``, with DataComplete: since
    when its worker is paused, in milliseconds since the epoch; None if it is not, or unknown. ``member``, with
    DataComplete: the worker that sent it, as it describes itself; None for a version before 0.2.0, and for other
    senders. ``branch``, with DataWritten: the branch to which its worker commits the table; None if it does not tell.
    ``ordered``, with DataWritten: whether its worker's settings change rows of the table, so that the order counts.
    ``wanted``, with DataComplete: whether its worker asks for a cycle. ``sender``: the member that has sent it, as the
    control log names it. ``at_us``: when it was made, by its sender's clock, in microseconds since the epoch; None if
    unknown.
    """

    partition: int
    offset: int
    event: Event
    spans: Coverage = field(default_factory=dict)
    parts: int | None = None
    attached: Attachment = NOTHING_ATTACHED
    restarted: frozenset[TopicPartition] = frozenset()
    writer: str | None = None
    end: WorkerEnd | None = None
    paused_ms: int | None = None
    member: Member | None = None
    branch: str | None = None
    ordered: bool = False
    wanted: bool = False
    sender: str = field(default="", compare=False, repr=False)
    at_us: int | None = field(default=None, compare=False, repr=False)

    @property
    def publication(self) -> Hashable:
        """The key of the entry's publication: no two publications cover the same offsets."""
        return as_key(self.spans), self.restarted

    @property
    def place(self) -> Place:
        """The entry's partition and offset in the control log."""
        return self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Publication:
    """One atomic write of a worker: its events, its dead letters, and the advances of its stored source positions.

    Successive publications cover each partition of a topic from offset 0 on, without a gap. ``spans`` holds
    the offsets that were read and the offsets that are skipped for good. An offset is skipped if it is below a first
    position, or no longer on the broker. Other publications cover the offsets below the start of a span. ``topic_ids``
    are Kafka's ids of the topics to which the positions belong, as far as they are known.
    """

    events: tuple[DataWritten | DataComplete, ...]
    advances: Advances
    spans: Coverage
    dead_letters: tuple[DeadLetter, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    truncated: frozenset[TopicPartition] = frozenset()
    """Partitions whose log once lost its end: the broker has assigned offsets again that tables already hold."""
    restarted: frozenset[TopicPartition] = frozenset()
    """Partitions of ``spans`` whose offsets have restarted since the stored position."""
    paused_ms: int | None = None
    """Since when the worker is paused, in milliseconds since the epoch; None if it is not."""
    member: Member | None = None
    """The worker, as it describes itself."""
    branches: Branches | None = None
    """The branches to which the worker commits."""
    ordered: frozenset[TableId] = frozenset()
    """The tables of its events whose rows the worker's settings change."""
    wanted: bool = False  # the worker asks for a commit cycle

    def __str__(self) -> str:
        moves = [f"{tp} from {'nothing' if a.start is None else a.start} to {a.end}" for tp, a in self.advances.items()]
        letters = f"; {counted(len(self.dead_letters), 'dead letter')}" if self.dead_letters else ""
        return f"{'; '.join(map(str, self.events))}; positions: {listed(moves) or 'unchanged'}{letters}"

    def branch_of(self, event: DataWritten | DataComplete) -> str | None:
        """The branch to which the worker commits the table of an event; None if it does not tell, or there is none."""
        if self.branches is None or not isinstance(event, DataWritten):
            return None
        return self.branches.of(event.table.identifier)

    @property
    def identities(self) -> dict[TopicPartition, str]:
        """The topic id of each position, empty if unknown, with a mark if the partition was truncated."""
        return {
            tp: self.topic_ids.get(tp.topic, "") + (TRUNCATED if tp in self.truncated else "") for tp in self.advances
        }


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Files of one batch for one table: ``delete_files`` delete earlier rows, and then ``data_files`` are added."""

    data_files: tuple[DataFile, ...] = ()
    delete_files: tuple[DataFile, ...] = ()


Written = Mapping[TableReference, Sequence[TableFiles]]
"""For each table one set of files after the other."""
