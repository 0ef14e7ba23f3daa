"""Where to read again from, and what to leave out."""

from __future__ import annotations

import pytest

from calving.cli.recover import mind_order
from calving.errors import ConfigError
from calving.model.offsets import Span, TopicPartition
from calving.protocol.ledger import Ledger
from calving.protocol.recovery import doubled, recovery

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


def test_older_changes_are_not_put_beneath_newer_ones_of_a_mutation_table() -> None:
    rolled_back = Ledger({}, {TP: 30}, {}, {TP: (Span(10, 20),)})
    whole = Ledger({}, {TP: 10}, {})
    with pytest.raises(ConfigError, match="has changes of s-0 from offset 20 on that came after it was rolled back"):
        mind_order(["db.t"], {"db.t": rolled_back})
    mind_order(["db.t"], {"db.t": whole})
    to_the_beginning = Ledger({}, {TP: 30}, {}, {TP: (Span(0, 20),)})
    with pytest.raises(ConfigError, match="has changes of s-0 from offset 20 on"):
        mind_order(["db.t"], {"db.t": to_the_beginning})
