"""Format version 3 in catalogs without a server of their own: SQL, Hive and Glue.

There the client writes the metadata file, and pyiceberg 0.12 refuses to write one of version 3. It parses all that the
file holds, apart from what is named below, so it can write it: ``install`` lets it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import _SetFreshIDs
from pyiceberg.table import update
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.types import StructType

from calving.errors import ConfigError

ENCRYPTION = "encryption.key-id"
"""Iceberg's property of a table that is encrypted."""
_SEVERAL = re.compile(r"(.*) of (\[[\d, ]+\])")
"""The name of a transform of several columns, see ``transform_of``."""
_MAYBE_SEVERAL = " of ["
"""Part of each such name. To search a file of 100 kB for the pattern takes minutes."""
_VERSION = 3


def transform_of(name: str, columns: list[int]) -> str:
    """The name under which a transform of several columns stands in pyiceberg's metadata, which knows only one."""
    return f"{name} of {columns}"


def install() -> None:
    """Let pyiceberg's catalogs write such tables, and upgrade others to this version; in every catalog, let new columns
    keep their default values.
    """
    _SetFreshIDs.struct = _with_defaults  # type: ignore[method-assign, assignment]
    TableMetadataV3.model_dump_json = _metadata_file  # type: ignore[method-assign, assignment]
    update.SUPPORTED_TABLE_FORMAT_VERSION = _VERSION  # type: ignore[attr-defined]
    if update._apply_table_update.dispatch(AddSnapshotUpdate) is not _add_snapshot:
        update._apply_table_update.register(AddSnapshotUpdate, _add_snapshot)


_renumbered = _SetFreshIDs.struct


def _with_defaults(visitor: _SetFreshIDs, before: StructType, results: Any) -> StructType:
    """A struct type whose fields get their ids."""
    fields = zip(before.fields, _renumbered(visitor, before, results).fields, strict=True)
    defaults = {"initial_default", "write_default"}
    return StructType(*(new.model_copy(update={n: getattr(old, n) for n in defaults}) for old, new in fields))


_add = update._apply_table_update.dispatch(AddSnapshotUpdate)


def _add_snapshot(added: AddSnapshotUpdate, before: TableMetadata, context: Any) -> TableMetadata:
    """:raises CommitFailedException: a commit to another branch was faster."""
    if isinstance(before, TableMetadataV3):
        before = _with_row_ids(before)
        number = added.snapshot.sequence_number or 0
        # As pyiceberg does for version 2.
        if number <= before.last_sequence_number and added.snapshot.parent_snapshot_id is not None:
            raise CommitFailedException(
                f"a snapshot with sequence number {number} was made for a table that has"
                f" {before.last_sequence_number} already"
            )
    made: TableMetadata = _add(added, before, context)
    return made


def _metadata_file(metadata: TableMetadataV3, **options: Any) -> str:
    """The text of the metadata file.

    :raises ConfigError: the table is encrypted: pyiceberg has not kept its keys.
    """
    if metadata.properties.get(ENCRYPTION):
        raise ConfigError(f"the table is encrypted ({ENCRYPTION}), and only a REST catalog can write its metadata")
    text = IcebergBaseModel.model_dump_json(_with_row_ids(metadata), **options)
    if _MAYBE_SEVERAL not in text:
        return text
    written = json.loads(text)
    for each in (*written["partition-specs"], *written["sort-orders"]):
        each["fields"] = [*map(_field, each["fields"])]
    return json.dumps(written)


def _with_row_ids(metadata: TableMetadataV3) -> TableMetadataV3:
    """A new table has no next row id, and neither has one that pyiceberg has just upgraded."""
    if metadata.next_row_id is not None:
        return metadata
    return metadata.model_copy(update={"next_row_id": 0})


def _field(field: dict[str, Any]) -> dict[str, Any]:
    """A partition or sort field as the specification has it."""
    several = _SEVERAL.fullmatch(field["transform"])
    if several is None:
        return field
    found = {name: part for name, part in field.items() if name != "source-id"}
    return {**found, "transform": several[1], "source-ids": json.loads(several[2])}
