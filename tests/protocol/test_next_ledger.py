"""The source part of a commit's ledger, against sets of single offsets."""

from __future__ import annotations

from itertools import count, pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from calving.model.offsets import Span, TopicPartition
from calving.protocol.commit import admit
from calving.protocol.ledger import Ledger, SourceProgress

TP = TopicPartition("orders", 0, "id")
MOST = 12


@st.composite
def spans(draw: st.DrawFn, least: int = 0) -> tuple[Span, ...]:
    """Disjoint spans in order, none of them empty, none next to another."""
    cuts = sorted(draw(st.sets(st.integers(least, MOST), max_size=6)))
    return tuple(Span(a, b) for a, b in list(pairwise(cuts))[::2])


def offsets(given: tuple[Span, ...]) -> set[int]:
    return {offset for span in given for offset in range(span.start, span.end)}


@settings(max_examples=200)
@example(10, 0, (Span(3, 5),), (), (), ())
@given(st.integers(0, MOST), st.integers(0, MOST), spans(), spans(), spans(), spans())
def test_it_holds_what_the_table_held_and_what_is_published_since(
    end: int,
    settled: int,
    missing: tuple[Span, ...],
    gone: tuple[Span, ...],
    told: tuple[Span, ...],
    covered: tuple[Span, ...],
) -> None:
    settled = min(settled, end)
    clipped = [(max(each.start, settled), min(each.end, end - 1)) for each in missing]
    missing = tuple(Span(a, b) for a, b in clipped if a < b)
    before = Ledger(
        {},
        {TP: end} if end else {},
        {TP: settled} if end else {},
        {TP: missing} if missing else {},
        {TP: gone} if gone else {},
    )
    ledger = admit([], {}, SourceProgress({TP: covered}, {TP: told}), before).ledger

    held = set(range(end)) - offsets(missing)
    never = offsets(gone) - held
    surely = set(range(settled)) | (offsets(told) - never)
    below = next(offset for offset in count() if offset not in surely)
    held |= set(range(below)) | (offsets(covered) - never)
    reached = max(held, default=-1) + 1
    assert ledger.source.get(TP, 0) == reached
    assert ledger.settled.get(TP, 0) == (below if reached else 0)
    assert offsets(ledger.missing.get(TP, ())) == set(range(below, reached)) - held
