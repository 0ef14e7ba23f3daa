"""What is told of a commit: the entries of its snapshot's summary, which are counts, the program that made it, and
times; and its report for the status of the sink, with the time that each step took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from uuid import UUID

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries

from calving.iceberg.history import whole_number
from calving.iceberg.manifests import CONTENT_SIZE, at, is_vector
from calving.model.tables import MutationCounts
from calving.model.text import natural
from calving.protocol.commit import Settled
from calving.protocol.coordinator import Committed, Failed
from calving.status.values import TableCommit
from calving.version import __version__
from calving.writing.partitioning import partition_path

_SIZE = 5
"""The index of ``file_size_in_bytes``."""
ENGINE, ENGINE_VERSION = "engine-name", "engine-version"
_MUTATIONS = "calving.mutations."


def engine() -> dict[str, str]:
    """The entries that name this program and its version."""
    return {ENGINE: "calving", ENGINE_VERSION: __version__}


def mutation_summary(counts: MutationCounts, seconds: Mapping[str, float]) -> dict[str, str]:
    """Summary entries with the counts of a commit's row mutations, and the time of each step."""
    times = {f"{name}-ms": round(each * 1000) for name, each in seconds.items()}
    return {f"{_MUTATIONS}{name}": str(value) for name, value in {**asdict(counts), **times}.items()}


def mutations_in(summary: Mapping[str, str]) -> dict[str, int]:
    """The counts that ``mutation_summary`` has written, by name; empty for a commit that only appended."""
    names = [*(f.name for f in fields(MutationCounts)), *(f"{step}-ms" for step in ("load", "resolve", "write"))]
    said = {name: natural(summary.get(f"{_MUTATIONS}{name}")) for name in names}
    return {name: number for name, number in said.items() if number is not None}


class _Collector(SnapshotSummaryCollector):
    """Names partitions as file paths do; pyiceberg would print Python dates. Counts a deletion vector by its own bytes,
    as Java does.
    """

    def __init__(self, partition_summary_limit: int) -> None:
        super().__init__(partition_summary_limit)
        self._vectors = {"added": 0, "removed": 0}

    def add_file(
        self, data_file: DataFile, schema: Schema, partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    ) -> None:
        self._vectors["added"] += is_vector(data_file)
        super().add_file(_sized(data_file), schema, partition_spec)

    def remove_file(
        self, data_file: DataFile, schema: Schema, partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    ) -> None:
        self._vectors["removed"] += is_vector(data_file)
        super().remove_file(_sized(data_file), schema, partition_spec)

    def update_partition_metrics(
        self, partition_spec: PartitionSpec, file: DataFile, is_add_file: bool, schema: Schema
    ) -> None:
        metrics = self.partition_metrics[partition_path(file.partition, partition_spec, schema)]
        (metrics.add_file if is_add_file else metrics.remove_file)(file)

    def build(self) -> dict[str, str]:
        properties = super().build()
        for way, vectors in self._vectors.items():
            if vectors:
                properties[f"{way}-dvs"] = str(vectors)
                files = int(properties.pop(f"{way}-position-delete-files")) - vectors
                if files:
                    properties[f"{way}-position-delete-files"] = str(files)
        return properties


def _sized(file: DataFile) -> DataFile:
    """``file``; a deletion vector gets its own size instead of the size of its Puffin file."""
    if not is_vector(file):
        return file
    own = DataFile(*file._data)
    own.spec_id = file.spec_id
    own._data[_SIZE] = at(file, CONTENT_SIZE)
    return own


def summary_of(
    metadata: TableMetadata,
    parent: int | None,
    operation: Operation,
    properties: Mapping[str, str],
    *,
    added: Iterable[DataFile],
    removed: Iterable[DataFile],
    sources: Schema,
) -> Summary:
    """The summary of a snapshot that adds and removes these files. ``sources``: has the source columns of all specs.

    :raises TableTroubleError: a property of the table is no number.
    """
    limit = whole_number(
        metadata.properties,
        TableProperties.WRITE_PARTITION_SUMMARY_LIMIT,
        TableProperties.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT,
    )
    collector = _Collector(partition_summary_limit=limit)
    specs = metadata.specs()
    for file in added:
        collector.add_file(data_file=file, partition_spec=specs[file.spec_id], schema=sources)
    for file in removed:
        collector.remove_file(data_file=file, partition_spec=specs[file.spec_id], schema=sources)
    previous = metadata.snapshot_by_id(parent) if parent is not None else None
    before = previous.summary if previous is not None else None
    # pyiceberg counts what a snapshot changes, but refuses one that says it replaces.
    counted = Operation.OVERWRITE if operation is Operation.REPLACE else operation
    return update_snapshot_summaries(
        Summary(operation=counted, **{**properties, **collector.build()}),
        None if before is None else {name: text for name, text in _entries(before) if _is_sound(name, text)},
    ).model_copy(update={"operation": operation})


def _entries(summary: Summary) -> Iterator[tuple[str, str]]:
    """With the operation, so that they are not none even if all totals are left out: pyiceberg would count from 0."""
    yield "operation", summary.operation.value
    yield from summary.additional_properties.items()


def _is_sound(name: str, text: str) -> bool:
    """Whether the next snapshot can count from an entry. Java, too, leaves out a total that is no number."""
    return not name.startswith("total-") or natural(text) is not None


def java_date_time(micros: int) -> str:
    """Java's ``OffsetDateTime.toString()`` in UTC: no seconds if zero, a fraction of 3 or 6 digits."""
    seconds, fraction = divmod(micros, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    text = moment.strftime("%Y-%m-%dT%H:%M")
    if moment.second or fraction:
        text += moment.strftime(":%S")
    if fraction:
        text += f".{fraction // 1000:03d}" if fraction % 1000 == 0 else f".{fraction:06d}"
    return text + "Z"


class Stopwatch:
    """Seconds by step, added up over all tries. Steps do not nest, and pauses between tries belong to no step."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self.steps: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = self._clock()
        try:
            yield
        finally:
            self.add(name, self._clock() - started)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds that were measured elsewhere."""
        self.steps[name] = self.steps.get(name, 0.0) + seconds

    @property
    def seconds(self) -> float:
        """Seconds since the stopwatch was made."""
        return self._clock() - self._started


class Report:
    """The report of one table in one cycle, which may include several parked commits."""

    def __init__(self, table: str, commit_id: UUID) -> None:
        self._table, self._commit_id = table, commit_id
        self.watch = Stopwatch()
        self._files = self._records = 0
        self._head: Mapping[str, str] = {}
        self._counts: MutationCounts | None = None

    def settled(self, done: Settled, head: Mapping[str, str], counts: MutationCounts | None) -> None:
        """Add a settled commit. ``head``: the summary of the branch's head, if the head has changed. ``counts``: the
        commit's row mutations.
        """
        if done.snapshot_id is not None and counts is not None:
            self._counts = (self._counts or MutationCounts()) + counts
        self._files += len(done.admitted.data_files) + len(done.admitted.delete_files)
        self._records += sum(f.record_count for f in done.admitted.data_files)
        self._head = head or self._head

    def value(self, outcome: Committed | Failed) -> TableCommit:
        """The report. Its total seconds exceed the sum of its steps, because pauses between tries belong to no step."""
        failed = isinstance(outcome, Failed)
        return TableCommit(
            table=self._table,
            outcome="failed" if failed else "done" if self._head else "unchanged",
            seconds=self.watch.seconds,
            steps=dict(self.watch.steps),
            files=self._files,
            records=self._records,
            reason=outcome.reason if isinstance(outcome, Failed) else None,
            total_files=self._total("total-data-files"),
            total_deletes=self._total("total-delete-files"),
            total_bytes=self._total("total-files-size"),
            mutations=self._counts,
            commit_id=str(self._commit_id),
        )

    def _total(self, name: str) -> int | None:
        return natural(self._head.get(name))
