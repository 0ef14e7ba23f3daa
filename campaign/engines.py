"""Engines beside the sink that move the heads of its tables back."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from campaign.faults import before_a_commit
from campaign.sink import Sink
from harness.replacing import replace_table
from harness.spark_reader import spark_on
from harness.waiting import happens_within

_OFTEN, _SELDOM = 0.3, 0.1
_DEEPEST = 6
_LONGEST = 5.0
"""In seconds: a statement. The sink commits every second."""
_NOTICED_SECONDS = 120
"""So long nobody may notice that a table was replaced, on a machine that is busy."""
_REFUSED = ("CommitFailedException", "is not an ancestor", "not append, dynamic overwrite, or fast-forward")
"""Why Spark may do nothing: the sink has committed meanwhile, or the snapshot cannot be picked."""


class Rollback(NamedTuple):
    """A table whose head somebody has moved from one snapshot to another; ``after`` is None if it begins again.
    ``metadata``: the place of metadata that has both.
    """

    table: str
    metadata: str
    before: int
    after: int | None


Engine = Callable[[Sink, str, random.Random], Rollback | None]
"""Moves the head of a table back. None: there is nothing to go back to, or others have committed meanwhile."""


def by_catalog(run: Sink, name: str, rng: random.Random) -> Rollback | None:
    """To an earlier snapshot, or to one without anything that came before, as CREATE OR REPLACE TABLE does."""
    table = run.catalog.load_table(name)
    head = table.current_snapshot()
    target = before_a_commit(table, rng.randrange(_DEEPEST))
    if head is None or target is None:
        return None
    begins_again = rng.random() < _SELDOM
    updates: tuple[TableUpdate, ...] = (RemoveSnapshotRefUpdate(ref_name="main"),) if begins_again else _to(target)
    guards = (
        AssertRefSnapshotId(ref="main", snapshot_id=head.snapshot_id),
        AssertTableUUID(uuid=table.metadata.table_uuid),
    )
    try:
        table._do_commit(updates, guards)
    except CommitFailedException:
        return None
    return Rollback(name, table.metadata_location, head.snapshot_id, None if begins_again else target.snapshot_id)


def _to(target: Snapshot) -> tuple[TableUpdate, ...]:
    return (
        SetSnapshotRefUpdate(
            ref_name="main",
            type=SnapshotRefType.BRANCH,
            snapshot_id=target.snapshot_id,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        ),
    )


def by_spark(run: Sink, name: str, rng: random.Random) -> Rollback | None:
    """By one of Iceberg's procedures, or CREATE OR REPLACE BRANCH. Sometimes another procedure brings something back:
    it picks the newest of the abandoned snapshots, or moves the head forward again.
    """
    table = run.catalog.load_table(name)
    target = before_a_commit(table, rng.randrange(_DEEPEST))
    if target is None:
        return None
    known = len(table.metadata.snapshot_log)
    if not _does(run, rng.choice(_ways(name, target))):
        return None
    before = _abandoned(run.catalog.load_table(name), known)
    if rng.random() < _OFTEN:
        first, *more = rng.choice(_second_thoughts(name, before))
        if _does(run, first):
            for statement in more:
                _does(run, statement)
    table = run.catalog.load_table(name)
    return Rollback(name, table.metadata_location, before, table.metadata.current_snapshot_id)


def _ways(name: str, target: Snapshot) -> list[str]:
    at = datetime.fromtimestamp((target.timestamp_ms + 1) / 1000, UTC).isoformat(sep=" ")
    return [
        f"call iceberg.system.rollback_to_snapshot('iceberg.{name}', {target.snapshot_id})",
        f"call iceberg.system.rollback_to_timestamp('iceberg.{name}', timestamp '{at}')",
        f"call iceberg.system.set_current_snapshot('iceberg.{name}', {target.snapshot_id})",
        f"alter table iceberg.{name} create or replace branch main as of version {target.snapshot_id}",
    ]


def _second_thoughts(name: str, before: int) -> list[list[str]]:
    return [
        [f"call iceberg.system.cherrypick_snapshot('iceberg.{name}', {before})"],
        [
            f"alter table iceberg.{name} create or replace branch kept as of version {before}",
            f"call iceberg.system.fast_forward('iceberg.{name}', 'main', 'kept')",
            f"alter table iceberg.{name} drop branch kept",
        ],
    ]


def _does(run: Sink, statement: str) -> bool:
    """Whether Spark has done it, and was not refused."""
    try:
        spark_on(run.catalog_keys["warehouse"], statement)
    except AssertionError as error:
        if not any(reason in str(error) for reason in _REFUSED):
            raise
        print(f"refused: {statement}", file=sys.stderr, flush=True)
        return False
    return True


def _abandoned(table: Table, known: int) -> int:
    """The head that was left; so many entries of the log of heads were there before. The sink may have committed
    before Spark, and since.
    """
    heads = [entry.snapshot_id for entry in table.metadata.snapshot_log[known - 1 :]]
    return next(before for before, after in pairwise(heads) if before not in _line(table, after))


def _line(table: Table, head: int) -> Iterator[int]:
    return (each.snapshot_id for each in ancestors_of(table.snapshot_by_id(head), table.metadata))


def by_replacement(run: Sink, name: str, rng: random.Random) -> Rollback | None:
    """By CREATE OR REPLACE TABLE, with a result without rows or without a query. The catalog swaps the whole metadata:
    it discards what the sink commits while the statement runs. Whoever answers waits until the sink has said so.
    """
    begun = run.catalog.load_table(name)
    if begun.current_snapshot() is None:
        return None
    time.sleep(rng.uniform(0, _LONGEST))
    rows = pa.Table.from_pylist([], schema=begun.schema().as_arrow()) if rng.random() < _OFTEN else None
    before = replace_table(run.catalog, begun, rows)
    if before is None or (head := StaticTable.from_metadata(before).current_snapshot()) is None:
        return None
    known = {each.snapshot_id for each in begun.metadata.snapshots}
    own = [each for each in StaticTable.from_metadata(before).metadata.snapshots if _is_own(each)]
    if any(each.snapshot_id not in known for each in own):
        said = _discarded(begun)
        is_noticed = happens_within(_NOTICED_SECONDS, lambda: _discarded(run.catalog.load_table(name)) != said)
        assert is_noticed, f"nobody notices {name}"
    return Rollback(name, before, head.snapshot_id, None)


def _is_own(snapshot: Snapshot) -> bool:
    """Whether the sink has committed it."""
    return snapshot.summary is not None and "kafka.connect.commit-id" in snapshot.summary.additional_properties


def _discarded(table: Table) -> dict[str, str]:
    """What the table says of discarded commits, also of those from before."""
    return {key: value for key, value in table.properties.items() if key.startswith("calving.discarded-offsets.")}


ENGINES: dict[str, Engine] = {"catalog": by_catalog, "replacement": by_replacement, "spark": by_spark}
