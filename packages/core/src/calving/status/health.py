"""Whether a sink is well, and why not: pure functions of its status."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from calving.model.text import counted, listed
from calving.protocol.waiting import DEGRADED
from calving.status.values import Status

DEAD_LETTER_SHARE = 0.01
"""Of the records of the last batches: above it people should look at their records."""
REFUSED = 3
"""Publications that were refused one after the other: that is no rebalance."""


class Cause(enum.StrEnum):
    """All reasons for which a sink is DEGRADED."""

    TABLE_FAILING = "table-failing"
    CYCLE_INCOMPLETE = "cycle-incomplete"
    CONTROL_LOG_BEHIND = "control-log-behind"
    DEAD_LETTER_SHARE = "dead-letter-share"
    ORDER_GATE = "order-gate"
    PUBLICATION_REFUSED = "publication-refused"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: what it is about, such as a table, and a sentence."""

    cause: Cause
    subject: str
    text: str


def reasons(status: Status, now: float) -> tuple[Reason, ...]:
    """Why the sink is DEGRADED, the same subject once; empty where it is well."""
    return (*_tables(status), *_order(status), *_cycles(status), *_log(status, now), *_records(status))


def not_ready(status: Status) -> tuple[str, ...]:
    """Why this worker does not do its work yet; empty where it does."""
    worker = status.worker
    missing = {
        "it has not joined the consumer group": not worker.joined,
        "backend and catalog have not answered yet": not worker.prepared,
        "the control log has not been heard to its end yet": worker.prepared and not worker.caught_up,
        f"it starts over: {worker.error}": worker.prepared and not worker.joined and worker.error is not None,
    }
    return tuple(text for text, is_so in missing.items() if is_so)


def _tables(status: Status) -> Iterator[Reason]:
    found: dict[str, str] = {}
    for name, cycles in status.log.degraded.items():
        if name in status.led.held_back:
            continue
        files = status.log.tables[name].buffered_files
        found[name] = f"{counted(files, 'file')} waited for {cycles} commit cycles"
    for name, missing in status.led.missing.items():
        found[name] = f"it lacks {missing}, which two commits have passed over"
    for name, failure in status.led.failing.items():
        if failure.times >= DEGRADED or name in found:
            found[name] = f"it could not be committed {failure.times} times in a row: {failure.reason}"
    for name in sorted(found):
        yield Reason(Cause.TABLE_FAILING, name, f"table {name}: {found[name]}")


def _order(status: Status) -> Iterator[Reason]:
    for name, waits in sorted(status.led.held_back.items()):
        yield Reason(Cause.ORDER_GATE, name, f"table {name}: {waits}")


def _cycles(status: Status) -> Iterator[Reason]:
    if status.led.recent:
        silent = status.led.recent[0].unanswered
        if silent:
            yield Reason(Cause.CYCLE_INCOMPLETE, "", f"the last commit went on without answers for {listed(silent)}")


def _log(status: Status, now: float) -> Iterator[Reason]:
    sink = status.sink
    silent = now - (status.log.cycle_at or sink.started_at)
    if silent > 3 * sink.interval + 2 * sink.timeout:
        yield Reason(Cause.CONTROL_LOG_BEHIND, "", f"no commit cycle was heard to end for {silent:.0f} s")


def _records(status: Status) -> Iterator[Reason]:
    worker = status.worker
    if worker.batches.dead_letter_share > DEAD_LETTER_SHARE:
        share = f"{worker.batches.dead_letter_share:.1%} of the records of the last batches are dead letters"
        yield Reason(Cause.DEAD_LETTER_SHARE, "", share)
    if worker.refused_in_a_row >= REFUSED:
        text = f"the last {worker.refused_in_a_row} publications were refused"
        yield Reason(Cause.PUBLICATION_REFUSED, "", text)
