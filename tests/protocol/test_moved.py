"""Offsets below positions that somebody else has stored, from the control log."""

from __future__ import annotations

from uuid import uuid4

from calving.model.events import Attachment, CommitComplete, DataComplete, Envelope, PartitionProgress
from calving.model.offsets import Span, TopicPartition, within
from calving.protocol.positions import ReadOffsets, Unread, passed_over, text_of

TP, OTHER = TopicPartition("s", 0), TopicPartition("s", 1)
KNOWN = within(TP, "id")


def reading(*entries: Envelope, start: int = 0) -> ReadOffsets:
    made = ReadOffsets({0: start})
    made.hear(entries)
    return made


def ended(offset: int, *spans: Span) -> Envelope:
    """The end of a cycle that tells of settled offsets."""
    return Envelope(0, offset, CommitComplete(uuid4()), attached=Attachment({KNOWN: spans}))


def answer(offset: int, *spans: Span) -> Envelope:
    return Envelope(0, offset, DataComplete(uuid4(), (PartitionProgress(TP, spans[-1].end),)), {KNOWN: spans}, 0)


def java(offset: int, tp: TopicPartition) -> Envelope:
    return Envelope(0, offset, DataComplete(uuid4(), (PartitionProgress(tp, 900),)))


def test_offsets_between_the_last_read_one_and_a_position_of_somebody_else_are_unread() -> None:
    found = reading(ended(0, Span(0, 300)), answer(1, Span(300, 320)))
    assert found.unread({TP: 400}, {"s": "id"}, {}) == {TP: Unread(Span(320, 400), in_log=True)}


def test_a_position_that_was_moved_back_skips_nothing() -> None:
    assert reading(ended(0, Span(0, 300))).unread({TP: 200}, {"s": "id"}, {}) == {
        TP: Unread(Span(200, 200), in_log=True)
    }


def test_nothing_is_unread_in_a_partition_that_the_sink_has_never_read() -> None:
    """As with a first start at positions that the Java sink or an operator has stored."""
    assert reading(ended(0, Span(0, 300))).unread({OTHER: 400}, {"s": "id"}, {}) == {}
    assert reading().unread({TP: 400}, {"s": "id"}, {}) == {}


def test_after_a_recovery_the_tables_tell_from_where_on_nothing_is_read() -> None:
    assert reading().unheard({TP: 400}, {"s": "id"}) == {TP}
    assert reading().unread({TP: 400}, {"s": "id"}, {TP: 300, OTHER: 7}) == {TP: Unread(Span(300, 400), in_log=False)}


def test_where_the_control_log_tells_of_a_partition_its_tables_do_not_count() -> None:
    heard = reading(ended(0, Span(0, 300)))
    assert heard.unheard({TP: 400}, {"s": "id"}) == set()
    assert heard.unread({TP: 400}, {"s": "id"}, {TP: 100}) == {TP: Unread(Span(300, 400), in_log=True)}


def test_a_partition_in_which_a_task_of_the_java_sink_has_answered_is_believed_whatever_the_tables_tell() -> None:
    assert reading(java(0, TP)).unread({TP: 400}, {"s": "id"}, {TP: 300}) == {}


def test_nothing_is_unread_in_a_topic_that_was_recreated() -> None:
    assert reading(ended(0, Span(0, 300))).unread({TP: 400}, {"s": "another id"}, {}) == {}


def test_a_partition_in_which_a_task_of_the_java_sink_has_answered_is_believed() -> None:
    """Also one that answered before the saved position."""
    settled = ended(5, Span(0, 300))
    assert reading(java(0, TP), settled, start=5).unread({TP: 400}, {"s": "id"}, {}) == {}
    assert reading(java(0, OTHER), settled, start=5).unread({TP: 400}, {"s": "id"}, {}) == {
        TP: Unread(Span(300, 400), in_log=True)
    }


def test_an_idle_answer_of_a_worker_is_no_answer_of_the_java_sink() -> None:
    idle = Envelope(0, 1, DataComplete(uuid4(), (PartitionProgress(TP),)), {}, 0)
    assert reading(ended(0, Span(0, 300)), idle).unread({TP: 400}, {"s": "id"}, {}) == {
        TP: Unread(Span(300, 400), in_log=True)
    }


def test_offsets_between_read_ones_were_passed_over() -> None:
    covered = {KNOWN: (Span(0, 300), Span(400, 410), Span(420, 430)), OTHER: (Span(0, 10),)}
    assert passed_over(covered) == {KNOWN: (Span(300, 400), Span(410, 420))}


def test_offsets_before_the_first_ones_that_the_log_tells_of_do_not_count() -> None:
    """Retention may have removed the entries that told of them."""
    assert passed_over({KNOWN: (Span(40, 300),)}) == {}


def test_the_sentence_names_the_offsets_and_both_ways_out() -> None:
    text = text_of(TP, Span(300, 301))
    assert text.startswith("topic 's', partition 0: 1 record from offset 300 to 301 is in no table, because")
    assert "`calving recover FILE`" in text and "`calving offsets FILE --accept`" in text
