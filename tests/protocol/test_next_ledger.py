"""The source part of a commit's ledger, against sets of single offsets."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from calving.model.offsets import Span, TopicPartition
from calving.protocol.commit import admit
from calving.protocol.ledger import Ledger, SourceProgress
from calving.protocol.ledger_key import LedgerKey, source_entries
from tests.protocol.lines import line_of

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


@st.composite
def parts(draw: st.DrawFn) -> Ledger:
    end = draw(st.integers(1, MOST))
    settled = draw(st.integers(0, end))
    missing = tuple(Span(each.start, min(each.end, end - 1)) for each in draw(spans(settled)) if each.start < end - 1)
    return Ledger({}, {TP: end}, {TP: settled}, {TP: missing} if missing else {})


@settings(max_examples=200)
@given(st.lists(parts(), min_size=2, max_size=4), st.lists(st.tuples(spans(), spans()), min_size=1, max_size=3))
def test_tables_that_share_a_ledger_get_what_each_would_get_alone(
    ledgers: list[Ledger], cycles: list[tuple[tuple[Span, ...], tuple[Span, ...]]]
) -> None:
    """Each ledger is that of two tables. Those of the one are decoded from texts, and share objects."""
    key = LedgerKey("control", "sink", "log")
    summaries = [key.summary(ledger) for ledger in ledgers for _ in range(2)]
    alone = [ledger for ledger in ledgers for _ in range(2)]
    for covered, told in cycles:
        progress = SourceProgress({TP: covered}, {TP: told})
        shared = [admit([], {}, progress, key.read(line_of(each), {})).ledger for each in summaries]
        summaries = [key.summary(ledger) for ledger in shared]
        alone = [admit([], {}, SourceProgress({TP: covered}, {TP: told}), _anew(ledger)).ledger for ledger in alone]
        assert [source_entries(ledger) for ledger in shared] == [source_entries(_anew(ledger)) for ledger in alone]


def _anew(ledger: Ledger) -> Ledger:
    """The same ledger, of objects of its own."""
    return replace(ledger, source=dict(ledger.source), settled=dict(ledger.settled), missing=dict(ledger.missing))
