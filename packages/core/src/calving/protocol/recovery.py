"""Where to read again from when the control log or the positions are lost, and what to leave out then.

What was published and never committed went with the log. The tables tell the rest: below ``settled`` every record is in
whichever table it belongs to, and above it each table knows what it holds. So reading again from there, and leaving out
for each table what it holds, brings back what was lost and doubles nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from calving.model.coverage import Coverage, beyond, lowest_uncovered, merged, without
from calving.model.offsets import ControlOffsets, SourceOffsets, Span, TopicPartition
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
    ledgers = current(ledgers)
    positions: dict[TopicPartition, int] = {}
    for tp in {tp for ledger in ledgers.values() for tp in ledger.source}:
        settled = max(ledger.settled.get(tp, 0) for ledger in ledgers.values())
        reached = [lowest_uncovered(merged((Span(0, settled), *ledger.held(tp)))) for ledger in ledgers.values()]
        positions[tp] = min(reached) if complete else settled
    return Recovery(positions, {name: ahead(ledger, positions) for name, ledger in ledgers.items()})


def current(ledgers: Mapping[str, Ledger]) -> dict[str, Ledger]:
    """The ledgers without what has become untrue: where a topic was made anew, a table that got nothing since still
    speaks of the old one. A later ledger of the same log covers all that an earlier one does, and knows better.
    """
    found = {}
    for name, ledger in ledgers.items():
        later = [other for other in ledgers.values() if _overtakes(other.control, ledger.control)]
        source = {
            tp: min([offset, *(other.source[tp] for other in later if tp in other.source)])
            for tp, offset in ledger.source.items()
        }
        found[name] = replace(ledger, source=source)
    return found


def _overtakes(other: ControlOffsets, one: ControlOffsets) -> bool:
    return bool(one) and other != one and all(other.get(p, 0) >= offset for p, offset in one.items())


def ahead(ledger: Ledger, positions: SourceOffsets) -> Coverage:
    """What a table holds at or above these positions."""
    found = {tp: beyond(ledger.held(tp), positions.get(tp, 0)) for tp in ledger.source}
    return {tp: spans for tp, spans in found.items() if spans}


def doubled(ledger: Ledger, positions: SourceOffsets, left_out: Coverage) -> Coverage:
    """What a table would get a second time if reading went on from here."""
    found = {tp: without(spans, left_out.get(tp, ())) for tp, spans in ahead(ledger, positions).items()}
    return {tp: spans for tp, spans in found.items() if spans}
