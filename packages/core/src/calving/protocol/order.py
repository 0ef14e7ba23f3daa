"""The order gate of mutation tables (rules G1, G2): what may be committed now, and in which order.

Partitions of the control log are read independently, and source partitions move between workers. So a publication of
the offsets [100, 200) may be read before the publication of [0, 100). If rows replace each other, [0, 100) must be
committed first, and the publication of [100, 200) waits. All later entries in the same partition of the control log
wait, too, so that one control offset still describes the content of the table. No entry waits for ever: each waits only
for entries that were written before it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from calving.caches import cached_by_identity
from calving.model.events import Envelope
from calving.model.offsets import (
    ControlOffsets,
    Coverage,
    SourceOffsets,
    Span,
    Spans,
    TopicPartition,
    common,
    lowest_uncovered,
    merged,
    without,
)
from calving.protocol.ledger import SHARED, Ledger, SourceProgress


@dataclass(frozen=True, slots=True)
class Ordered:
    """``entries`` can be committed now; entries of one source partition are in the order of its offsets. ``held_back``
    entries wait.

    ``control``: the control offsets below which no entry of the table waits. ``covered``: the source offsets for the
    ledger.
    """

    entries: tuple[Envelope, ...]
    held_back: tuple[Envelope, ...]
    control: ControlOffsets
    covered: Coverage


@dataclass(slots=True)
class _Publication:
    own: Spans
    entries: list[Envelope] = field(default_factory=list)


_NOTHING: Coverage = MappingProxyType({})
"""One object: tables that have lost nothing share the results."""


def ordered(entries: Iterable[Envelope], control: ControlOffsets, progress: SourceProgress, ledger: Ledger) -> Ordered:
    """Decide which ``entries`` can be committed now. They are the entries that the table lacks, of whole publications
    below ``control``.

    Offsets that have restarted hold no entry back: they no longer tell the order.
    """
    publications = _publications(entries, progress.restarted)
    covered, control = progress.covered, dict(control)
    held = ledger.source, ledger.missing, ledger.gone or _NOTHING
    waiting: dict[Hashable, _Publication] = {}
    while True:
        early = {
            key: publication
            for key, publication in publications.items()
            if _is_early(publication.own, covered, *held) or _is_behind(publication, control)
        }
        if not early:
            break
        left = dict(covered)
        for key, publication in early.items():
            waiting[key] = publications.pop(key)
            for entry in publication.entries:
                control[entry.partition] = min(control.get(entry.partition, entry.offset), entry.offset)
            for tp, span in publication.own.items():
                left[tp] = without(left.get(tp, ()), (span,))
        covered = left
    return Ordered(
        tuple(entry for publication in _sorted(publications.values()) for entry in publication.entries),
        tuple(entry for publication in waiting.values() for entry in publication.entries),
        control,
        _without_holes(covered, progress.restarted, *held),
    )


def _publications(entries: Iterable[Envelope], restarted: Collection[TopicPartition]) -> dict[Hashable, _Publication]:
    by_key: dict[Hashable, _Publication] = {}
    for entry in entries:
        # Senders other than calving report no coverage, so each of their entries counts as its own publication.
        key = entry.publication if entry.spans else entry.place
        by_key.setdefault(key, _Publication(_own(entry.spans, restarted))).entries.append(entry)
    return by_key


@cached_by_identity(SHARED)
def _own(coverage: Coverage, restarted: Collection[TopicPartition]) -> Spans:
    return {tp: spans[-1] for tp, spans in coverage.items() if tp not in restarted}


@cached_by_identity(SHARED)
def _is_early(own: Spans, covered: Coverage, source: SourceOffsets, missing: Coverage, gone: Coverage) -> bool:
    """Whether an earlier publication of one of its partitions has not been read, or waits."""
    return any(_reached(tp, covered.get(tp, ()), source, missing, gone) < span.start for tp, span in own.items())


def _reached(
    tp: TopicPartition, covered: Iterable[Span], source: SourceOffsets, missing: Coverage, gone: Coverage
) -> int:
    """The first offset that is neither ``covered`` nor held by the table, and has never been."""
    held = without((Span(0, source.get(tp, 0)),), missing.get(tp, ()))
    return lowest_uncovered(merged((*held, *gone.get(tp, ()), *covered)))


def _is_behind(found: _Publication, control: ControlOffsets) -> bool:
    return any(entry.offset >= control.get(entry.partition, entry.offset + 1) for entry in found.entries)


def _sorted(publications: Collection[_Publication]) -> list[_Publication]:
    """The publications in the order of source offsets within each partition, and otherwise in the order of the log.

    Where a position has gone back there may be no such order: those publications come last, and ``disordered`` tells.
    """
    given = list(publications)
    return [given[place] for place in _places(*(each.own for each in given))]


@cached_by_identity(SHARED)
def _places(*given: Spans) -> Sequence[int]:
    """The places of the publications in that order."""
    follows: dict[int, set[int]] = {place: set() for place in range(len(given))}
    waits_for = [0] * len(given)
    for places in _by_partition(given).values():
        for before, after in itertools.pairwise(places):
            if after not in follows[before]:
                follows[before].add(after)
                waits_for[after] += 1
    ready = [place for place, count in enumerate(waits_for) if not count]
    done: list[int] = []
    while ready:
        place = heapq.heappop(ready)
        done.append(place)
        for after in follows[place]:
            waits_for[after] -= 1
            if not waits_for[after]:
                heapq.heappush(ready, after)
    return [*done, *(place for place in range(len(given)) if waits_for[place])]


def disordered(publications: Iterable[Coverage], progress: SourceProgress) -> Mapping[TopicPartition, Span]:
    """For each partition the first span among these publications, in this order, that comes after a later one."""
    return _disordered(progress.restarted, *publications)


@cached_by_identity(SHARED)
def _disordered(restarted: Collection[TopicPartition], *publications: Coverage) -> Mapping[TopicPartition, Span]:
    first_own: dict[TopicPartition, Span] = {}
    ends: dict[TopicPartition, int] = {}
    for spans in publications:
        for tp, (*_, own) in spans.items():
            if own.start < ends.get(tp, 0) and tp not in restarted:
                first_own.setdefault(tp, own)
            ends[tp] = max(own.end, ends.get(tp, 0))
    return first_own


def _by_partition(found: Sequence[Spans]) -> Mapping[TopicPartition, list[int]]:
    places: dict[TopicPartition, list[tuple[Span, int]]] = {}
    for place, own in enumerate(found):
        for tp, span in own.items():
            places.setdefault(tp, []).append((span, place))
    return {tp: [place for _, place in sorted(here)] for tp, here in places.items()}


@cached_by_identity(SHARED)
def _without_holes(
    covered: Coverage,
    restarted: Collection[TopicPartition],
    source: SourceOffsets,
    missing: Coverage,
    gone: Coverage,
) -> Coverage:
    """The coverage up to the first missing offset, so that a ledger never has a gap (G2)."""
    contiguous: dict[TopicPartition, tuple[Span, ...]] = {}
    for tp, spans in covered.items():
        if tp in restarted:
            contiguous[tp] = spans
            continue
        end = _reached(tp, spans, source, missing, gone)
        contiguous[tp] = common(spans, (Span(0, end),))
    return {tp: spans for tp, spans in contiguous.items() if spans}
