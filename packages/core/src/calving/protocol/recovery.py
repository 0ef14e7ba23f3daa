"""Recovery from a lost control log or lost positions: where to read again, and which offsets each table skips.

Files that were published and not committed are lost with the log. The ledgers tell which records the tables hold. Below
``settled``, every record is in each table to which it is routed. Above ``settled``, each table's ledger lists the
offsets that the table holds. So the sink reads again from ``settled``, each table skips the offsets that it holds, and
no record is lost or doubled.

A table that was rolled back lacks settled offsets. Until they have been read again, only a table property tells that it
waits for them: the next recovery, for whatever reason, must not read on behind them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from calving.errors import ConfigError
from calving.model.offsets import (
    Coverage,
    SourceOffsets,
    Span,
    TopicPartition,
    beyond,
    less,
    lowest_uncovered,
    merged,
)
from calving.protocol.ledger import Ledger, decode_recovered, entry_of
from calving.protocol.ledger_key import RECOVERED_AT, LedgerKey

AWAITED_OFFSETS = "calving.awaited-offsets"
"""A table property: the offsets that a recovery has the sink read again for the table."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The next offsets to read; for each table the offsets from there on that the table holds; and for each rolled back
    table the offsets that the others may hold, and that are read again for it.
    """

    positions: SourceOffsets
    held: Mapping[str, Coverage]
    awaited: Mapping[str, Coverage]


def recovery(
    ledgers: Mapping[str, Ledger],
    rolled_back: Collection[str] = (),
    waiting: Collection[str] = (),
    *,
    complete: bool,
) -> Recovery:
    """The recovery of a sink, from the ledgers of its tables. A partition that is in no ledger is absent.

    ``settled`` of a ledger holds for all tables, so the highest one counts. ``complete``: the sink has no tables but
    these; then offsets that all of these tables hold need not be read again either. A table in ``rolled_back`` may lack
    settled records. So only its own ledger counts for it, and the table gets every record that it lacks, unless it was
    forgotten. Another table skips what a rollback has removed from it. A table in ``waiting`` lacks records that an
    earlier recovery rewound to, and that the sink has not read yet. The table gets them, but nothing that a later
    rollback has removed.
    """
    lacking = {*rolled_back, *waiting}
    others = [ledger for name, ledger in ledgers.items() if name not in lacking]
    away = {name: ledger.forgotten if name in rolled_back else ledger.gone for name, ledger in ledgers.items()}

    def kept(name: str, tp: TopicPartition) -> tuple[Span, ...]:
        return merged((*ledgers[name].held(tp), *away[name].get(tp, ())))

    positions: dict[TopicPartition, int] = {}
    settled = _settled(ledgers.values(), others or ledgers.values())
    for tp in settled:
        reached = [lowest_uncovered(merged((Span(0, settled[tp]), *_known(ledger, tp)))) for ledger in others]
        again = [lowest_uncovered(kept(name, tp)) for name in lacking]
        positions[tp] = min([*(reached if complete else [settled[tp]]), *again])
    held = {
        name: ahead(ledger, positions, {} if name in lacking else settled, away[name])
        for name, ledger in ledgers.items()
    }
    known = _up_to_the_last(ledgers.values())
    awaited = {name: less(known, {tp: kept(name, tp) for tp in known}) for name in lacking}
    return Recovery(positions, held, awaited)


def resumed(
    ledgers: Mapping[str, Ledger], awaited: Mapping[str, Coverage], begins: SourceOffsets, *, complete: bool
) -> SourceOffsets:
    """The positions at which a sink resumes that has read nothing since its recovery: only its tables know them.
    ``awaited``: the offsets that tables wait for (``AWAITED_OFFSETS``). For the rest see ``recovery``.
    """
    waiting = {name for name, ledger in ledgers.items() if still_awaited(awaited.get(name, {}), ledger, {}, begins)}
    return recovery(ledgers, (), waiting, complete=complete).positions


def successor(key: LedgerKey, properties: Mapping[str, str]) -> str | None:
    """The name, ``<control topic>.<group>``, that has taken a table over from the one of the ``key``; None if none has,
    or that recovery has not ended.
    """
    if key.of_table(RECOVERED_AT) not in properties:
        return None
    later, _ = entry_of(properties, key.of_table(RECOVERED_AT), decode_recovered)
    return later if key.named(later).with_former(properties).took_over(key.owner) else None


def _settled(ledgers: Collection[Ledger], believed: Collection[Ledger]) -> SourceOffsets:
    """For every partition of ``ledgers``, the offset below which all tables hold all records, by those believed."""
    partitions = {tp for ledger in ledgers for tp in ledger.source}
    return {tp: max((ledger.settled.get(tp, 0) for ledger in believed), default=0) for tp in partitions}


def _up_to_the_last(ledgers: Collection[Ledger]) -> Coverage:
    """All offsets up to the last one that any of the ledgers knows."""
    partitions = {tp for ledger in ledgers for tp in ledger.source}
    ends = {tp: max((span.end for each in ledgers for span in _known(each, tp)), default=0) for tp in partitions}
    return {tp: (Span(0, end),) for tp, end in ends.items()}


def _known(ledger: Ledger, tp: TopicPartition) -> tuple[Span, ...]:
    return (*ledger.held(tp), *ledger.gone.get(tp, ()))


def still_awaited(awaited: Coverage, ledger: Ledger, settled: Coverage, begins: SourceOffsets) -> Coverage:
    """The ``awaited`` offsets that have not been read again yet. ``settled``: what the control log says since then;
    ``begins``: the lowest offsets that the topics still have. Offsets that a later rollback has removed were read.
    """
    there = {tp: beyond(spans, begins.get(tp, 0)) for tp, spans in awaited.items()}
    left = less(there, {tp: merged((*_known(ledger, tp), *settled.get(tp, ()))) for tp in awaited})
    return {tp: spans for tp, spans in left.items() if spans}


def ahead(
    ledger: Ledger, positions: SourceOffsets, settled: SourceOffsets, away: Coverage = MappingProxyType({})
) -> Coverage:
    """The offsets that a table holds, or that are to stay ``away`` from it, at or above these positions. Below
    ``settled`` it holds every record routed to it.
    """
    later = {
        tp: beyond(merged((Span(0, settled.get(tp, 0)), *ledger.held(tp), *away.get(tp, ()))), positions.get(tp, 0))
        for tp in {*ledger.source, *settled, *away}
    }
    return {tp: spans for tp, spans in later.items() if spans}


def doubled(ledger: Ledger, positions: SourceOffsets, left_out: Coverage) -> Coverage:
    """The offsets that a table would get a second time if reading continued from these positions."""
    return less(ahead(ledger, positions, {}), left_out)


def has_later(ledger: Ledger) -> bool:
    """Whether a table has records after others that it lacks: the lacking ones cannot be read again in their order."""
    return any(_later(ledger, tp) for tp in ledger.source)


def _later(ledger: Ledger, tp: TopicPartition) -> list[Span]:
    return [span for span in merged((*ledger.held(tp), *ledger.forgotten.get(tp, ()))) if span.start]


def mind_order(names: Iterable[str], ledgers: Mapping[str, Ledger]) -> None:
    """Refuse to read again rows of a rolled back mutation table that has later rows (I7).

    :raises ConfigError: the table has later rows.
    """
    for name in names:
        ledger = ledgers[name]
        for tp in ledger.source:
            if later := _later(ledger, tp):
                raise ConfigError(
                    f"table {name} has changes of {tp} from offset {later[0].start} on that came after it was rolled"
                    f" back: older changes cannot be put beneath them; roll it back to that snapshot again, and"
                    " run `calving recover FILE --table` again"
                )
