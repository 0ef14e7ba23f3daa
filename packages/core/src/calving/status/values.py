"""The value itself. Times are seconds since the epoch. A table's name is ``namespace.name``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calving.model.events import Leader
from calving.model.mutations import MutationCounts
from calving.model.offsets import TopicPartition
from calving.protocol.waiting import DEGRADED
from calving.status.histogram import RECORDS, SECONDS, Histogram

Counts = Mapping[str, int]
NO_SECONDS, NO_SIZES = Histogram.of(SECONDS), Histogram.of(RECORDS)


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """What does not change while the process runs."""

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
    """The last stable offset, as of the last look."""
    committed: int | None = None
    """Up to here every record is in its tables, as far as the control log says."""
    latest_us: int | None = None
    """The largest timestamp of the records that this worker has read."""

    @property
    def source_lag(self) -> int:
        """Records that were not read yet."""
        return max(0, self.end - self.position)

    @property
    def commit_lag(self) -> int | None:
        """Records that are not in their tables yet."""
        return None if self.committed is None else max(0, self.end - self.committed)

    def lag_seconds(self, now: float) -> float | None:
        """Age of the latest record that was read, while there are others behind it."""
        if not self.source_lag:
            return 0.0
        return None if self.latest_us is None else max(0.0, now - self.latest_us / 1e6)


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """What became of the records of finished batches (I1):
    ``read + copied = written + superseded + deleted + dead letters + filtered``.
    """

    read: Counts = field(default_factory=dict)
    """By topic."""
    written: Counts = field(default_factory=dict)
    """Rows, by table."""
    dead_lettered: Counts = field(default_factory=dict)
    """By the stage that refused them."""
    filtered: Counts = field(default_factory=dict)
    """By cause."""
    superseded: int = 0
    """Changes of rows after which another one of their key came in the batch."""
    deleted: int = 0
    """Changes that left no row."""
    copied: int = 0
    """What became of records that went to several tables, beyond the first."""


@dataclass(frozen=True, slots=True)
class Batches:
    """What the finished batches of this process have done, over all restarts."""

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
    """Of the last batches: records, and how many of them were bad."""
    dead_letters: tuple[str, ...] = ()
    """The last batches' first bad records, the newest first: where, and why."""

    @property
    def read(self) -> int:
        return sum(self.records.read.values())

    @property
    def dead_letter_share(self) -> float:
        """Of the records of the last batches."""
        read = sum(read for read, _ in self.recent)
        return sum(bad for _, bad in self.recent) / read if read else 0.0


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What the worker's loop knows."""

    joined: bool = False
    prepared: bool = False
    """Whether the checks of the start have passed: backend and catalog have answered."""
    caught_up: bool = False
    """Whether the control log was heard to its end. A worker listens from the end on; one that leads has to hear first
    all from the saved position on, once since the start.
    """
    paused: bool = False
    leads: bool = False
    partitions: Mapping[TopicPartition, PartitionStatus] = field(default_factory=dict)
    behind: int = 0
    """Records of these partitions that no finished batch has read."""
    hidden: int = 0
    """Records behind open transactions of their producers: they cannot be read yet."""
    batches: Batches = Batches()
    lost: Counts = field(default_factory=dict)
    """Records that the broker no longer had and that were skipped, by topic. They were never read."""
    undecodable: int = 0
    """Entries of the control log that could not be decoded and were skipped."""
    publications: Counts = field(default_factory=dict)
    """By outcome."""
    refused_in_a_row: int = 0
    """Publications that were refused since the last one that was not."""
    restarts: int = 0
    """How often the worker has started over after an error."""
    error: str | None = None
    """The last such error."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table, as every worker hears of it in the control log. None: nothing was heard since this process started."""

    committed_at: float | None = None
    snapshot_id: int | None = None
    valid_through_us: int | None = None
    buffered_files: int = 0
    buffered_since: float | None = None
    cycles: int = 0
    """Commit cycles that have ended without the oldest of these files."""


@dataclass(frozen=True, slots=True)
class LogStatus:
    """What was heard in the control log."""

    tables: Mapping[str, TableStatus] = field(default_factory=dict)
    cycle_at: float | None = None
    """When a commit cycle was last heard to end."""
    valid_through_us: int | None = None
    leader: Leader | None = None
    """Who led when the log was last heard; None: nobody has said so."""

    @property
    def degraded(self) -> dict[str, int]:
        """Tables whose files have waited for several commit cycles, and for how many."""
        return {name: table.cycles for name, table in self.tables.items() if table.cycles >= DEGRADED}


STEPS = ("load", "resolve", "write", "commit")
"""Of the commit of one table: load the table, decide what is new, write manifests, ask the catalog."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One table in one cycle. ``outcome``: done; unchanged, because it had everything; failed; late."""

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


@dataclass(frozen=True, slots=True)
class Cycle:
    """A commit cycle that has ended. ``seconds`` count from its StartCommit, ``commit_seconds`` from the moment when
    the tables were begun.
    """

    commit_id: str
    ended_at: float
    outcome: str
    """full; partial, without the answers of some partitions; empty, with nothing to commit."""
    seconds: float
    commit_seconds: float
    valid_through_us: int | None = None
    unanswered: tuple[str, ...] = ()
    """Partitions that it went on without."""
    committed: int = 0
    """Tables."""
    failed: int = 0
    tables: tuple[TableCommit, ...] = ()

    @property
    def full(self) -> bool:
        """Whether all partitions have answered and all tables were committed."""
        return not self.unanswered and not self.failed


@dataclass(frozen=True, slots=True)
class Failure:
    """How often in a row a table could not be committed, and why the last time."""

    times: int
    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorStatus:
    """What the coordinator of this process has done, over all the times that it led."""

    cycles: Counts = field(default_factory=dict)
    """By outcome."""
    recent: tuple[Cycle, ...] = ()
    """The newest first."""
    cycle_seconds: Histogram = NO_SECONDS
    step_seconds: Mapping[str, Histogram] = field(default_factory=dict)
    commits: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By table and outcome."""
    failing: Mapping[str, Failure] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    """Tables that lack offsets which two commits have passed over, and these."""
    buffered: int = 0
    """Control entries that are not in their tables yet."""
    files: int = 0
    records: int = 0
    """Committed."""
    totals: Mapping[str, TableCommit] = field(default_factory=dict)
    """By table, the last commit that told the table's totals."""
    mutations: Mapping[str, MutationCounts] = field(default_factory=dict)
    """By table, of all its commits."""
    key_cache: Mapping[str, int] = field(default_factory=dict)
    """Bytes by table."""
    held_back: Mapping[str, str] = field(default_factory=dict)
    """Mutation tables with publications that have waited for several cycles, and what for."""


@dataclass(frozen=True, slots=True)
class Status:
    """Everything that one worker process knows of the sink."""

    sink: SinkFacts
    worker: WorkerStatus = WorkerStatus()
    log: LogStatus = LogStatus()
    coordinator: CoordinatorStatus = CoordinatorStatus()

    @property
    def led(self) -> CoordinatorStatus:
        """What the coordinator says of the tables now: nothing once another worker leads, whatever it said last."""
        return self.coordinator if self.worker.leads else CoordinatorStatus()
