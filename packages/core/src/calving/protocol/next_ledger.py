"""The ledger of a table's next commit. Pure.

Tables that were last committed in the same cycle mostly have the same source part, as texts and, decoded, as objects.
Then the next part is computed and encoded once for all of them: what a cycle costs does not grow with tables times
partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from calving.caches import cached_by_identity
from calving.model.offsets import (
    ControlOffsets,
    Coverage,
    SourceOffsets,
    Span,
    TopicPartition,
    furthest,
    lowest_uncovered,
    merged,
    without,
)
from calving.protocol.ledger import NO_LEDGER, SHARED, Ledger, SourceProgress

_SourcePart = tuple[SourceOffsets, SourceOffsets, Coverage]
"""``source``, ``settled`` and ``missing`` of a ledger."""


def next_ledger(
    ledger: Ledger,
    read: ControlOffsets,
    progress: SourceProgress,
    passed: Mapping[TopicPartition, Iterable[Span]],
    admitted: Iterable[Coverage],
    left_out: Coverage,
) -> Ledger:
    """The ledger of the next commit, which reads the control log up to ``read`` and adds the ``admitted`` coverage.

    ``passed``: the coverage of publications whose entries for this table are below the table's control offsets. If the
    table does not hold such an offset, its record is lost: a store lost the entry, and a coordinator committed later
    entries.

    Departed topics are dropped, so that the ledger does not grow for ever. But a partition with missing offsets stays:
    its loss must stay visible.
    """
    void = {tp for tp in ledger.gone if tp in progress.restarted or tp.whole in progress.departed}
    gone = {tp: spans for tp, spans in ledger.gone.items() if tp not in void}
    for publication in admitted:
        for tp in gone.keys() & publication.keys():
            gone[tp] = without(gone[tp], without((publication[tp][-1],), left_out.get(tp, ())))
    gone = {tp: spans for tp, spans in gone.items() if spans}
    if passed or gone or progress.restarted or progress.departed:
        never = {tp: merged((*passed.get(tp, ()), *gone.get(tp, ()))) for tp in {*passed, *gone}}
        source, settled, missing = _source_part(ledger, progress, never)
    else:
        source, settled, missing = _continued(
            ledger.source, ledger.settled, ledger.missing, progress.covered, progress.settled
        )
    control = furthest(ledger.control, read)
    return Ledger(control, source, settled, missing, gone, doubt=ledger.doubt, forgotten=ledger.forgotten)


@cached_by_identity(SHARED)
def _continued(
    source: SourceOffsets, settled: SourceOffsets, missing: Coverage, covered: Coverage, told: Coverage
) -> _SourcePart:
    """The source part of the next ledger where nothing but the ledger and the progress counts."""
    return _source_part(Ledger({}, source, settled, missing), SourceProgress(covered, told), {})


def _source_part(ledger: Ledger, progress: SourceProgress, never: Coverage) -> _SourcePart:
    """The source part of the next ledger. ``never``: offsets that the table gets only if the ledger holds them."""
    source: dict[TopicPartition, int] = {}
    settled: dict[TopicPartition, int] = {}
    missing: dict[TopicPartition, tuple[Span, ...]] = {}
    for tp in sorted({*ledger.source, *progress.covered}):
        if tp.whole in progress.departed and not ledger.missing.get(tp):
            continue
        before = ledger if progress.is_current(ledger, tp) else NO_LEDGER
        source[tp], settled[tp], holes = _position(before, progress, tp, never.get(tp, ()))
        if holes:
            missing[tp] = holes
        elif not source[tp]:
            del source[tp], settled[tp]
    return source, settled, missing


def _position(
    before: Ledger, progress: SourceProgress, tp: TopicPartition, never: tuple[Span, ...]
) -> tuple[int, int, tuple[Span, ...]]:
    """The offsets ``source`` and ``settled`` of the next ledger for a partition, and the ``missing`` ones between them.
    ``never``: offsets that the table gets only if ``before`` holds them.
    """
    end, below = before.source.get(tp, 0), before.settled.get(tp, 0)
    told, covered = progress.settled.get(tp, ()), progress.covered.get(tp, ())
    if not (never or before.missing.get(tp)) and _continues(below, told) and _continues(max(end, below), covered):
        # Nearly always: a ledger has thousands of partitions, and each commit goes through all of them.
        below = max(below, told[0].end) if told else below
        return max(end, below, covered[0].end if covered else 0), below, ()
    held = before.held(tp)
    never = without(never, held)
    below = lowest_uncovered(merged((Span(0, below), *without(told, never))))
    held = merged((*held, Span(0, below), *without(covered, never)))
    if not held:
        return 0, 0, ()
    return held[-1].end, below, without((Span(below, held[-1].end),), held)


def _continues(end: int, spans: tuple[Span, ...]) -> bool:
    """Whether the spans and all offsets up to ``end`` are one span, or none."""
    return not spans or (len(spans) == 1 and spans[0].start <= end)
