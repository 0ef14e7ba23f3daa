"""Cherry-picks of which nobody knows which records they brought back."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table import Table

from calving.errors import ConfigError
from calving.iceberg.history import line_of
from calving.iceberg.manifests import read_entries, read_manifest_list
from calving.model.files import sink_name
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.rollback import added_by, source_of


def mind_picks(name: str, table: Table, key: LedgerKey) -> None:
    """:raises ConfigError: a cherry-pick may have brought back records that would be read again."""
    for pick, source in unclear(table, key):
        raise ConfigError(
            f"table {name}: snapshot {pick} is a cherry-pick of snapshot {source}, which has expired, so nobody knows"
            " which of the removed records it brought back, and reading them again would double these; roll the table"
            f" back to a snapshot before {pick}, and run `calving recover FILE --table {name}` again"
        )


def unclear(table: Table, key: LedgerKey) -> Iterator[tuple[int, int]]:
    """The cherry-picks in a branch with files of a sink whose source has expired before the ledger counted them; each
    with the id of its source.
    """
    key, line = key.with_former(table.metadata.properties), line_of(table, key.branch)
    for pick in line.snapshots:
        source = source_of(pick)
        if source is None or added_by(line, source, key.held_at) is not None:
            continue
        if key.known_at((pick,), table.properties) is None and _has_files_of_a_sink(table, pick.place.id):
            yield pick.place.id, source


def _has_files_of_a_sink(table: Table, snapshot_id: int) -> bool:
    """Whether a snapshot added files with the names that a sink gives."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    return snapshot is not None and any(
        sink_name(entry.data_file.file_path) is not None
        for manifest in read_manifest_list(table.io, snapshot.manifest_list)
        if manifest.added_snapshot_id == snapshot_id
        for entry in read_entries(table.io, manifest)
    )
