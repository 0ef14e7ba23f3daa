"""A coordinator remembers the state of each table, so that it notices when the catalog shows an older one."""

from __future__ import annotations

from typing import NamedTuple

from calving.model.offsets import ControlOffsets


class TableMark(NamedTuple):
    """A table as last loaded: its UUID; its last sequence number; and the control offsets of the sink's ledger.

    No operation on a table lowers the sequence number. But CREATE OR REPLACE TABLE, in a catalog that swaps the whole
    metadata, throws away every commit that landed since the statement began, and gives their numbers away again. The
    sink alone moves the control offsets, so they show that.
    """

    uuid: str
    sequence: int
    control: ControlOffsets | None = None
    """None if they are not known, or belong to another control log."""

    def is_older_than(self, before: TableMark | None) -> bool:
        """Whether this is an older state of the same table than ``before``."""
        if before is None or self.uuid != before.uuid:
            return False
        return self.sequence < before.sequence or self._lacks(before.control)

    def after(self, before: TableMark | None) -> TableMark:
        """This later mark. A coordinator of an earlier version tells no control offsets, and does not lower them."""
        is_unknown = self.control is None and before is not None and before.uuid == self.uuid
        return self._replace(control=before.control) if before is not None and is_unknown else self

    def _lacks(self, before: ControlOffsets | None) -> bool:
        if self.control is None or before is None:
            return False
        return any(self.control.get(partition, 0) < offset for partition, offset in before.items())
