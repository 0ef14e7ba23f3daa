"""What a rollback takes from the queries and batch writes of Spark that have written the table beside the sink."""

from __future__ import annotations

from collections.abc import Iterator

from calving.iceberg.history import ancestors, summary_of
from calving.iceberg.rollback import RollbackPlan
from calving.model.text import counted
from calving.protocol.batch_ledger import lost_batches, lost_writes

_MOST_NAMED = 10


def lines(name: str, branch: str, plan: RollbackPlan, *, would: bool) -> Iterator[str]:
    """For a person; nothing if no row of Spark leaves."""
    if not plan.leaving or (plan.restoration is not None and plan.restoration.forward is not None):
        return
    gone = {each.snapshot_id for each in plan.leaving}  # the branch still has them, or it has already gone back
    staying = (each for each in ancestors(plan.table.metadata, branch) if each.snapshot_id not in gone)
    loses = "would lose" if would else "lost"
    for lost in lost_batches(map(summary_of, plan.leaving), map(summary_of, staying)):
        is_in_part = lost.left is not None and lost.left.query == lost.last.query
        since = f"the batches after {lost.left.batch}" if lost.left is not None and is_in_part else "batches"
        yield (
            f"table {name}: sink {lost.sink} of Spark {loses} {since}, up to batch {lost.last.batch} of query"
            f" {lost.last.query}; the answer is not for its rows: its next batch is refused until it has"
            " on-new-checkpoint = continue"
        )
    if writes := lost_writes(map(summary_of, plan.leaving)):
        more = f" and {len(writes) - _MOST_NAMED} more" if len(writes) > _MOST_NAMED else ""
        yield (
            f"table {name} {loses} {counted(len(writes), 'batch write')} of Spark: {', '.join(writes[:_MOST_NAMED])}"
            f"{more}; a write that is repeated with its write-id adds its rows again"
        )
