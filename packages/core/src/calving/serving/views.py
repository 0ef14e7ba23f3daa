"""A status as plain JSON for the page. Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import asdict
from typing import Any

from calving.model.mutation_counts import MutationCounts
from calving.model.offsets import TopicPartition
from calving.serving import connect
from calving.serving.history import Events
from calving.status.backlog import Backlog
from calving.status.health import of_tables
from calving.status.maintenance import TableMaintenance
from calving.status.remedies import Trouble
from calving.status.values import CommitCycle, PartitionStatus, Status, TableCommit, TableStatus

Json = dict[str, Any]


def overview(status: Status, now: float, *, with_values: bool) -> Json:
    """The sink. ``with_values``: whether samples of dead letters show values of the records."""
    sink, worker, coordinator = status.sink, status.worker, status.coordinator
    records = worker.batches.records
    return {
        "now": now,
        "sink": sink.name,
        "group": sink.group,
        "member": sink.member,
        "version": sink.version,
        "backend": sink.backend,
        "engine": sink.engine,
        "started_at": sink.started_at,
        "interval": sink.interval,
        **connect.health(status, now),
        "state": "PAUSED" if worker.paused else "RUNNING" if worker.joined else "STARTING",
        "leads": worker.leads,
        "leader": connect.leader(status),
        "restarts": worker.restarts,
        "error": worker.error,
        "troubles": [{"trouble": name, **connect.remedy(name)} for name in _troubles(status)],
        "not_visible": worker.not_visible,
        "waiting_since": worker.waiting_since,
        "lag": worker.behind,
        "progress": _progress(worker.backlog, now),
        "hidden": worker.hidden,
        "partitions": len(worker.partitions),
        "tables": len(status.log.tables),
        "read": worker.batches.read,
        "written": sum(records.written.values()),
        "replaced": {"superseded": records.superseded, "deleted": records.deleted},
        "dead_letters": dict(records.dead_lettered),
        "filtered": dict(records.filtered),
        "lost": dict(worker.lost),
        "passed_over": dict(worker.passed_over),
        "undecodable": worker.undecodable,
        "dead_letter_samples": [each if with_values else _place(each) for each in worker.batches.dead_letters],
        "publications": dict(worker.publications),
        "committed_records": coordinator.records,
        "committed_files": coordinator.files,
        "cycles": dict(coordinator.cycles),
        "valid_through": _seconds(status.log.valid_through_us),
        "cycle_at": status.log.cycle_at,
    }


def _troubles(status: Status) -> list[Trouble]:
    """What is not well besides the reasons to be DEGRADED."""
    worker = status.worker
    if worker.joined:
        return [] if status.log.had_all_answers else [Trouble.STARTING]
    return [Trouble.NOT_READY if worker.error is None else Trouble.STARTS_OVER]


def _progress(backlog: Backlog, now: float) -> Json:
    """How far the worker has to read; nulls for what is not known or not measured yet."""
    return {
        "remaining": backlog.behind,
        "share": backlog.share,
        "rate": backlog.rate(now),
        "seconds_left": backlog.seconds_left(now),
        "pace": backlog.pace,
    }


def tables(status: Status, now: float) -> list[Json]:
    """The tables: those in trouble first, then by name."""
    wrong, last = _wrong(status, now), _last_commits(status)
    names = sorted(_names(status, wrong), key=lambda name: (name not in wrong, name))
    return [_table(status, name, wrong.get(name), last.get(name)) for name in names]


def table(status: Status, name: str, now: float) -> Json | None:
    """A table, and its commits in the last cycles of this worker, the newest first; None if it is not known."""
    wrong = _wrong(status, now)
    if name not in _names(status, wrong):
        return None
    cycles = [(c, t) for c in status.coordinator.recent for t in c.tables if t.table == name]
    commits = [{**_commit(t), "commit_id": c.commit_id, "ended_at": c.ended_at} for c, t in cycles]
    row = _table(status, name, wrong.get(name), cycles[0][1] if cycles else None)
    return {"table": row, "commits": commits}


def _wrong(status: Status, now: float) -> dict[str, str]:
    """For each table in trouble, what is wrong."""
    return {reason.subject: reason.text for reason in of_tables(status, now)}


def _names(status: Status, wrong: Mapping[str, str]) -> Set[str]:
    return status.log.tables.keys() | status.led.failing.keys() | wrong.keys()


def _last_commits(status: Status) -> dict[str, TableCommit]:
    """By table, its commit in the last cycle that has one."""
    last: dict[str, TableCommit] = {}
    for cycle in status.coordinator.recent:
        for table in cycle.tables:
            last.setdefault(table.table, table)
    return last


def _table(status: Status, name: str, wrong: str | None, last: TableCommit | None) -> Json:
    table, coordinator = status.log.tables.get(name, TableStatus()), status.coordinator
    totals, failure = coordinator.totals.get(name), status.led.failing.get(name)
    change, gone = coordinator.changes.get(name), status.led.rolled_back.get(name)
    return {
        "table": name,
        "trouble": wrong,
        "committed_at": table.committed_at,
        "valid_through": _seconds(table.valid_through_us),
        "snapshot_id": str(table.snapshot_id or ""),
        "buffered_files": table.buffered_files,
        "buffered_since": table.buffered_since,
        "cycles": table.cycles,
        "failures": failure.times if failure else 0,
        "gone_records": gone.offsets if gone else 0,
        "files": totals.total_files if totals else None,
        "bytes": totals.total_bytes if totals else None,
        "commit_seconds": last.seconds if last else None,
        "mutations": _mutations(coordinator.mutations.get(name)),
        "last_change": _commit(change) if change else None,
        "key_cache_bytes": coordinator.key_cache.get(name),
        "maintenance": _maintenance(status.maintenance.tables.get(name)),
    }


def _maintenance(table: TableMaintenance | None) -> Json | None:
    """The maintenance of a table by this worker; None if it has never looked at it."""
    if table is None:
        return None
    last = table.last
    return {
        "running_since": table.running_since,
        "looked_at": table.looked_at,
        "due": None
        if table.due_since is None
        else {
            "since": table.due_since,
            "files": table.due_files,
            "bytes": table.due_bytes,
            "tasks": sorted({task for task, _ in table.due}),
        },
        "last": None
        if last is None
        else {
            "task": last.task,
            "outcome": last.outcome.replace(" ", "-"),
            "text": last.text,
            "ended_at": last.ended_at,
            "seconds": last.seconds,
            "bytes": last.rewritten,
        },
    }


def partitions(status: Status, now: float) -> list[Json]:
    """The partitions, the ones furthest behind first."""
    by_lag = sorted(status.worker.partitions.items(), key=lambda item: (-item[1].source_lag, item[0]))
    return [_partition(tp, p, now) for tp, p in by_lag]


def partition(status: Status, topic: str, number: int, now: float) -> Json | None:
    """A partition; None if this worker does not hold it."""
    held = status.worker.partitions.items()
    rows = (_partition(tp, p, now) for tp, p in held if (tp.topic, tp.partition) == (topic, number))
    return next(({"partition": row} for row in rows), None)


def _partition(tp: TopicPartition, p: PartitionStatus, now: float) -> Json:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "position": p.position,
        "end": p.end,
        "committed": p.committed,
        "source_lag": p.source_lag,
        "commit_lag": p.commit_lag,
        "not_visible": p.not_visible,
        "waiting_since": p.waiting_since,
        "seconds": p.lag_seconds(now),
    }


def commits(status: Status) -> list[Json]:
    """The last cycles of this worker, the newest first."""
    return [_cycle(cycle) for cycle in status.coordinator.recent]


def events(happened: Events) -> list[Json]:
    """The last events, the newest first."""
    return [asdict(event) for event in happened.newest_first]


def _cycle(cycle: CommitCycle) -> Json:
    return {
        "commit_id": cycle.commit_id,
        "ended_at": cycle.ended_at,
        "outcome": cycle.outcome,
        "seconds": cycle.seconds,
        "commit_seconds": cycle.commit_seconds,
        "steps": dict(cycle.steps),
        "unanswered": list(cycle.unanswered),
        "failed": cycle.failed,
        "records": sum(t.records for t in cycle.tables),
        "files": sum(t.files for t in cycle.tables),
        "tables": [_commit(table) for table in cycle.tables[:50]],
    }


def _commit(table: TableCommit) -> Json:
    return {
        "table": table.table,
        "outcome": table.outcome,
        "seconds": table.seconds,
        "steps": dict(table.steps),
        "files": table.files,
        "records": table.records,
        "reason": table.reason,
        "mutations": _mutations(table.mutations),
        "commit_id": table.commit_id,
    }


def _mutations(counts: MutationCounts | None) -> Json | None:
    """The counts of a mutation table whose rows are deleted by position; None for other tables."""
    return None if counts is None else asdict(counts)


def _place(sample: str) -> str:
    """The topic, the partition and the offset of a dead letter, without the reason, in which a value may be."""
    return sample.partition(": ")[0]


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6
