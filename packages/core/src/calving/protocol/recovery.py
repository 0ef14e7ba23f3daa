"""Where to read again from when the control log or the positions are lost, and what to leave out then.

What was published and never committed went with the log. The tables tell the rest: below ``settled`` every record is in
whichever table it belongs to, and above it each table knows what it holds. So reading again from there, and leaving out
for each table what it holds, brings back what was lost and doubles nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calving.model.coverage import Coverage, beyond, lowest_uncovered, merged, without
from calving.model.offsets import SourceOffsets, Span, TopicPartition
from calving.protocol.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Recovery:
    """Next offsets to read, and by table what it holds from there on."""

    positions: SourceOffsets
    held: Mapping[str, Coverage]


def recovery(ledgers: Mapping[str, Ledger], *, complete: bool) -> Recovery:
    """What the tables of a sink say together. A partition that none of them knows is absent.

    A ledger's ``settled`` is a statement about all tables, so the furthest one counts. ``complete``: no record goes to
    any other table; then what all of these hold need not be read again either.
    """
    positions: dict[TopicPartition, int] = {}
    for tp in {tp for ledger in ledgers.values() for tp in ledger.source}:
        settled = max(ledger.settled.get(tp, 0) for ledger in ledgers.values())
        reached = [lowest_uncovered(merged((Span(0, settled), *ledger.held(tp)))) for ledger in ledgers.values()]
        positions[tp] = min(reached) if complete else settled
    return Recovery(positions, {name: ahead(ledger, positions) for name, ledger in ledgers.items()})


def ahead(ledger: Ledger, positions: SourceOffsets) -> Coverage:
    """What a table holds at or above these positions."""
    found = {tp: beyond(ledger.held(tp), positions.get(tp, 0)) for tp in ledger.source}
    return {tp: spans for tp, spans in found.items() if spans}


def doubled(ledger: Ledger, positions: SourceOffsets, left_out: Coverage) -> Coverage:
    """What a table would get a second time if reading went on from here."""
    found = {tp: without(spans, left_out.get(tp, ())) for tp, spans in ahead(ledger, positions).items()}
    return {tp: spans for tp, spans in found.items() if spans}
