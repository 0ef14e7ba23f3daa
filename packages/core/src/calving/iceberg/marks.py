"""The mark of a loaded table, and what becomes of a table that went back: it was replaced, or the catalog was."""

from __future__ import annotations

import logging

from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate

from calving.errors import WentBackError
from calving.iceberg.history import head_guards, line_of, log_rollback, summary_of
from calving.model.marks import TableMark
from calving.model.offsets import size
from calving.model.text import counted
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.ledger_updates import replaced
from calving.protocol.replacement import LogExtent, table_mark

log = logging.getLogger(__name__)


def mark_of(table: Table, key: LedgerKey) -> TableMark:
    """The table's mark: a later mark of the same table is never less, once the properties tell of a replacement that
    has taken the sequence number back. Format version 1 has no sequence numbers.

    :raises TableTroubleError: the ledger in the table's properties is not what calving writes.
    """
    metadata = table.metadata
    last = 0 if metadata.format_version == 1 else metadata.last_sequence_number
    newest_first = reversed(metadata.snapshots)
    return table_mark(key, str(metadata.table_uuid), last, metadata.properties, map(summary_of, newest_first))


def went_back(table: str, mark: TableMark, before: TableMark | None) -> str:
    """A sentence on a table that shows an older state than ``before``, and on what to do."""
    told = before.sequence if before is not None else 0
    if mark.sequence < told:
        return (
            f"table {table} has sequence number {mark.sequence}, and had {told} before: the catalog shows an older"
            " state, as after a failover or a restored backup, or CREATE OR REPLACE TABLE has discarded all that the"
            " sink had committed; bring the catalog forward again, or stop all workers and run"
            " `calving recover FILE`, which reads the lost records again"
        )
    return (
        f"table {table} no longer has this sink's last commit: the catalog shows an older state, as after a failover or"
        " a restored backup, or CREATE OR REPLACE TABLE has discarded all that the sink had committed; bring the"
        " catalog forward again, or stop all workers and run `calving recover FILE`, which reads the lost records again"
    )


def note_replacement(table: Table, key: LedgerKey, before: TableMark | None, extent: LogExtent) -> None:
    """Say in the properties of a table that it was replaced while the sink committed to it, and what it has lost: then
    it counts as rolled back, and no longer as older than ``before``.

    :raises WentBackError: nothing in the table shows a replacement.
    :raises CommitFailedException: somebody else has committed since it was loaded.
    """
    name, line, properties = ".".join(table.name()), line_of(table, key.branch), table.metadata.properties
    changes = replaced(key, line, properties, before, extent) if before is not None else {}
    if not changes:
        raise WentBackError(went_back(name, mark_of(table, key), before))
    table._do_commit((SetPropertiesUpdate(updates=changes),), head_guards(table, key.branch))
    ledger, discarded = key.read(line, table.metadata.properties), key.discarded(table.metadata.properties)
    if discarded:
        log.error(
            "table %s was replaced (CREATE OR REPLACE TABLE) while this sink committed: the catalog has discarded"
            " %s that it had committed meanwhile, and `restore` cannot bring them back",
            name,
            counted(size(discarded), "offset"),
        )
    log_rollback(tuple(table.name()), key, ledger, properties)
