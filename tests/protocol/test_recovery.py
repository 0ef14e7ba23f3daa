"""Where to read again from, and what to leave out."""

from __future__ import annotations

import pytest

from calving.errors import ConfigError
from calving.model.offsets import Span, TopicPartition
from calving.protocol.ledger import Ledger
from calving.protocol.recovery import doubled, mind_order, recovery, still_awaited

TP, OTHER = TopicPartition("s", 0), TopicPartition("s", 1)


def test_reading_goes_back_to_what_is_settled_and_leaves_out_what_each_table_holds() -> None:
    found = recovery(
        {"a": Ledger({}, {TP: 30}, {TP: 10}), "b": Ledger({}, {TP: 12}, {TP: 5}), "c": Ledger({})}, complete=False
    )
    assert found.positions == {TP: 10}
    assert found.held == {"a": {TP: (Span(10, 30),)}, "b": {TP: (Span(10, 12),)}, "c": {}}


def test_what_every_table_holds_is_not_read_again_where_there_are_no_others() -> None:
    ledgers = {"a": Ledger({}, {TP: 30}, {TP: 10}), "b": Ledger({}, {TP: 12}, {TP: 5})}
    assert recovery(ledgers, complete=True).positions == {TP: 12}


def test_a_table_without_a_ledger_holds_reading_at_what_is_settled() -> None:
    assert recovery({"a": Ledger({}, {TP: 30}, {TP: 10}), "b": Ledger({})}, complete=True).positions == {TP: 10}


def test_a_hole_is_read_again() -> None:
    ledgers = {"a": Ledger({}, {TP: 30}, {TP: 10}, {TP: (Span(12, 20),)})}
    found = recovery(ledgers, complete=True)
    assert found.positions == {TP: 12}
    assert found.held["a"] == {TP: (Span(20, 30),)}


def test_positions_behind_a_table_would_double_unless_it_leaves_that_out() -> None:
    ledger = Ledger({}, {TP: 30, OTHER: 7}, {TP: 10})
    assert doubled(ledger, {TP: 30, OTHER: 7}, {}) == {}
    assert doubled(ledger, {TP: 25, OTHER: 7}, {}) == {TP: (Span(25, 30),)}
    assert doubled(ledger, {TP: 25, OTHER: 7}, {TP: (Span(20, 30),)}) == {}


def test_what_a_rollback_removed_from_one_table_stays_away_while_another_table_is_read_again() -> None:
    gone = {TP: (Span(10, 30),)}
    ledgers = {"a": Ledger({}, {TP: 10}, {TP: 10}, gone=gone), "b": Ledger({}, {TP: 5}, {TP: 5})}
    found = recovery(ledgers, ["b"], complete=True)
    assert found.positions == {TP: 5}
    assert found.held["a"] == {TP: (Span(5, 30),)}
    assert recovery(ledgers, ["a", "b"], complete=True).held["a"] == {TP: (Span(5, 10),)}


def test_what_was_forgotten_stays_away_from_a_table_that_is_read_again() -> None:
    gone, forgotten = {TP: (Span(10, 40),)}, {TP: (Span(20, 30),)}
    rolled_back = Ledger({}, {TP: 10}, {TP: 10}, gone=gone, forgotten=forgotten)
    found = recovery({"a": rolled_back, "b": Ledger({}, {TP: 50}, {TP: 50})}, ["a"], complete=True)
    assert (found.positions, found.held["a"]) == ({TP: 10}, forgotten)
    assert found.awaited["a"] == {TP: (Span(10, 20), Span(30, 50))}


def test_changes_above_forgotten_ones_may_be_read_again() -> None:
    gone, forgotten = {TP: (Span(10, 40),)}, {TP: (Span(10, 20),)}
    between = Ledger({}, {TP: 30}, {}, {TP: (Span(10, 20),)}, gone=gone, forgotten=forgotten)
    mind_order(["db.t"], {"db.t": between})


def test_a_table_that_waits_for_an_earlier_recovery_is_not_passed_over_by_a_later_one() -> None:
    waits, whole = Ledger({}, {TP: 10}, {TP: 10}), Ledger({}, {TP: 30}, {TP: 30})
    first = recovery({"a": waits, "b": whole}, ["a"], complete=True)
    assert first.awaited == {"a": {TP: (Span(10, 30),)}}
    half = Ledger({}, {TP: 20}, {TP: 20})
    assert still_awaited(first.awaited["a"], half, {}, {TP: 0}) == {TP: (Span(20, 30),)}
    second = recovery({"a": half, "b": whole}, [], ["a"], complete=True)
    assert (second.positions, second.held) == ({TP: 20}, {"a": {}, "b": {TP: (Span(20, 30),)}})
    assert second.awaited == {"a": {TP: (Span(20, 30),)}}


def test_a_table_waits_no_longer_for_what_it_holds_or_the_log_calls_settled_or_the_topic_has_dropped() -> None:
    awaited, ledger = {TP: (Span(10, 30),)}, Ledger({}, {TP: 10}, {TP: 10})
    assert still_awaited(awaited, Ledger({}, {TP: 30}), {}, {}) == {}
    assert still_awaited(awaited, ledger, {TP: (Span(0, 30),)}, {}) == {}
    assert still_awaited(awaited, ledger, {}, {TP: 30}) == {}
    assert still_awaited(awaited, ledger, {}, {TP: 25}) == {TP: (Span(25, 30),)}


def test_what_a_later_rollback_has_removed_from_a_table_that_waits_stays_away() -> None:
    waits = Ledger({}, {TP: 10}, {TP: 10}, gone={TP: (Span(10, 20),)})
    assert still_awaited({TP: (Span(10, 30),)}, waits, {}, {}) == {TP: (Span(20, 30),)}
    found = recovery({"a": waits, "b": Ledger({}, {TP: 30}, {TP: 30})}, [], ["a"], complete=True)
    assert (found.positions, found.held["a"]) == ({TP: 20}, {})


def test_older_changes_are_not_put_beneath_newer_ones_of_a_mutation_table() -> None:
    rolled_back = Ledger({}, {TP: 30}, {}, {TP: (Span(10, 20),)})
    whole = Ledger({}, {TP: 10}, {})
    with pytest.raises(ConfigError, match="has changes of s-0 from offset 20 on that came after it was rolled back"):
        mind_order(["db.t"], {"db.t": rolled_back})
    mind_order(["db.t"], {"db.t": whole})
    to_the_beginning = Ledger({}, {TP: 30}, {}, {TP: (Span(0, 20),)})
    with pytest.raises(ConfigError, match="has changes of s-0 from offset 20 on"):
        mind_order(["db.t"], {"db.t": to_the_beginning})
