"""A ledger that an operator changes: in a snapshot without files, so that it counts like that of any commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pyiceberg.table.update import SetPropertiesUpdate

from calving.errors import CommitRefusedError
from calving.iceberg.history import place_added
from calving.iceberg.layers import Prepared
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.summary import engine
from calving.iceberg.target import MAX_TRIES, IcebergTarget
from calving.model.offsets import Coverage, encode_coverage
from calving.protocol.ledger import Ledger
from calving.protocol.ledger_key import ROLLBACK_ANSWERED, LedgerKey
from calving.protocol.ledger_updates import committed
from calving.retries import tries

AGAIN_OFFSETS = "calving.again-offsets"
"""Of a snapshot without files: the offsets of which the table gets the records a second time from here on."""


def restate(
    target: IcebergTarget,
    key: LedgerKey,
    change: Callable[[Ledger], Ledger],
    again: Coverage,
    properties: Mapping[str, str],
    mind: Callable[[Mapping[str, str]], None],
) -> None:
    """Let the branch have the changed ledger, and the table these properties, in one commit; if the ledger does not
    change, the properties alone. ``mind`` gets the table's properties before each try, and may refuse.

    :raises CommitRefusedError, CommitUncertainError: others committed faster each time, or there was no answer: run it
        again.
    """
    for is_last in tries(MAX_TRIES, target.pause):
        state = target.load()
        mind(state.properties)
        before = key.read(state.line, state.properties)
        after = change(before)
        if after == before:
            with state.table.transaction() as changing:
                changing.set_properties(dict(properties))
            return
        told = {AGAIN_OFFSETS: encode_coverage(again)} if again else {}
        snapshot = new_snapshot(state.table, {**engine(), **key.summary(after), **told}, key.branch)
        updates, requirements = snapshot.prepare()
        noted = committed(key, state.line, state.properties, after, place_added(updates))
        if after.forgotten:
            note = key.rollback_note(state.properties)
            noted[key.of_table(ROLLBACK_ANSWERED)] = str(replace(note, forgotten=after.forgotten))
        changes = (SetPropertiesUpdate(updates={**noted, **properties}),)
        try:
            target.commit(state, Prepared((snapshot,), updates, requirements), changes)
        except CommitRefusedError:
            if is_last:
                raise
            continue
        return
