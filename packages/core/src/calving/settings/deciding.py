"""The keys that decide where and how files of a table are committed (rule S2)."""

from __future__ import annotations

from calving.model.events import TableId
from calving.model.members import told_key
from calving.settings.keys import MUTATIONS, SinkKeys, TableKeys

DEFAULTS_OF = {
    "id_columns": "default_id_columns",
    "partition_by": "default_partition_by",
    "commit_branch": "default_branch",
    "landing": "landing",
    "on_type_change": "on_type_change",
    **{field: field for field in (*MUTATIONS, "on_rollback")},
}
"""By field of a table's keys the field of the sink's, which holds for tables without one of their own."""
_DECIDING = tuple(
    (str(TableKeys.model_fields[field].alias), str(SinkKeys.model_fields[DEFAULTS_OF[field]].alias))
    for field in ("commit_branch", "id_columns", *MUTATIONS)
)
"""The keys of a table, and the sink's for tables without them."""


def deciding_keys(table: TableId) -> frozenset[str]:
    """The keys, as workers name them, that decide to which branch a table is committed, and whether and how its rows
    change.
    """
    prefix = f"iceberg.table.{'.'.join(table)}."
    return frozenset(name for own, default in _DECIDING for name in (told_key(prefix + own), default))
