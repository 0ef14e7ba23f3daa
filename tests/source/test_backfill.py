"""What a backfill reads: from what somebody asks for to offsets, and back from what was stored."""

from __future__ import annotations

import pytest

from calving.errors import ConfigError, DataLossError
from calving.model.offsets import Span, Spans, TopicPartition
from calving.source.backfill import BackfillOrder, noted_spans, range_notes, read_of, refuse_unreadable, spans_of
from calving.source.interface import Bounds
from calving.source.start import Start

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BOUNDS = Bounds({A: 0, B: 50}, {A: 100, B: 200})
TIME = "2026-11-28T09:30:00Z"


def order(start: str, end: str, given_id: str | None = None) -> BackfillOrder:
    return BackfillOrder(Start.of(start), Start.of(end), given_id=given_id)


def spans(
    asked: BackfillOrder,
    at: dict[str, dict[TopicPartition, int]] | None = None,
    oldest: dict[TopicPartition, int] | None = None,
) -> Spans:
    """``at``: where times lie. ``oldest``: the first records that are left, elsewhere than at the beginning."""

    def places(start: Start) -> dict[TopicPartition, int]:
        if isinstance(start.place, int):
            return (at or {})[str(start)]
        return dict(BOUNDS.ends) if start.place == "latest" else {**BOUNDS.begins, **dict(start.offsets)}

    return spans_of(asked, BOUNDS, places(asked.start), places(asked.end), {**BOUNDS.begins, **(oldest or {})})


def test_all_partitions_are_read_unless_offsets_name_some() -> None:
    assert spans(order("earliest", "latest")) == {A: Span(0, 100), B: Span(50, 200)}
    assert spans(order("t:0=10", "latest")) == {A: Span(10, 100)}
    assert spans(order("earliest", "t:1=60")) == {B: Span(50, 60)}


def test_a_partition_whose_times_go_back_is_left_out() -> None:
    first, last = "2026-11-28T09:30:00+00:00", "2026-11-28T10:30:00+00:00"
    at = {first: {A: 70, B: 60}, last: {A: 30, B: 90}}
    assert spans(order(first, last), at) == {B: Span(60, 90)}


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [
        ("t:0=10", "t:1=60", "name different partitions: partition 0 of topic 't'; partition 1 of topic 't'"),
        ("u:0=10", "latest", "--from: the sink does not read partition 0 of topic 'u'"),
        ("t:0=101", "latest", "--from: the offset is not there yet in partition 0 of topic 't', which ends at 100"),
        ("t:0=10", "t:0=5", "--to: it is before --from in partition 0 of topic 't'"),
        ("latest", "latest", "there is nothing to read from the end up to the end"),
    ],
)
def test_an_order_that_cannot_be_met_is_refused(start: str, end: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        spans(order(start, end))


def test_offsets_that_retention_has_taken_are_refused() -> None:
    with pytest.raises(
        DataLossError, match="partition 1 of topic 't', which begins at 50: ask for a range that is there"
    ):
        spans(order("t:0=0, t:1=49", "latest"))


def test_a_time_before_the_oldest_record_that_is_left_is_refused() -> None:
    at = {str(Start.of(TIME)): {A: 0, B: 50}}
    with pytest.raises(DataLossError, match="range: partition 1 of topic 't', which begins at 50, has no record"):
        spans(order(TIME, "latest"), at)


def test_compaction_behind_the_beginning_does_not_hide_what_retention_has_taken() -> None:
    at = {str(Start.of(TIME)): {A: 0, B: 80}}
    with pytest.raises(DataLossError, match="range: partition 1 of topic 't', which begins at 50"):
        spans(order(TIME, "latest"), at, {B: 80})
    assert spans(order(TIME, "latest"), at, {A: 0, B: 79}) == {A: Span(0, 100), B: Span(80, 200)}
    assert spans(order("earliest", "latest"), at, {B: 80}) == {A: Span(0, 100), B: Span(50, 200)}


def test_a_stored_range_is_read_as_it_was_stored() -> None:
    asked = order("t:0=10, t:1=60", "latest")
    notes = range_notes(asked, spans(asked), {"t": "id"})
    assert noted_spans(asked, notes, {"t": "id"}) == spans(asked)
    assert noted_spans(asked, {}, {"t": "id"}) == {}


def test_an_id_stands_for_one_order() -> None:
    one, other = order("earliest", "latest", "x"), order("earliest", "t:0=5", "x")
    with pytest.raises(ConfigError, match="--id x: there is a backfill of this id for another range"):
        noted_spans(other, range_notes(one, spans(one), {}), {})
    assert order("earliest", "latest").id != order("earliest", "t:0=5").id


def test_a_topic_that_was_recreated_or_deleted_ends_a_backfill() -> None:
    asked = order("earliest", "latest")
    notes = dict(range_notes(asked, spans(asked), {"t": "id"}))
    with pytest.raises(DataLossError, match="topic 't' was recreated"):
        noted_spans(asked, notes, {"t": "other"})
    del notes[B]
    with pytest.raises(DataLossError, match="only 1 of 2 partitions still have a stored end"):
        noted_spans(asked, notes, {"t": "id"})


def test_a_range_of_which_retention_takes_a_part_before_it_is_read_is_refused() -> None:
    asked, wanted = order("t:0=10, t:1=60", "t:0=90, t:1=100", "x"), {A: Span(10, 90), B: Span(60, 100)}
    text = (
        "backfill x cannot go on: retention has taken records of the range: partition 1 of topic 't', which begins at"
        " 120, and was to be read from 70 on"
    )
    with pytest.raises(DataLossError, match=text):
        refuse_unreadable(asked, Bounds({A: 10, B: 120}, {A: 100, B: 200}), wanted, {B: 70})


def test_what_retention_takes_behind_what_was_read_is_no_loss() -> None:
    asked, wanted = order("t:0=10, t:1=60", "t:0=90, t:1=100", "x"), {A: Span(10, 90), B: Span(60, 100)}
    refuse_unreadable(asked, Bounds({A: 30, B: 120}, {A: 100, B: 200}), wanted, {A: 30, B: 100})


def test_what_was_read_is_counted_within_the_range() -> None:
    assert read_of({A: Span(10, 100), B: Span(50, 60)}, {A: 30, B: 70}) == 30
    assert read_of({A: Span(10, 100)}, {}) == 0


@pytest.mark.parametrize("given", ["", "a b", "a@b", "a.b", "x" * 65])
def test_an_id_is_plain(given: str) -> None:
    with pytest.raises(ConfigError, match="an id has at most 64"):
        order("earliest", "latest", given)
