"""Expires old snapshots in the commit that adds one, which keeps the cost of a commit constant.

Snapshots expire only if the table's properties ask for it: ``calving.expire.max-snapshots`` (count), or
``history.expire.max-snapshot-age-ms`` with ``history.expire.min-snapshots-to-keep`` (age). With ``gc.enabled = false``
no snapshot expires. What a branch itself retains (``WITH SNAPSHOT RETENTION``) counts before the table's properties.

Only snapshots of the written branch expire. A snapshot stays if another branch or a tag can reach it. A snapshot that
removed files stays, too: ``expire_snapshots`` of other engines needs it to find the files that a compaction or a
deletion replaced. Data files are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate

from calving.errors import TableTroubleError
from calving.iceberg.ancestry import ancestors
from calving.iceberg.orphans import delete_orphans
from calving.protocol.ledger import COMMIT_ID

MAX_SNAPSHOTS = "calving.expire.max-snapshots"
MAX_AGE_MS = "history.expire.max-snapshot-age-ms"
MIN_TO_KEEP = "history.expire.min-snapshots-to-keep"
GC_ENABLED = "gc.enabled"

_TAKES_AWAY = {"deleted-data-files", "removed-delete-files"}
"""Summary keys of a snapshot that removed files."""
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


def expired(metadata: TableMetadata, branch: str) -> Expired:
    """The snapshots to expire according to the properties, if there are enough of them."""
    limits = metadata.properties
    if (MAX_SNAPSHOTS not in limits and MAX_AGE_MS not in limits) or limits.get(GC_ENABLED, "").lower() == "false":
        return Expired()
    lines = {name: list(ancestors(metadata, name)) for name in metadata.refs}
    kept_elsewhere = {s.snapshot_id for name, line in lines.items() if name != branch for s in line}
    line = lines.get(branch, [])
    keep, most, oldest = _retention(metadata, branch, len(line))
    gone: list[Snapshot] = []
    for depth, snapshot in enumerate(line):
        too_many = depth >= most
        age = metadata.last_updated_ms - snapshot.timestamp_ms
        too_old = MAX_AGE_MS in limits and depth >= keep and age > oldest
        if depth and (too_many or too_old) and snapshot.snapshot_id not in kept_elsewhere and _only_adds(snapshot):
            gone.append(snapshot)
    if len(gone) < _AT_ONCE:
        return Expired()
    return Expired(tuple(gone), _beside(line, gone) if len(line) == len(metadata.snapshots) else None)


def _retention(metadata: TableMetadata, branch: str, count: int) -> tuple[int, int, int]:
    """How many of the branch's snapshots stay at any age; how many stay at most; and up to which age, ms."""
    limits, ref = metadata.properties, metadata.refs.get(branch)
    own_least, own_age = (ref.min_snapshots_to_keep, ref.max_snapshot_age_ms) if ref is not None else (None, None)
    keep = max(1, _number(limits, MIN_TO_KEEP, 1) if own_least is None else own_least)
    most = max(_number(limits, MAX_SNAPSHOTS, count), own_least or 0)
    return keep, most, _number(limits, MAX_AGE_MS, 0) if own_age is None else own_age


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    """:raises TableTroubleError: the property is no number."""
    try:
        return int(properties.get(name, default))
    except ValueError as error:
        raise TableTroubleError(f"the table's property {name} = {properties[name]} is not a whole number") from error


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
