"""Which snapshots of a table expire.

A sink's old snapshots expire in the commit that adds one, which keeps the cost of a commit constant, and only if the
table's properties ask for it: ``calving.expire.max-snapshots`` (count), or ``history.expire.max-snapshot-age-ms`` with
``history.expire.min-snapshots-to-keep`` (age). With ``gc.enabled = false`` no snapshot expires. What a branch itself
retains (``WITH SNAPSHOT RETENTION``) counts before the table's properties. Only snapshots of the written branch expire.
A snapshot stays if another branch or a tag can reach it, or if it has the newest ledger of a sink, but for a backfill
that has ended. A snapshot that removed files stays, too, until ``calving maintain`` (``due``) notes these files: data
files are not touched here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate

from calving.iceberg.history import ancestors, summary_of, whole_number
from calving.iceberg.locations import delete_orphans
from calving.model.backfills import ended_backfills
from calving.protocol.ledger_key import COMMIT_ID, OFFSETS

MAX_SNAPSHOTS = "calving.expire.max-snapshots"
MAX_AGE_MS = "history.expire.max-snapshot-age-ms"
MIN_TO_KEEP = "history.expire.min-snapshots-to-keep"
GC_ENABLED = "gc.enabled"

_TAKES_AWAY = {"deleted-data-files", "removed-delete-files"}
"""Summary keys of a snapshot that removed files."""
_STAGED = "wap.id"
"""The summary key of a snapshot that waits until somebody publishes it."""
_AT_ONCE = 10
"""Snapshots expire in groups of at least this many, so that several commits share one update and one deletion of
files.
"""


@dataclass(frozen=True, slots=True)
class Expired:
    """The snapshots to expire. ``beside`` are their neighbours that stay in the branch; None if other snapshots, too,
    may share manifests with the expired ones.
    """

    gone: tuple[Snapshot, ...] = ()
    beside: tuple[Snapshot, ...] | None = None

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        return (RemoveSnapshotsUpdate(snapshot_ids=[s.snapshot_id for s in self.gone]),) if self.gone else ()


def may_delete(metadata: TableMetadata) -> bool:
    """Whether the table's properties allow that files are deleted (K17)."""
    return metadata.properties.get(GC_ENABLED, "").lower() != "false"


def is_asked_for(metadata: TableMetadata) -> bool:
    """Whether the table's properties ask for expiry."""
    limits = metadata.properties
    return (MAX_SNAPSHOTS in limits or MAX_AGE_MS in limits) and may_delete(metadata)


def expired(metadata: TableMetadata, branch: str) -> Expired:
    """The snapshots to expire with a commit of the sink, if there are enough of them."""
    if not is_asked_for(metadata):
        return Expired()
    line = list(ancestors(metadata, branch))
    gone = [each for each in _over(metadata, branch, line, metadata.last_updated_ms) if _only_adds(each)]
    if len(gone) < _AT_ONCE:
        return Expired()
    return Expired(tuple(gone), _beside(line, gone) if len(line) == len(metadata.snapshots) else None)


def due(metadata: TableMetadata, branch: str, now_ms: int) -> tuple[Snapshot, ...]:
    """All snapshots to expire, also those that removed files.

    Some catalogs remove the parent of a snapshot when the parent expires. So snapshots that no branch or tag reaches
    count as older ones of the branch, unless they are newer than the oldest one that it reaches, as after a rollback,
    or staged.
    """
    line = list(ancestors(metadata, branch)) if is_asked_for(metadata) else []
    if not line:
        return ()
    reached = {each.snapshot_id for name in metadata.refs for each in ancestors(metadata, name)}
    apart = [
        each
        for each in metadata.snapshots
        if each.snapshot_id not in reached
        and each.timestamp_ms < line[-1].timestamp_ms
        and _STAGED not in summary_of(each)
    ]
    return tuple(_over(metadata, branch, [*line, *sorted(apart, key=lambda each: -each.timestamp_ms)], now_ms))


def _over(metadata: TableMetadata, branch: str, line: Sequence[Snapshot], now_ms: int) -> Iterator[Snapshot]:
    """Those of the ``line``, head first, that the branch does not retain, and nobody else needs."""
    retention = _Retention.of(metadata, branch, len(line), now_ms)
    over = [each for depth, each in enumerate(line) if depth and retention.is_over(depth, each.timestamp_ms)]
    if over:
        kept = {s.snapshot_id for name in metadata.refs if name != branch for s in ancestors(metadata, name)}
        kept |= _with_ledgers(line, ended_backfills(metadata.properties))
        yield from (each for each in over if each.snapshot_id not in kept)


def _with_ledgers(line: Iterable[Snapshot], ended: Collection[str]) -> set[int]:
    """The newest snapshot with the ledger of each sink but the ``ended`` backfills. The Java sink has its ledger in
    summaries alone: without it, it would commit files a second time. Another sink would not know whether the table was
    rolled back.
    """
    newest: dict[str, int] = {}
    for snapshot in line:
        for name in summary_of(snapshot):
            if name.startswith(OFFSETS) and name.removeprefix(OFFSETS) not in ended:
                newest.setdefault(name, snapshot.snapshot_id)
    return {*newest.values()}


class _Retention(NamedTuple):
    """How many of the branch's snapshots stay at any age, how many at most, and from when on; None: of any time."""

    keep: int
    most: int
    since_ms: int | None

    @staticmethod
    def of(metadata: TableMetadata, branch: str, count: int, now_ms: int) -> _Retention:
        limits, ref = metadata.properties, metadata.refs.get(branch)
        own_least, own_age = (ref.min_snapshots_to_keep, ref.max_snapshot_age_ms) if ref is not None else (None, None)
        keep = max(1, whole_number(limits, MIN_TO_KEEP, 1) if own_least is None else own_least)
        most = max(whole_number(limits, MAX_SNAPSHOTS, count), own_least or 0)
        age = whole_number(limits, MAX_AGE_MS, 0) if own_age is None else own_age
        return _Retention(keep, most, now_ms - age if MAX_AGE_MS in limits else None)

    def is_over(self, depth: int, timestamp_ms: int) -> bool:
        """Whether it ends for the snapshot at this depth below the head."""
        return depth >= self.most or (self.since_ms is not None and depth >= self.keep and timestamp_ms < self.since_ms)


def remove_files(io: FileIO, found: Expired) -> None:
    """Delete the manifest lists of expired snapshots, and the manifests that only they list.

    A manifest leaves a branch once, when it is merged, and never comes back. So if neither the next older nor the next
    newer remaining snapshot lists a manifest, no snapshot lists it.
    """
    delete_orphans(io, _manifests_of_none(io, found))
    delete_orphans(io, [snapshot.manifest_list for snapshot in found.gone])


def _manifests_of_none(io: FileIO, found: Expired) -> set[str]:
    if found.beside is None:
        return set()
    try:
        kept = {manifest.manifest_path for snapshot in found.beside for manifest in snapshot.manifests(io)}
        return {manifest.manifest_path for snapshot in found.gone for manifest in snapshot.manifests(io)} - kept
    except Exception:  # without the manifest lists the unused manifests are unknown: they stay
        return set()


def _only_adds(snapshot: Snapshot) -> bool:
    """Whether a snapshot removed no files: an append, or a commit of a sink that removed none."""
    summary = snapshot.summary
    if summary is None:
        return False
    said = summary.additional_properties
    return summary.operation is Operation.APPEND or (COMMIT_ID in said and not _TAKES_AWAY & said.keys())


def _beside(line: Sequence[Snapshot], gone: Sequence[Snapshot]) -> tuple[Snapshot, ...]:
    leaves = {snapshot.snapshot_id for snapshot in gone}
    pairs = [pair for pair in pairwise(line) if len({s.snapshot_id in leaves for s in pair}) == 2]
    return tuple(s for pair in pairs for s in pair if s.snapshot_id not in leaves)
