"""What values are: mostly rows."""

from __future__ import annotations

from typing import Literal

Content = Literal[
    "row", "before image", "partial row", "changed fields", "truncate", "deleted key", "columns", "renamed column"
]
"""The content of values: rows; rows as they were before an update; rows that have only the fields that an update
changed, by their dotted names (``paths``); such rows after a transform that may have changed these names; nothing, of
events that empty their source table; keys of rows to delete, which no transform sees; or no rows, but the columns of a
source table, or the former and the new name of one.

Tables to which rows are only added take rows, partial rows and changed fields. Mutation tables delete the key of a
before image if the update has changed it, may complete partial rows, refuse changed fields, and act on truncate events.
"""
SHAPES: frozenset[Content] = frozenset(("columns", "renamed column"))
"""The contents that tell of a table, and of no row."""
BESIDE_ROWS: frozenset[Content] = SHAPES | {"before image"}
"""The contents of what a transform may return for a record beside its row."""
