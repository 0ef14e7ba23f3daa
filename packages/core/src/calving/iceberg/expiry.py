"""Expiry of old snapshots, in the same commit that adds one: what keeps a commit's cost flat.

Only where the table's properties ask for it: ``calving.expire.max-snapshots`` (count), or
``history.expire.max-snapshot-age-ms`` with ``history.expire.min-snapshots-to-keep`` (age). Only snapshots of the branch
that is written, never one that another branch or a tag can reach. Data files are not touched.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate

from calving.iceberg.ancestry import ancestors

MAX_SNAPSHOTS = "calving.expire.max-snapshots"
MAX_AGE_MS = "history.expire.max-snapshot-age-ms"
MIN_TO_KEEP = "history.expire.min-snapshots-to-keep"

_AT_ONCE = 10
"""Snapshots leave in groups: one update and one sweep of files for several commits."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Snapshots that leave, and those that stay."""

    gone: tuple[Snapshot, ...] = ()

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        return (RemoveSnapshotsUpdate(snapshot_ids=[s.snapshot_id for s in self.gone]),) if self.gone else ()


def expired(metadata: TableMetadata, branch: str) -> Expired:
    """What the properties let go, if it is worth while now."""
    limits = metadata.properties
    if MAX_SNAPSHOTS not in limits and MAX_AGE_MS not in limits:
        return Expired()
    lines = {name: list(ancestors(metadata, name)) for name in metadata.refs}
    kept_elsewhere = {s.snapshot_id for name, line in lines.items() if name != branch for s in line}
    line = lines.get(branch, [])
    keep = max(1, int(limits.get(MIN_TO_KEEP, 1)))
    gone: list[Snapshot] = []
    for depth, snapshot in enumerate(line):
        too_many = depth >= int(limits.get(MAX_SNAPSHOTS, len(line)))
        age = metadata.last_updated_ms - snapshot.timestamp_ms
        too_old = MAX_AGE_MS in limits and depth >= keep and age > int(limits[MAX_AGE_MS])
        if depth and (too_many or too_old) and snapshot.snapshot_id not in kept_elsewhere:
            gone.append(snapshot)
    return Expired(tuple(gone)) if len(gone) >= _AT_ONCE else Expired()


def remove_files(io: FileIO, found: Expired) -> None:
    """Delete the manifest lists of expired snapshots; nothing else refers to them."""
    for snapshot in found.gone:
        with contextlib.suppress(Exception):  # a file that stays is an orphan, no harm
            io.delete(snapshot.manifest_list)
