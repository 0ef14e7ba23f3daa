"""What each reason of a sink that is not well means, and what to do next: one table, which the manual repeats."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

PAGE = "docs/how-to/on-call.md"
"""The page of the manual with a section for each reason."""


class Cause(enum.StrEnum):
    """The causes of DEGRADED, as metrics and the status server name them."""

    TABLE_FAILING = "table-failing"
    CYCLE_INCOMPLETE = "cycle-incomplete"
    CONTROL_LOG_BEHIND = "control-log-behind"
    DEAD_LETTER_SHARE = "dead-letter-share"
    ORDER_GATE = "order-gate"
    PUBLICATION_REFUSED = "publication-refused"
    ROLLED_BACK = "rolled-back"
    POSITION_MOVED = "position-moved"
    PAUSED = "paused"
    WORKER_ENDED = "worker-ended"
    UNSIGNED_ENTRY = "unsigned-entry"
    SETTINGS_DIFFER = "settings-differ"
    MAINTENANCE_OVERDUE = "maintenance-overdue"


class Trouble(enum.StrEnum):
    """What else is not well: seen from outside of the workers, or before a worker runs. No metric counts these."""

    NO_WORKER = "no-worker"
    WORKERS_HANG = "workers-hang"
    UNREADABLE_ENTRY = "unreadable-entry"
    POSITION_BEYOND_END = "position-beyond-end"
    STARTING = "starting"
    STARTS_OVER = "starts-over"
    NOT_READY = "not-ready"
    LOOP_STOPPED = "loop-stopped"


@dataclass(frozen=True, slots=True)
class Remedy:
    """``meaning``: what the reason says about the data, in one sentence. ``command``: the next command, with FILE for
    the sink's configuration and other words in capitals for names that the reason gives.
    """

    meaning: str
    command: str


_MEMBERS = "kafka-consumer-groups.sh --bootstrap-server BROKER --describe --members --verbose --group GROUP"
"""Names the worker that reads a partition."""

REMEDIES: Mapping[str, Remedy] = {
    Cause.TABLE_FAILING: Remedy(
        "The sink cannot commit to this table, so its readers see nothing new; its records wait, and the other tables"
        " go on.",
        "calving validate FILE",
    ),
    Cause.CYCLE_INCOMPLETE: Remedy(
        "The last commit had no answer from the workers of these partitions, so their newest records are not visible.",
        _MEMBERS,
    ),
    Cause.CONTROL_LOG_BEHIND: Remedy(
        "No commit ends, so no table gets new records; they wait in Kafka.",
        "calving validate FILE",
    ),
    Cause.DEAD_LETTER_SHARE: Remedy(
        "Many of the newest records do not fit their table; they are kept as dead letters and are missing from it.",
        "calving preview FILE",
    ),
    Cause.ORDER_GATE: Remedy(
        "Changes of this table wait for earlier changes that no worker has delivered yet.",
        _MEMBERS,
    ),
    Cause.PUBLICATION_REFUSED: Remedy(
        "This worker loses its place in the group before its batches end, so it reads the same records again.",
        _MEMBERS,
    ),
    Cause.ROLLED_BACK: Remedy(
        "Somebody has rolled the table back: records that it had are no longer in it.",
        "calving rollback FILE --table TABLE --as-is --then restore --dry-run",
    ),
    Cause.POSITION_MOVED: Remedy(
        "Somebody has moved a position of the sink's group: the records that were skipped are in no table.",
        "calving recover FILE --dry-run",
    ),
    Cause.PAUSED: Remedy(
        "Somebody has paused this worker, and records of its partitions wait.",
        'curl -X PUT -H "Authorization: Bearer TOKEN" URL/connectors/SINK/resume',
    ),
    Cause.WORKER_ENDED: Remedy(
        "A worker has stopped with an error, and no commit has succeeded since.",
        "calving run FILE",
    ),
    Cause.UNSIGNED_ENTRY: Remedy(
        "Somebody without the sink's secret writes to the control topic; the sink has skipped the entry.",
        "kafka-acls.sh --bootstrap-server BROKER --list --topic CONTROL_TOPIC",
    ),
    Cause.SETTINGS_DIFFER: Remedy(
        "Workers of the sink have different settings, so what becomes of a record depends on the worker that reads it.",
        "calving status FILE",
    ),
    Cause.MAINTENANCE_OVERDUE: Remedy(
        "The sink does not get on with the maintenance of this table: its rows are right, and queries get slower.",
        "calving maintain FILE --table TABLE --dry-run",
    ),
    Trouble.NO_WORKER: Remedy(
        "Nobody reads: no worker of the sink runs, and something waits for one.",
        "calving run FILE",
    ),
    Trouble.WORKERS_HANG: Remedy(
        "Workers run, but no commit begins or ends, so no table gets new records.",
        "calving validate FILE",
    ),
    Trouble.UNREADABLE_ENTRY: Remedy(
        "The control log has an entry that stops every commit; records wait in Kafka.",
        "calving recover FILE --dry-run",
    ),
    Trouble.POSITION_BEYOND_END: Remedy(
        "The stored position is beyond the topic's end: the topic was created again, or has lost records; no new one is"
        " read.",
        "calving run FILE",
    ),
    Trouble.STARTING: Remedy(
        "The sink has just started: no commit with the answers of all partitions has ended yet, so nothing shows"
        " whether it is well.",
        "calving status FILE --watch 5",
    ),
    Trouble.STARTS_OVER: Remedy(
        "The worker has met an error and tries again from the stored positions; no record is lost.",
        "calving validate FILE",
    ),
    Trouble.NOT_READY: Remedy(
        "The worker has started, and waits for its group, its control log or its catalog.",
        "calving validate FILE",
    ),
    Trouble.LOOP_STOPPED: Remedy(
        "A call to a service has not come back for long, so this process does nothing more.",
        "systemctl restart calving@SINK",
    ),
}


def section(reason: str) -> str:
    """The section of the manual about a reason."""
    return f"{PAGE}#{reason}"


def advice(reason: str) -> str:
    """The next command and the section of the manual, as logs and terminals show them; only the page for a reason that
    this version does not know.
    """
    remedy = REMEDIES.get(reason)
    return f"see {PAGE}" if remedy is None else f"next: {remedy.command} (see {section(reason)})"
