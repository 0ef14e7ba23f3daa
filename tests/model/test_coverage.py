"""Spans of offsets, and whether what was said of a topic is said of the one that is there."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calving.model.offsets import (
    Span,
    TopicPartition,
    beyond,
    common,
    decode_coverage,
    encode_coverage,
    lowest_uncovered,
    merged,
    present,
    within,
    without,
)

TP = TopicPartition("orders", 3)
NEW, OLD = within(TP, "new"), within(TP, "old")
spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda ends: Span(min(ends), max(ends))))


def offsets(found: Iterable[Span]) -> set[int]:
    return {offset for start, end in found for offset in range(start, end)}


@given(spans, spans, st.integers(0, 30))
def test_spans_are_sets_of_offsets(a: list[Span], b: list[Span], offset: int) -> None:
    both = merged((*a, *b))
    assert offsets(both) == offsets(a) | offsets(b)
    assert all(x.end < y.start for x, y in itertools.pairwise(both))
    assert offsets(without(merged(a), merged(b))) == offsets(a) - offsets(b)
    assert offsets(beyond(both, offset)) == {o for o in offsets(both) if o >= offset}
    assert lowest_uncovered(both) == min(set(range(32)) - offsets(both))
    assert decode_coverage(encode_coverage({TP: both})) == {TP: both}


def test_what_is_said_of_a_topic_that_is_gone_is_not_said_of_the_one_with_its_name() -> None:
    assert present({OLD: 100, NEW: 7}, {"orders": "new"}) == {TP: 7}
    assert present({OLD: 100}, {"orders": "new"}) == {}


def test_what_was_said_before_topics_were_known_holds_until_more_is_known() -> None:
    assert present({TP: 5}, {"orders": "new"}) == {TP: 5}
    assert present({TP: 5, NEW: 7}, {"orders": "new"}) == {TP: 7}
    assert present({NEW: 7}, {}) == {TP: 7}


@pytest.mark.parametrize("of", [without, common])
def test_coverages_of_many_spans_take_time_in_proportion_to_their_number(of: Callable[..., object]) -> None:
    def cpu(count: int) -> float:
        odd, even = ([Span(4 * i + at, 4 * i + at + 2) for i in range(count)] for at in (0, 1))
        began = time.process_time()
        of(odd, tuple(even))
        return time.process_time() - began

    assert min(cpu(40_000) for _ in range(3)) < 40 * min(cpu(4_000) for _ in range(3))
