"""CREATE OR REPLACE TABLE as Iceberg's Java library does it in a catalog that swaps the whole metadata.

The statement takes the metadata that the table has when it begins, removes main, and adds a snapshot with the result of
its query. When it ends, the catalog takes this metadata, whatever was committed meanwhile: a catalog of Iceberg's
library compares with the metadata that it loads just before the swap. (``BaseTransaction.commitReplaceTransaction``;
REST servers apply the changes to the table as it is.)
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from sqlalchemy import update
from sqlalchemy.orm import Session


def replace_table(catalog: Catalog, begun: Table, rows: pa.Table | None) -> str | None:
    """The place of the metadata that the statement has replaced; None if somebody has committed at the same moment, and
    it has failed. ``begun``: the table as it was when the statement began. ``rows``: the result of its query; None for a
    statement without one.
    """
    assert isinstance(catalog, SqlCatalog)
    statement = Transaction(begun)
    statement._apply((RemoveSnapshotRefUpdate(ref_name="main"),))
    if rows is not None:
        statement.append(rows)
    staged = catalog._update_and_stage_table(begun, begun.name(), (), statement._updates)
    catalog._write_metadata(staged.metadata, staged.io, staged.metadata_location)
    return swap_metadata(catalog, begun.name(), staged.metadata_location)


def swap_metadata(catalog: Catalog, name: tuple[str, ...], location: str) -> str | None:
    """Give the table the metadata at this place; the place of those before, None if somebody has committed at the same
    moment.
    """
    assert isinstance(catalog, SqlCatalog)
    now = catalog.load_table(name).metadata_location
    swap = (
        update(IcebergTables)
        .where(
            IcebergTables.catalog_name == catalog.name,
            IcebergTables.table_namespace == ".".join(name[:-1]),
            IcebergTables.table_name == name[-1],
            IcebergTables.metadata_location == now,
        )
        .values(metadata_location=location, previous_metadata_location=now)
    )
    with Session(catalog.engine) as session:
        swapped = bool(session.execute(swap).rowcount)  # type: ignore[attr-defined]
        session.commit()
    return now if swapped else None
