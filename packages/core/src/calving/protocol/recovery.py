"""Where to read again from when the control log or the positions are lost, and what to leave out then.

What was published and never committed went with the log. The tables tell the rest: below ``settled`` every record is in
whichever table it belongs to, and above it each table knows what it holds. So reading again from there, and leaving out
for each table what it holds, brings back what was lost and doubles nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from calving.model.coverage import Coverage, beyond, lowest_uncovered, merged, without
from calving.model.offsets import SourceOffsets, Span, TopicPartition
from calving.protocol.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Recovery:
    """Next offsets to read, and by table what it holds from there on."""

    positions: SourceOffsets
    held: Mapping[str, Coverage]


def recovery(ledgers: Mapping[str, Ledger], rolled_back: Collection[str] = (), *, complete: bool) -> Recovery:
    """What the tables of a sink say together. A partition that none of them knows is absent.

    A ledger's ``settled`` is a statement about all tables, so the furthest one counts. ``complete``: no record goes to
    any other table; then what all of these hold need not be read again either. Tables in ``rolled_back`` no longer hold
    what others say is settled: they speak for themselves, and get all again that they miss.
    """
    others = [ledger for name, ledger in ledgers.items() if name not in rolled_back]
    positions: dict[TopicPartition, int] = {}
    settled: dict[TopicPartition, int] = {}
    for tp in {tp for ledger in ledgers.values() for tp in ledger.source}:
        settled[tp] = max((ledger.settled.get(tp, 0) for ledger in others or ledgers.values()), default=0)
        reached = [lowest_uncovered(merged((Span(0, settled[tp]), *ledger.held(tp)))) for ledger in others]
        again = [lowest_uncovered(ledgers[name].held(tp)) for name in rolled_back]
        positions[tp] = min([*(reached if complete else [settled[tp]]), *again])
    return Recovery(
        positions,
        {name: ahead(ledger, positions, {} if name in rolled_back else settled) for name, ledger in ledgers.items()},
    )


def ahead(ledger: Ledger, positions: SourceOffsets, settled: SourceOffsets) -> Coverage:
    """What a table holds at or above these positions; below ``settled`` it holds all that belongs to it."""
    found = {
        tp: beyond(merged((Span(0, settled.get(tp, 0)), *ledger.held(tp))), positions.get(tp, 0))
        for tp in {*ledger.source, *settled}
    }
    return {tp: spans for tp, spans in found.items() if spans}


def doubled(ledger: Ledger, positions: SourceOffsets, left_out: Coverage) -> Coverage:
    """What a table would get a second time if reading went on from here."""
    found = {tp: without(spans, left_out.get(tp, ())) for tp, spans in ahead(ledger, positions, {}).items()}
    return {tp: spans for tp, spans in found.items() if spans}
