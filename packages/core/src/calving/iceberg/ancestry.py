"""The snapshots of a branch."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot


def ancestors(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    """The snapshots of a branch, head first, as far as they have not expired."""
    by_id = {s.snapshot_id: s for s in metadata.snapshots}  # metadata.snapshot_by_id is a linear search
    ref = metadata.refs.get(branch)
    found = by_id.get(ref.snapshot_id) if ref else None
    while found is not None:
        yield found
        found = by_id.get(found.parent_snapshot_id) if found.parent_snapshot_id is not None else None
