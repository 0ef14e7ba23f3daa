"""Sees whether somebody moves the rows that land in tables that this sink does not maintain."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table

from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.manifests import read_manifest_list
from calving.runtime.maintenance.compact import COMPACT
from calving.runtime.preflight import ledger_key
from calving.settings.load import Sink
from calving.status.board import Board
from calving.status.maintenance import after_look, after_moves
from calving.writing.partitioning import is_divided

log = logging.getLogger(__name__)


class UnmovedFiles:
    """Looks at the files that have landed, and tells the board since when the oldest ones are there (K20). Files of
    format version 1 have no age.
    """

    def __init__(self, sink: Sink, catalog: Catalog, board: Board) -> None:
        self._sink, self._catalog, self._board = sink, catalog, board
        self._oldest: dict[str, int] = {}

    def look(self, names: Iterable[str], now: float) -> list[str]:
        """Look at the tables among these, which this sink does not maintain, whose rows land; returns them. ``now``:
        seconds since the epoch.
        """
        own = [name for name in names if self._sink.landing(name) == "unpartitioned"]
        for name in own:
            try:
                self._look(name, now)
            except Exception as error:  # a catalog or a storage may raise anything; the next look comes
                log.debug("table %s: nobody knows what has landed: %s", name, error)
        return own

    def _look(self, name: str, now: float) -> None:
        table = find_table(self._catalog, table_id(name))
        landed = [] if table is None else _landed(table, ledger_key(self._sink, "", name).branch)
        files = sum((each.added_files_count or 0) + (each.existing_files_count or 0) for each in landed)
        oldest = min((each.min_sequence_number for each in landed), default=None)
        if oldest is None:
            self._oldest.pop(name, None)
            self._board.maintenance(lambda before: after_look(before, name, COMPACT, {}, now))
            return
        was_moved = oldest != self._oldest.get(name, oldest)
        self._oldest[name] = oldest
        pause = int(self._sink.maintenance(name, "pause_ms")) / 1000
        self._board.maintenance(
            lambda before: after_moves(before, name, COMPACT, files, now, pause, was_moved=was_moved)
        )


def _landed(table: Table, branch: str) -> list[ManifestFile]:
    """The manifests of the live files without a partition, of a table with partitions."""
    metadata = table.metadata
    head = metadata.snapshot_by_name(branch)
    if head is None or metadata.format_version == 1 or not is_divided(metadata.spec()):
        return []
    specs = {number for number, spec in metadata.specs().items() if not is_divided(spec)}
    return [
        manifest
        for manifest in read_manifest_list(table.io, head.manifest_list)
        if manifest.content == ManifestContent.DATA
        and manifest.partition_spec_id in specs
        and (manifest.has_added_files() or manifest.has_existing_files())
    ]
