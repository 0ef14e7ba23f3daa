"""The names of backfills in Kafka, in tables and in the stores of backends."""

from __future__ import annotations

from collections.abc import Iterable

BACKFILL_ENDED = "calving.backfill-ended"
"""The table property that says, whatever the branch, that a backfill has read all that it was to read. Its owner's name
follows.
"""
BACKFILL_PUBLISHED = "calving.backfill-published"
"""The table property with the snapshot up to which the branch of a backfill was published. Its owner's name follows."""
BEGIN_ANOTHER = (
    "drop the branch of this backfill, or roll the tables back to before it, and begin another one: `calving backfill"
    " FILE` with another --id"
)
"""What an operator does about a backfill that cannot go on: no command recovers one."""
_MIDDLE = ".backfill."
"""No other sink has it in its group: see ``SinkKeys``."""


def group_of(group: str, backfill_id: str) -> str:
    """The consumer group of a backfill for the sink with this group. Tables keep its offsets under it."""
    return f"{group}{_MIDDLE}{backfill_id}"


def range_group(group: str) -> str:
    """The consumer group whose offsets are the ends of what a backfill with this group reads. It never has a member."""
    return f"{group}.range"


def is_backfill(name: str) -> bool:
    """Whether a group, or an owner of a ledger, ``<control topic>.<group>``, is that of a backfill."""
    return _MIDDLE in name


def id_within(owner: str, sink: str) -> str | None:
    """The id of the backfill that an owner of a ledger is, if it belongs to the ``sink``; None if it is no such one."""
    prefix = f"{sink}{_MIDDLE}"
    return owner.removeprefix(prefix) if owner.startswith(prefix) else None


def sink_of(owner: str) -> str:
    """The owner of ledgers whose backfill the owner is."""
    return owner.partition(_MIDDLE)[0]


def ended_property(owner: str) -> str:
    """The name of the table property that says that a backfill has ended."""
    return f"{BACKFILL_ENDED}.{owner}"


def published_property(owner: str) -> str:
    """The name of the table property that says how far the branch of a backfill was published."""
    return f"{BACKFILL_PUBLISHED}.{owner}"


def ended_backfills(properties: Iterable[str]) -> frozenset[str]:
    """The backfills that have ended, by the names of a table's properties, each as ``<control topic>.<group>``. Nothing
    of them waits any more.
    """
    prefix = ended_property("")
    return frozenset(name.removeprefix(prefix) for name in properties if name.startswith(prefix))
