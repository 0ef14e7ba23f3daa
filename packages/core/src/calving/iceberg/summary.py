"""The entries of a snapshot's summary: counts, the program that made it, and times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries

from calving.iceberg.history import whole_number
from calving.iceberg.manifests import CONTENT_SIZE, at, is_vector
from calving.model.mutation_counts import MutationCounts
from calving.model.text import natural
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
