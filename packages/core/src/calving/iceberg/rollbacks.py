"""Looks at tables between commits, and notes in their properties what a rollback has removed (R2a)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate

from calving.iceberg.ancestry import line_of
from calving.iceberg.catalog import find_table
from calving.model.coverage import less
from calving.model.events import TableId
from calving.protocol.ledger import Ledger, LedgerKey
from calving.protocol.notes import looked
from calving.protocol.rollback import RolledBack

log = logging.getLogger(__name__)


def look(catalog: Catalog, table: TableId, key: LedgerKey) -> Ledger | None:
    """The ledger of a table that nobody commits to now; None if there is no such table or branch.

    If the table's properties do not say yet what a rollback has removed, they are set, so that a later expiry of
    snapshots does not hide it. Another commit at the same time may prevent this: then the next look does it.

    :raises UnavailableError: the catalog gives no clear answer.
    """
    loaded = find_table(catalog, table)
    if loaded is None or (key.branch != "main" and key.branch not in loaded.metadata.refs):
        return None
    line, properties = line_of(loaded, key.branch), loaded.metadata.properties
    ledger = key.read(line, properties)
    changes = looked(key, line, properties)
    if changes:
        log_rollback(table, key, ledger, properties)
        head = loaded.metadata.refs.get(key.branch)
        guards = (
            AssertRefSnapshotId(ref=key.branch, snapshot_id=head.snapshot_id if head is not None else None),
            AssertTableUUID(uuid=loaded.metadata.table_uuid),
        )
        try:
            loaded._do_commit((SetPropertiesUpdate(updates=changes),), guards)
        except CommitFailedException as error:
            log.info("table %s: someone else committed while it was looked at: %s", ".".join(table), error)
    return ledger


def log_rollback(table: TableId, key: LedgerKey, ledger: Ledger, properties: Mapping[str, str]) -> None:
    """Log a rollback that the table's properties do not tell yet. ``ledger``: as it was read from the table."""
    newly = less(ledger.gone, key.known_to_be_gone(properties))
    doubt = ledger.doubt if ledger.doubt != key.doubt(properties) else None
    if (rollback := RolledBack.of(newly, doubt)) is not None:
        log.error("%s", rollback.text(".".join(table)))


def log_new_branch(table: TableId, key: LedgerKey, properties: Mapping[str, str]) -> None:
    """Log that the sink's branch is made from main. Rows may be gone if the sink has committed to it before."""
    name = ".".join(table)
    if key.of_table(key.offsets) in properties:
        log.warning(
            "table %s: branch %s was dropped, and is made anew from main: rows that were in it alone are gone. To have"
            " them, stop the sink, and create the branch at the last snapshot that it had",
            name,
            key.branch,
        )
    else:
        log.info("table %s: branch %s is made from main", name, key.branch)
