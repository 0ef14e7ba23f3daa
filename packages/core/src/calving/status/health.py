"""Whether a sink is well, and why not: pure functions of its status."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from calving.model.events import WorkerEnd
from calving.model.offsets import named, union
from calving.model.text import bytes_text, counted, listed
from calving.protocol.held_back import DEGRADED
from calving.protocol.members import Disagreement
from calving.protocol.positions import text_of as moved_text
from calving.status.remedies import Cause, advice
from calving.status.values import Status, WorkerStatus

OWN = frozenset(
    (
        Cause.CONTROL_LOG_BEHIND,
        Cause.PUBLICATION_REFUSED,
        Cause.DEAD_LETTER_SHARE,
        Cause.PAUSED,
        Cause.POSITION_MOVED,
    )
)
"""Causes that each worker reports for itself; the leader reports the others, once for all workers."""
DEAD_LETTER_SHARE = 0.01
"""The share of dead letters among the records of the last batches above which the sink is DEGRADED."""
UNSIGNED_SECONDS = 3600.0
"""How long an entry of the group that is not signed makes the sink DEGRADED."""
_MOST_WORKERS = 5
"""How many workers with other settings are named."""
REFUSED = 3
"""Refused publications in a row that make the sink DEGRADED; a rebalance causes fewer."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: its cause, its subject (a table, say; empty for the sink), and a sentence."""

    cause: Cause
    subject: str
    text: str


def reasons(status: Status, now: float) -> tuple[Reason, ...]:
    """The reasons why the sink is DEGRADED, each subject of a cause once. Empty if the sink is not DEGRADED."""
    if status.worker.stopped:
        return (Reason(Cause.PAUSED, "", stopped_text(status.sink.name)),)
    return (
        *of_tables(status, now),
        *_moved(status),
        *_ended(status),
        *_unsigned(status, now),
        *_disagreements(status),
        *_cycles(status),
        *_log(status, now),
        *_paused(status),
        *_records(status),
    )


def of_tables(status: Status, now: float) -> tuple[Reason, ...]:
    """The reasons that are about a table, which is their subject; the worst of a table is its last one."""
    return (*_overdue(status, now), *_tables(status), *_order(status), *_rolled_back(status))


def health(status: Status, now: float) -> Literal["OK", "DEGRADED", "STARTING"]:
    """``STARTING``: this process has not joined the group, or has not seen a commit cycle end yet to which all
    partitions had answered, so nothing shows that the sink is well.
    """
    if any(reasons(status, now)):
        return "DEGRADED"
    return "OK" if status.worker.joined and status.log.had_all_answers else "STARTING"


class HealthLog:
    """The reasons that have been logged. Each reason is logged when it appears, and again when it is gone. While a
    worker starts over it does not know whether a reason is gone.
    """

    def __init__(self) -> None:
        self._known: frozenset[tuple[Cause, str]] = frozenset()
        self._led = False

    def lines(self, found: Collection[Reason], worker: WorkerStatus) -> list[str]:
        """The log lines for reasons of this worker that have appeared or are gone since the last call."""
        before, now = self._known, frozenset((each.cause, each.subject) for each in found)
        self._known = now if worker.joined else before | now
        new = [f"DEGRADED: {r.cause}: {r.text}; {advice(r.cause)}" for r in found if (r.cause, r.subject) not in before]
        led, self._led = self._led, worker.leads
        gone = [self._gone(cause, subject, led and not worker.leads) for cause, subject in sorted(before - self._known)]
        return [*new, *gone]

    def _gone(self, cause: Cause, subject: str, has_lost_lead: bool) -> str:
        """``has_lost_lead``: whether the worker no longer leads, so that it no longer sees what only leaders see."""
        if has_lost_lead and cause not in OWN:
            return f"left to the next leader: {cause} {subject}".rstrip()
        return f"no longer DEGRADED: {cause} {subject}".rstrip()


def not_ready(status: Status) -> tuple[str, ...]:
    """The reasons why this worker is not ready. Empty if it is ready."""
    worker = status.worker
    missing = {
        "it has not joined the consumer group": not worker.joined,
        "the backend and the catalog have not answered yet": not worker.prepared,
        "the control log has not been read to its end yet": worker.prepared and not worker.caught_up,
        f"it starts over: {worker.error}": worker.prepared and not worker.joined and worker.error is not None,
    }
    return tuple(text for text, is_so in missing.items() if is_so)


def _tables(status: Status) -> Iterator[Reason]:
    reason_of: dict[str, str] = {}
    for name, cycles in status.log.degraded.items():
        if name in status.led.held_back:
            continue
        files = status.log.tables[name].buffered_files
        reason_of[name] = f"{counted(files, 'file is', 'files are')} not committed after {cycles} commit cycles"
    for name, missing in status.led.missing.items():
        reason_of[name] = f"it lacks {missing} after two commits that should have held them"
    for name, failure in status.led.failing.items():
        if failure.times >= DEGRADED or name in reason_of:
            reason = failure.reason.removeprefix(f"table {name}").removeprefix(":").strip()
            reason_of[name] = f"{reason} ({counted(failure.times, 'commit')} failed in a row)"
    for name in sorted(reason_of):
        yield Reason(Cause.TABLE_FAILING, name, f"table {name}: {reason_of[name]}")


def _order(status: Status) -> Iterator[Reason]:
    for name, waits in sorted(status.led.held_back.items()):
        yield Reason(Cause.ORDER_GATE, name, f"table {name}: {waits}")


def _rolled_back(status: Status) -> Iterator[Reason]:
    for name, rolled_back in sorted(status.led.rolled_back.items()):
        yield Reason(Cause.ROLLED_BACK, name, rolled_back.text(name))


def _overdue(status: Status, now: float) -> Iterator[Reason]:
    """Only of the worker that leads: others do not maintain. Of tables that somebody else maintains it knows only files
    that have landed.
    """
    if not status.worker.leads:
        return
    for name, table in sorted(status.maintenance.tables.items()):
        if overdue := table.overdue(now):
            tasks = listed(dict.fromkeys(task for task, _ in sorted(overdue)))
            since = _time_text(min(work.since for work in overdue.values()))
            files, size = (sum(getattr(work, of) for work in overdue.values()) for of in ("files", "bytes"))
            of_bytes = f" ({bytes_text(size)})" if size else ""
            much = f", {counted(files, 'file')}{of_bytes}" if files else ""
            last = f"; the last run: {table.last.outcome}: {table.last.text}" if table.last is not None else ""
            text = f"table {name}: maintenance ({tasks}) has been due since {since}{much}{last}"
            yield Reason(Cause.MAINTENANCE_OVERDUE, name, text)


def _moved(status: Status) -> Iterator[Reason]:
    for known, spans in sorted(union(status.led.unread, status.worker.unread).items()):
        for span in spans:
            tp = named(known)
            yield Reason(Cause.POSITION_MOVED, f"{tp} from offset {span.start}", moved_text(tp, span))


def _ended(status: Status) -> Iterator[Reason]:
    if status.log.end is not None:
        yield Reason(Cause.WORKER_ENDED, "", end_text(status.log.end))


def _unsigned(status: Status, now: float) -> Iterator[Reason]:
    if status.worker.unsigned is not None:
        text, at = status.worker.unsigned
        if now - at < UNSIGNED_SECONDS:
            yield Reason(Cause.UNSIGNED_ENTRY, "", text)


def _disagreements(status: Status) -> Iterator[Reason]:
    known = [each for each in status.worker.disagreements if each.keys]  # they come with a worker's next answer
    for each in known[:_MOST_WORKERS]:
        subject = " ".join(filter(None, (each.member.host, each.member.file, each.member.id)))
        yield Reason(Cause.SETTINGS_DIFFER, subject, disagreement_text(each, "this one"))
    if len(known) > _MOST_WORKERS:
        workers = counted(len(known) - _MOST_WORKERS, "more worker has", "more workers have")
        yield Reason(Cause.SETTINGS_DIFFER, "", f"{workers} other settings than this one")


def disagreement_text(disagreement: Disagreement, others: str) -> str:
    """Which worker has other settings than ``others``, in which keys, and what to do."""
    member = disagreement.member
    file = f" ({member.file})" if member.file else ""
    article, name = ("", f" {member.id}") if member.id else ("a ", "")
    return (
        f"{article}worker{name} on {member.host}{file} of version {member.version} has other settings than {others}:"
        f" {listed(disagreement.keys)}; give all workers of the sink the same settings, and another name to a sink of"
        " its own"
    )


def end_text(end: WorkerEnd) -> str:
    """When, where and why a worker has ended."""
    at = _time_text(end.at_ms / 1000)
    return f"a worker on {end.host} ended at {at} with an error, and no commit cycle has ended since: {end.error}"


def _cycles(status: Status) -> Iterator[Reason]:
    if status.led.recent:
        silent = status.led.recent[0].unanswered
        if silent:
            yield Reason(Cause.CYCLE_INCOMPLETE, "", f"the last commit lacks answers for {listed(silent)}")


def longest_cycle(interval: float, timeout: float) -> float:
    """The seconds within which a commit cycle of a healthy sink ends."""
    return 3 * interval + 2 * timeout


def hanging_text(workers: int, seconds: float) -> str:
    """How long the members of the group have begun and ended no cycle."""
    members = counted(workers, "worker is", "workers are")
    return f"{members} in the group, but for {seconds:.0f} s no commit cycle has begun or ended"


def _log(status: Status, now: float) -> Iterator[Reason]:
    sink = status.sink
    silent = now - (status.log.cycle_at or sink.started_at)
    if silent > longest_cycle(sink.interval, sink.timeout):
        worker = status.worker
        why = f"; it starts over: {worker.error}" if worker.error is not None and not worker.joined else ""
        yield Reason(Cause.CONTROL_LOG_BEHIND, "", f"this worker has seen no commit cycle end for {silent:.0f} s{why}")


def _paused(status: Status) -> Iterator[Reason]:
    worker = status.worker
    if worker.paused_at is not None and worker.not_visible:
        yield Reason(Cause.PAUSED, "", paused_text(worker.paused_at, worker.not_visible))


def stopped_text(name: str) -> str:
    """That somebody has stopped the sink."""
    return f"the sink was stopped (PUT /connectors/{name}/stop): none of its workers reads"


def paused_text(since: float, records: int) -> str:
    """Since when a worker is paused, and how many records wait for it."""
    waiting = counted(records, "record of its partitions waits", "records of its partitions wait")
    return f"a worker has been paused since {_time_text(since)}, and {waiting}"


def _time_text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _records(status: Status) -> Iterator[Reason]:
    worker = status.worker
    if worker.batches.dead_letter_share > DEAD_LETTER_SHARE:
        share = f"{worker.batches.dead_letter_share:.1%} of the records of the last batches are dead letters"
        yield Reason(Cause.DEAD_LETTER_SHARE, "", share)
    if worker.refused_in_a_row >= REFUSED:
        text = f"the last {worker.refused_in_a_row} publications were refused"
        yield Reason(Cause.PUBLICATION_REFUSED, "", text)
