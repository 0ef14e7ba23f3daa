"""A name is not a topic: what a publication covers, and what a table holds, is said of the topic's identity."""

from __future__ import annotations

import pytest

from calving.model.events import Publication
from calving.model.offsets import Advance, Span, TopicPartition, within
from calving.protocol.ledger import Ledger
from calving.protocol.positions import Unread, within_topics

TP = TopicPartition("orders", 3)
NEW, OLD = within(TP, "new"), within(TP, "old")


def moving(start: int | None, end: int) -> Publication:
    if start is None or start <= end:
        return Publication((), {TP: Advance(start, end)}, {TP: (Span(start or 0, end),)})
    return Publication((), {TP: Advance(start, end)}, {TP: (Span(0, end),)}, restarted=frozenset([TP]))


@pytest.mark.parametrize(
    ("publication", "stored_within", "spans"),
    [
        (moving(None, 9), {}, (Span(0, 9),)),
        (moving(5, 9), {TP: "new"}, (Span(5, 9),)),
        (moving(500, 9), {TP: "old"}, (Span(0, 9),)),
        (moving(5, 9), {TP: ""}, (Span(0, 5), Span(5, 9))),
        (moving(5, 9), {}, (Span(0, 5), Span(5, 9))),
    ],
    ids=["nothing stored", "the same topic", "another topic", "a topic that was not known", "stored by somebody else"],
)
def test_a_publication_covers_its_topic_from_the_beginning_on(
    publication: Publication, stored_within: dict[TopicPartition, str], spans: tuple[Span, ...]
) -> None:
    found = within_topics(publication, {"orders": "new"}, stored_within)
    assert found.spans == {NEW: spans}
    assert found.restarted == frozenset()
    assert found.identities == {TP: "new"}


def test_a_publication_from_a_position_of_somebody_else_does_not_cover_what_nobody_has_read() -> None:
    unread = {TP: Unread(Span(3, 5), in_log=True)}
    assert within_topics(moving(5, 9), {"orders": "new"}, {}, unread).spans == {NEW: (Span(5, 9),)}


def test_a_publication_from_a_position_that_was_moved_back_does_not_cover_what_was_passed_over_before() -> None:
    unread = {TP: Unread(Span(5, 5), in_log=True)}
    assert within_topics(moving(5, 9), {"orders": "new"}, {}, unread).spans == {NEW: (Span(5, 9),)}


def test_the_first_publication_after_a_recovery_covers_what_was_read_before() -> None:
    unread = {TP: Unread(Span(3, 5), in_log=False)}
    assert within_topics(moving(5, 9), {"orders": "new"}, {}, unread).spans == {NEW: (Span(0, 3), Span(5, 9))}
    from_the_beginning = {TP: Unread(Span(0, 5), in_log=False)}
    assert within_topics(moving(5, 9), {"orders": "new"}, {}, from_the_beginning).spans == {NEW: (Span(5, 9),)}


@pytest.mark.parametrize("stored_within", [{TP: "new"}, {TP: ""}, {}])
def test_offsets_that_restart_within_a_topic_are_covered_from_0_to_where_they_are(
    stored_within: dict[TopicPartition, str],
) -> None:
    found = within_topics(moving(500, 9), {"orders": "new"}, stored_within)
    assert found.spans == {NEW: (Span(0, 9),)}
    assert found.restarted == {NEW}


def test_a_broker_that_names_no_identities_leaves_the_names() -> None:
    found = within_topics(moving(5, 9), {}, {TP: ""})
    assert (found.spans, found.identities) == ({TP: (Span(5, 9),)}, {TP: ""})


def test_a_ledger_says_what_it_holds_of_the_topics_that_are_there() -> None:
    ledger = Ledger({0: 1}, {OLD: 100, NEW: 9}, {OLD: 50, NEW: 4}, {NEW: (Span(5, 6),)})
    assert ledger.present({"orders": "new"}) == Ledger({0: 1}, {TP: 9}, {TP: 4}, {TP: (Span(5, 6),)})
