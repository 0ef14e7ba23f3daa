"""The parts of the status. Times are seconds since the epoch. A table's name is ``namespace.name``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calving.model.events import Leader, WorkerEnd
from calving.model.mutation_counts import MutationCounts
from calving.model.offsets import Coverage, TopicPartition
from calving.protocol.held_back import DEGRADED
from calving.protocol.members import Disagreement
from calving.protocol.rollback import RolledBack
from calving.status.backlog import Backlog
from calving.status.histogram import RECORDS, SECONDS, Histogram
from calving.status.maintenance import NO_MAINTENANCE, MaintenanceStatus

Counts = Mapping[str, int]
NO_SECONDS, NO_SIZES = Histogram.of(SECONDS), Histogram.of(RECORDS)


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """Facts that stay the same while the process runs."""

    name: str
    group: str
    member: str
    version: str
    backend: str
    engine: str
    started_at: float
    interval: float
    """Seconds between commits."""
    timeout: float
    """Seconds for which a commit waits for answers."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition that this worker holds."""

    position: int
    """Next offset that no finished batch has read."""
    end: int
    """The last stable offset, as of the last query."""
    committed: int | None = None
    """Every record below this offset is in its tables, according to the control log; None if unknown."""
    latest_us: int | None = None
    """The largest timestamp of the records that this worker has read."""
    waiting_since: float | None = None
    """When this worker first saw that the partition has records that are in no table yet. The records may be older, if
    they were there before the worker. None if all records are in their tables.
    """

    @property
    def source_lag(self) -> int:
        """Records that are to be read; hidden ones are counted apart."""
        return max(0, self.end - self.position)

    @property
    def commit_lag(self) -> int | None:
        """Records that are not committed yet; None if unknown."""
        return None if self.committed is None else max(0, self.end - self.committed)

    @property
    def not_visible(self) -> int:
        """Records that no reader of the tables sees yet. Without the control log's word: records that are not read."""
        return max(self.source_lag, self.commit_lag or 0)

    def lag_seconds(self, now: float) -> float | None:
        """The age of the latest record that was read; None if no more records are to be read."""
        if not self.source_lag:
            return 0.0
        return None if self.latest_us is None else max(0.0, now - self.latest_us / 1e6)


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """The outcomes of the records of finished batches (I1):
    ``read + copied = written + superseded + deleted + dead letters + filtered``.
    """

    read: Counts = field(default_factory=dict)
    """By topic."""
    written: Counts = field(default_factory=dict)
    """Rows, by table."""
    dead_lettered: Counts = field(default_factory=dict)
    """By the stage that rejected them."""
    filtered: Counts = field(default_factory=dict)
    """By cause."""
    superseded: int = 0
    """Changes of rows that a later change of the same key in the same batch replaced."""
    deleted: int = 0
    """Changes that left no row."""
    copied: int = 0
    """Copies of records that went to several tables, not counting the first table."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Totals of the finished batches of this process, over all restarts of its worker."""

    count: int = 0
    files: int = 0
    """Data files that were written."""
    records: RecordCounts = RecordCounts()
    seconds: Histogram = NO_SECONDS
    sizes: Histogram = NO_SIZES
    """Records of a batch."""
    file_bytes: Mapping[str, Histogram] = field(default_factory=dict)
    """Sizes of written files, by content."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of the tasks, by stage."""
    recent: tuple[tuple[int, int], ...] = ()
    """For each of the last batches: the number of its records, and of its bad records."""
    dead_letters: tuple[str, ...] = ()
    """The first bad records of the last batches, the newest first: the place and the reason of each."""

    @property
    def read(self) -> int:
        return sum(self.records.read.values())

    @property
    def dead_letter_share(self) -> float:
        """The share of dead letters among the records of the last batches."""
        read = sum(read for read, _ in self.recent)
        return sum(bad for _, bad in self.recent) / read if read else 0.0


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The part of the status that the worker's loop writes."""

    joined: bool = False
    prepared: bool = False
    """Whether the start's checks have passed: the backend and the catalog have answered."""
    caught_up: bool = False
    """Whether the control log has been read to its end. Most workers start reading at the end. A worker that leads must
    first read everything from the saved position on, once since the process started.
    """
    paused_at: float | None = None
    """Since when the worker starts no batches, because it was told so; None if it starts batches."""
    leads: bool = False
    partitions: Mapping[TopicPartition, PartitionStatus] = field(default_factory=dict)
    behind: int = 0
    """Records of these partitions that no finished batch has read."""
    hidden: int = 0
    """Records behind open transactions of their producers: they cannot be read yet."""
    batches: Batches = Batches()
    lost: Counts = field(default_factory=dict)
    """Records that were skipped because the broker no longer has them, by topic."""
    undecodable: int = 0
    """Entries of the control log that could not be decoded, or were not signed, and were skipped."""
    publications: Counts = field(default_factory=dict)
    """By outcome."""
    refused_in_a_row: int = 0
    """Publications that were refused since the last successful one."""
    restarts: int = 0
    """How often the worker has started over after an error."""
    error: str | None = None
    """The last error after which the worker started over."""
    passed_over: Counts = field(default_factory=dict)
    """Records that nobody has read because somebody else has moved a position, by topic."""
    unsigned: tuple[str, float] | None = None
    """A sentence on the last entry of the group that was not signed, and when it was read; None if there was none."""
    disagreements: tuple[Disagreement, ...] = ()
    """Workers with other settings than this one."""
    unread: Coverage = field(default_factory=dict)
    """The offsets of such records that this worker has seen, until an operator accepts them."""
    cluster: str = ""
    """The id of the cluster of Kafka that records are read from; empty until it is known."""
    backlog: Backlog = field(default_factory=Backlog)
    """What this worker has read, and has to read."""
    stopped: bool = False
    """Whether an operator has stopped the sink, and this worker has left the group."""
    latencies: Histogram = NO_SECONDS
    """How long the oldest record of each partition's publication took until readers saw it."""

    @property
    def paused(self) -> bool:
        """Whether the worker was told to start no batches."""
        return self.paused_at is not None

    @property
    def not_visible(self) -> int:
        """Records of these partitions that no reader of the tables sees yet, hidden ones included."""
        return self.hidden + sum(partition.not_visible for partition in self.partitions.values())

    @property
    def waiting_since(self) -> float | None:
        """When this worker first saw the oldest of these records; None if there is none."""
        seen = (partition.waiting_since for partition in self.partitions.values())
        return min((at for at in seen if at is not None), default=None)


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table, according to the control log. None means that no entry since this process started has told the value."""

    committed_at: float | None = None
    snapshot_id: int | None = None
    valid_through_us: int | None = None
    buffered_files: int = 0
    buffered_since: float | None = None
    cycles: int = 0
    """Commit cycles that ended without committing the oldest of these files."""


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The part of the status that comes from the control log."""

    tables: Mapping[str, TableStatus] = field(default_factory=dict)
    cycle_at: float | None = None
    """When the last CommitComplete was read."""
    valid_through_us: int | None = None
    leader: Leader | None = None
    """The leader that the newest entries name; None if none does."""
    end: WorkerEnd | None = None
    """The last worker that has ended with an error, if no commit cycle has ended since."""
    had_all_answers: bool = False
    """Whether a cycle has ended to which all partitions had answered. A coordinator of an earlier version does not tell
    that some had not.
    """

    @property
    def degraded(self) -> dict[str, int]:
        """Tables with files that are not committed after several commit cycles, each with the number of cycles."""
        return {name: table.cycles for name, table in self.tables.items() if table.cycles >= DEGRADED}


STEPS = ("load", "resolve", "write", "commit")
"""The steps of a table's commit. ``load``: load the table. ``resolve``: decide which files are new, and find the
changed rows. ``write``: write deletes and manifests. ``commit``: call the catalog.
"""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One table in one cycle. ``outcome``: done; unchanged, because the table held every file already; failed; or late.

    ``steps``: seconds, over all tries; pauses between tries are only in ``seconds``. ``commit_id``: the cycle that
    began the commit. A late commit runs on after its cycle.
    """

    table: str
    outcome: str
    seconds: float
    steps: Mapping[str, float] = field(default_factory=dict)
    files: int = 0
    records: int = 0
    reason: str | None = None
    total_files: int | None = None
    total_deletes: int | None = None
    total_bytes: int | None = None
    mutations: MutationCounts | None = None
    commit_id: str = ""


@dataclass(frozen=True, slots=True)
class CommitCycle:
    """A commit cycle that has ended. ``seconds`` count from the cycle's StartCommit, ``commit_seconds`` from the start
    of the first table's commit.
    """

    commit_id: str
    ended_at: float
    outcome: str
    """``full``; ``partial``: without the answers of some partitions; ``empty``: with nothing to commit."""
    seconds: float
    commit_seconds: float
    valid_through_us: int | None = None
    unanswered: tuple[str, ...] = ()
    """Partitions whose answers the cycle lacks."""
    committed: int = 0
    """Number of committed tables."""
    failed: int = 0
    tables: tuple[TableCommit, ...] = ()
    steps: Mapping[str, float] = field(default_factory=dict)
    """The seconds of each of ``CYCLE_STEPS``, as far as this process knows them."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How many commits of a table failed in a row, and the reason of the last failure."""

    times: int
    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorStatus:
    """Totals of the coordinators of this process, over all times that the process led."""

    cycles: Counts = field(default_factory=dict)
    """By outcome."""
    recent: tuple[CommitCycle, ...] = ()
    """The newest first."""
    cycle_seconds: Histogram = NO_SECONDS
    step_seconds: Mapping[str, Histogram] = field(default_factory=dict)
    commits: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By table and outcome."""
    failing: Mapping[str, Failure] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    """Tables that lacked offsets in their last two commits, and these offsets."""
    buffered: int = 0
    """Control entries that are not in their tables yet."""
    files: int = 0
    records: int = 0
    """Committed records."""
    totals: Mapping[str, TableCommit] = field(default_factory=dict)
    """By table, the last commit that reported the table's totals."""
    mutations: Mapping[str, MutationCounts] = field(default_factory=dict)
    """By table: the counts of all its commits."""
    changes: Mapping[str, TableCommit] = field(default_factory=dict)
    """By table, the last commit that changed rows."""
    key_cache: Mapping[str, int] = field(default_factory=dict)
    """Bytes by table."""
    rolled_back: Mapping[str, RolledBack] = field(default_factory=dict)
    """By table, a rollback that nobody has answered."""
    unread: Coverage = field(default_factory=dict)
    """Offsets that nobody has read, though the sink has read later ones, as the control log told after two cycles."""
    held_back: Mapping[str, str] = field(default_factory=dict)
    """Mutation tables with publications that are not committed after several cycles, each with a text on the missing
    offsets.
    """


@dataclass(frozen=True, slots=True)
class Status:
    """The status of one worker process, and of the sink as that process knows it."""

    sink: SinkFacts
    worker: WorkerStatus = WorkerStatus()
    log: LogStatus = LogStatus()
    coordinator: CoordinatorStatus = CoordinatorStatus()
    maintenance: MaintenanceStatus = NO_MAINTENANCE
    cycle_steps: Mapping[str, Histogram] = field(default_factory=dict)
    """The seconds of each of ``CYCLE_STEPS``, over all cycles that have ended since the start of this process."""

    @property
    def led(self) -> CoordinatorStatus:
        """The coordinator's status if this worker leads, otherwise an empty status."""
        return self.coordinator if self.worker.leads else CoordinatorStatus()
