"""Partitions by name, and within the topic that has the name."""

from __future__ import annotations

from calving.model.offsets import TopicPartition, named, within

TP = TopicPartition("orders", 3)
NEW = within(TP, "new")


def test_a_partition_within_a_topic_has_the_name_still() -> None:
    assert (named(NEW), NEW.topic_id, str(NEW)) == (TP, "new", "orders@new-3")
    assert (named(TP), TP.topic_id, str(TP)) == (TP, "", "orders-3")
    assert within(TP, "") == TP
