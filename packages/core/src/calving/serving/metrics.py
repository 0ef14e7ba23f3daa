"""All metrics, each declared once: name, type, labels, description, and how to read it from a status. And a status in
the text form that Prometheus reads.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import (
    Metric as Family,
)
from prometheus_client.registry import Collector

from calving.model.mutation_counts import MutationCounts
from calving.serving.cardinality import by_table, partitions_of, tables_of
from calving.status.health import reasons
from calving.status.histogram import Histogram
from calving.status.maintenance import MaintenanceStatus, TableMaintenance
from calving.status.remedies import Cause
from calving.status.values import Status, TableStatus

Value = float | Histogram
Samples = Iterable[tuple[tuple[str, ...], Value]]
SINK = "sink"
"""The label of every series: the sink's name. It tells sinks apart that share a job of Prometheus."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. ``name`` is the name in Prometheus; the name of a counter ends with ``_total``. ``read`` returns a
    value for each set of ``labels`` from a status and the time.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    labels: tuple[str, ...]
    text: str
    read: Callable[[Status, float], Samples]

    @property
    def series_labels(self) -> tuple[str, ...]:
        """The names of the labels of its series: the sink's, and those that only this metric has."""
        return SINK, *self.labels

    def series(self, status: Status, now: float) -> Samples:
        """Its values, each with the values of ``series_labels``."""
        return [((status.sink.name, *labels), figure) for labels, figure in self.read(status, now)]


def _one(of: Callable[[Status], Value | None]) -> Callable[[Status, float], Samples]:
    def read(status: Status, now: float) -> Samples:
        figure = of(status)
        return [] if figure is None else [((), figure)]

    return read


def _by(of: Callable[[Status], Mapping[str, Value]]) -> Callable[[Status, float], Samples]:
    return lambda status, now: [((key,), figure) for key, figure in of(status).items()]


def _table(of: Callable[[TableStatus], float | None]) -> Callable[[Status, float], Samples]:
    def read(status: Status, now: float) -> Samples:
        return [((name,), figure) for name, table in tables_of(status).items() if (figure := of(table)) is not None]

    return read


def _partition(name: Literal["source_lag", "commit_lag", "seconds"]) -> Callable[[Status, float], Samples]:
    def read(status: Status, now: float) -> Samples:
        for labels, lag in partitions_of(status, now):
            number = getattr(lag, name)
            if number is not None:
                yield labels, number

    return read


def _degraded(status: Status, now: float) -> Samples:
    causes = [reason.cause for reason in reasons(status, now)]
    return [((cause.value,), causes.count(cause)) for cause in Cause]


Numbers = Iterable[tuple[tuple[str, ...], float]]


def _bounded(
    of: Callable[[Status], Numbers], combine: Callable[[float, float], float] = operator.add
) -> Callable[[Status, float], Samples]:
    """Bound the number of tables among samples whose first label is a table; ``combine`` adds up the others."""
    return lambda status, now: list(by_table(status, of(status), combine))


def _each(of: Callable[[Status], Mapping[str, float]]) -> Callable[[Status], Numbers]:
    return lambda status: [((table,), number) for table, number in of(status).items()]


def _failures(status: Status) -> Numbers:
    coordinator = status.coordinator
    if not status.worker.leads:
        return
    known = {table for table, _ in coordinator.commits} | coordinator.failing.keys()
    for table in sorted(known):
        failure = coordinator.failing.get(table)
        yield (table,), 0 if failure is None else failure.times


def _gone(status: Status) -> Numbers:
    rolled_back = status.led.rolled_back
    for table in sorted({table for table, _ in status.led.commits} | rolled_back.keys()):
        yield (table,), rolled_back[table].offsets if table in rolled_back else 0


def _files(status: Status) -> Numbers:
    for table, commit in sorted(status.coordinator.totals.items()):
        for content, number in (("data", commit.total_files), ("deletes", commit.total_deletes)):
            if number is not None:
                yield (table, content), number


def _bytes(status: Status) -> Numbers:
    for table, commit in sorted(status.coordinator.totals.items()):
        if commit.total_bytes is not None:
            yield (table, "all"), commit.total_bytes


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


def _mutations(of: Callable[[MutationCounts], int]) -> Callable[[Status, float], Samples]:
    return _bounded(_each(lambda status: {name: of(counts) for name, counts in status.coordinator.mutations.items()}))


def _maintenance(
    of: Callable[[MaintenanceStatus], Mapping[tuple[str, str], Value]],
) -> Callable[[Status, float], Samples]:
    return lambda status, now: sorted(of(status.maintenance).items(), key=lambda sample: sample[0])


def _due(of: Callable[[TableMaintenance], float]) -> Callable[[Status], Numbers]:
    return _each(lambda s: {name: of(t) for name, t in s.maintenance.tables.items()} if s.worker.leads else {})


def _due_seconds(status: Status, now: float) -> Samples:
    def seconds(table: TableMaintenance) -> float:
        return 0.0 if table.due_since is None else max(0.0, now - table.due_since)

    return list(by_table(status, _due(seconds)(status), max))


_TP = ("topic", "partition")
_DONE = ("task", "outcome")

# fmt: off
METRICS: tuple[Metric, ...] = (
    Metric("calving_info", "info", ("version", "backend", "engine"), "The worker's version and parts.",
           lambda s, now: [((s.sink.version, s.sink.backend, s.sink.engine), 1)]),
    Metric("calving_records_read_total", "counter", ("topic",), "Records read by finished batches.",
           _by(lambda s: s.worker.batches.records.read)),
    Metric("calving_records_written_total", "counter", ("table",), "Rows written, without dead letters.",
           _bounded(_each(lambda s: s.worker.batches.records.written))),
    Metric("calving_records_superseded_total", "counter", (),
           "Changes of rows that a later change of the same key in the batch replaced.",
           _one(lambda s: s.worker.batches.records.superseded)),
    Metric("calving_records_deleted_total", "counter", (), "Changes that left no row.",
           _one(lambda s: s.worker.batches.records.deleted)),
    Metric("calving_records_copied_total", "counter", (),
           "Copies of records that went to several tables, not counting the first table: read + copied = written +"
           " superseded + deleted + dead letters + filtered.",
           _one(lambda s: s.worker.batches.records.copied)),
    Metric("calving_records_dead_lettered_total", "counter", ("stage",),
           "Dead letters, by the stage that rejected them.",
           _by(lambda s: s.worker.batches.records.dead_lettered)),
    Metric("calving_records_filtered_total", "counter", ("cause",), "Records skipped on purpose, by cause.",
           _by(lambda s: s.worker.batches.records.filtered)),
    Metric("calving_records_lost_total", "counter", ("topic",),
           "Records that the broker no longer had, and that were skipped (iceberg.source.on-data-loss).",
           _by(lambda s: s.worker.lost)),
    Metric("calving_records_passed_over_total", "counter", ("topic",),
           "Records that nobody has read, because a position of the group was moved by somebody else.",
           _by(lambda s: s.worker.passed_over)),
    Metric("calving_undecodable_entries_total", "counter", (),
           "Entries of the control log that could not be decoded, and were skipped.",
           _one(lambda s: s.worker.undecodable)),
    Metric("calving_source_lag_records", "gauge", _TP, "Records of held partitions that were not read yet.",
           _partition("source_lag")),
    Metric("calving_commit_lag_records", "gauge", _TP, "Records of held partitions that are not in their tables yet.",
           _partition("commit_lag")),
    Metric("calving_source_lag_seconds", "gauge", _TP,
           "Age of the last record read, while more records are to be read.",
           _partition("seconds")),
    Metric("calving_not_visible_seconds", "gauge", (),
           "How long the oldest record that is in no table yet has waited since this worker saw it; 0 without one.",
           lambda s, now: [((), 0.0 if (since := s.worker.waiting_since) is None else max(0.0, now - since))]),
    Metric("calving_hidden_records", "gauge", (), "Records behind open transactions of their producers.",
           _one(lambda s: s.worker.hidden)),
    Metric("calving_batch_duration_seconds", "histogram", (), "Time that a batch took.",
           _one(lambda s: s.worker.batches.seconds)),
    Metric("calving_batch_records", "histogram", (), "Records of a batch.", _one(lambda s: s.worker.batches.sizes)),
    Metric("calving_task_cpu_seconds_total", "counter", ("stage",), "CPU time of the tasks, by stage.",
           _by(lambda s: s.worker.batches.stages)),
    Metric("calving_written_file_bytes", "histogram", ("content",), "Sizes of written files.",
           _by(lambda s: s.worker.batches.file_bytes)),
    Metric("calving_publications_total", "counter", ("outcome",),
           "Publications by outcome: done; fenced (a newer member exists); stale (the stored position has moved);"
           " unavailable (nothing was written); unknown (it may have been written).",
           _by(lambda s: s.worker.publications)),
    Metric("calving_restarts_total", "counter", (), "How often the worker started over after an error.",
           _one(lambda s: s.worker.restarts)),
    Metric("calving_leader", "gauge", (), "1 for the worker that commits.", _one(lambda s: int(s.worker.leads))),
    Metric("calving_paused", "gauge", (), "1 for a worker that was told to pause.",
           _one(lambda s: int(s.worker.paused))),
    Metric("calving_assigned_partitions", "gauge", (), "Partitions that this worker holds.",
           _one(lambda s: len(s.worker.partitions))),
    Metric("calving_degraded", "gauge", ("cause",), "Reasons for which the sink is DEGRADED, by cause.", _degraded),
    Metric("calving_commit_interval_seconds", "gauge", (), "The time from one commit to the next, as configured.",
           _one(lambda s: s.sink.interval)),
    Metric("calving_commit_cycles_total", "counter", ("outcome",),
           "Commit cycles of this worker: full; partial, without some answers; empty, with nothing to commit.",
           _by(lambda s: s.coordinator.cycles)),
    Metric("calving_commit_cycle_duration_seconds", "histogram", (), "From StartCommit to the end of a cycle.",
           _one(lambda s: s.coordinator.cycle_seconds)),
    Metric("calving_commit_cycle_step_duration_seconds", "histogram", ("step",),
           "Commit cycles by step, as far as this worker takes part: on the leader waited, answered, committed,"
           " announced; on each worker heard (only the leader's), looked, loaded, batch, seen, published.",
           _by(lambda s: s.cycle_steps)),
    Metric("calving_produce_to_visible_seconds", "histogram", (),
           "From the timestamp of the oldest record of a partition's publication until readers see it: the longest"
           " wait among its records.",
           _one(lambda s: s.worker.latencies)),
    Metric("calving_table_commit_duration_seconds", "histogram", ("step",),
           "Commits of tables: load the table, resolve new files and changed rows, write, commit; without pauses.",
           _by(lambda s: s.coordinator.step_seconds)),
    Metric("calving_table_commits_total", "counter", ("table", "outcome"),
           "Commits of tables by this worker: done, unchanged, failed, late.",
           _bounded(lambda s: sorted(s.coordinator.commits.items()))),
    Metric("calving_table_last_commit_timestamp_seconds", "gauge", ("table",), "When the table was last committed to.",
           _table(lambda t: t.committed_at)),
    Metric("calving_table_valid_through_timestamp_seconds", "gauge", ("table",),
           "All records up to this time are in the table.", _table(lambda t: _seconds(t.valid_through_us))),
    Metric("calving_table_consecutive_failures", "gauge", ("table",),
           "Of the leader: commits that failed since the last success.", _bounded(_failures, max)),
    Metric("calving_table_buffered_files", "gauge", ("table",), "Files that are published and not committed yet.",
           _table(lambda t: t.buffered_files)),
    Metric("calving_table_oldest_buffered_timestamp_seconds", "gauge", ("table",),
           "When the oldest buffered file was announced.",
           _table(lambda t: t.buffered_since)),
    Metric("calving_table_files", "gauge", ("table", "content"), "Files of the table after this worker's last commit.",
           _bounded(_files)),
    Metric("calving_table_bytes", "gauge", ("table", "content"), "Bytes of these files.",
           _bounded(_bytes)),
    Metric("calving_table_gone_records", "gauge", ("table",),
           "Of the leader: offsets whose records a rollback removed from the table, until they are there again or an"
           " operator has answered it.",
           _bounded(_gone, max)),
    Metric("calving_located_rows_total", "counter", ("table",),
           "Live rows in which this worker's commits found keys of changed rows.", _mutations(lambda m: m.located)),
    Metric("calving_deletes_unmatched_total", "counter", ("table",), "Deletes for whose key there was no row.",
           _mutations(lambda m: m.unmatched)),
    Metric("calving_key_cache_bytes", "gauge", ("table",),
           "Size of a table's key columns in this worker's cache on disk.",
           _bounded(_each(lambda s: s.coordinator.key_cache))),
    Metric("calving_maintenance_runs_total", "counter", _DONE,
           "Tasks of maintenance at a table by this worker: done; nothing, because nothing was due; left alone;"
           " dropped, because others changed the files; failed.",
           _maintenance(lambda m: {key: seconds.count for key, seconds in m.seconds.items()})),
    Metric("calving_maintenance_duration_seconds", "histogram", _DONE, "How long these tasks took.",
           _maintenance(lambda m: m.seconds)),
    Metric("calving_maintenance_rewritten_bytes_total", "counter", _DONE,
           "Bytes of files and manifests that these tasks were to rewrite.", _maintenance(lambda m: m.rewritten)),
    Metric("calving_maintenance_due_seconds", "gauge", ("table",),
           "Of the leader: how long the oldest work has waited that its maintenance has found; 0 if none is due.",
           _due_seconds),
    Metric("calving_maintenance_due_files", "gauge", ("table",), "Of the leader: files that are due to be compacted.",
           _bounded(_due(lambda t: t.due_files))),
    Metric("calving_maintenance_due_bytes", "gauge", ("table",), "Bytes of these files.",
           _bounded(_due(lambda t: t.due_bytes))),
)
# fmt: on


class _Collector(Collector):
    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def collect(self) -> Iterator[Family]:
        status, now = self._status(), time.time()
        for metric in METRICS:
            yield _family(metric, status, now)

    def describe(self) -> list[Family]:
        return []


def exposition(status: Callable[[], Status]) -> Callable[[str], tuple[bytes, str]]:
    """A function from a client's Accept header to the text and its media type."""
    registry = CollectorRegistry()
    registry.register(_Collector(status))

    def expose(accept: str) -> tuple[bytes, str]:
        try:
            encode, media_type = choose_encoder(accept)
        except (TypeError, ValueError):  # it takes the version that a client names for numbers
            encode, media_type = choose_encoder("")
        return encode(registry), media_type

    return expose


def _family(metric: Metric, status: Status, now: float) -> Family:
    made: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
    if metric.kind == "counter":
        made = CounterMetricFamily(metric.name, metric.text, labels=metric.series_labels)
    elif metric.kind == "histogram":
        made = HistogramMetricFamily(metric.name, metric.text, labels=metric.series_labels)
    else:
        made = GaugeMetricFamily(metric.name, metric.text, labels=metric.series_labels)
    for labels, figure in metric.series(status, now):
        if isinstance(figure, Histogram) and isinstance(made, HistogramMetricFamily):
            made.add_metric(labels, _buckets(figure), figure.sum)
        elif isinstance(figure, int | float) and not isinstance(made, HistogramMetricFamily):
            made.add_metric(labels, figure)
    return made


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    buckets, total = [], 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets
