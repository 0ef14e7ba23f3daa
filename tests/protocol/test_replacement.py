"""What a table says of itself once the control log shows that it was replaced under the sink's commits."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from calving.model.events import DataWritten, Envelope, TableReference
from calving.model.marks import TableMark
from calving.model.offsets import Coverage, Span, TopicPartition
from calving.model.tables import SnapshotPlace
from calving.protocol.ledger import Ledger
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.ledger_updates import committed, replaced
from calving.protocol.replacement import LogExtent, restorable, table_mark
from tests.protocol.lines import line_of

KEY = LedgerKey("control", "connect-x", "log-1")
TP, OTHER = TopicPartition("s", 0), TopicPartition("s", 1)
BEFORE = TableMark("u", 7, {0: 30, 1: 12})
AT_BEGINNING = committed(KEY, line_of(), {}, Ledger({0: 20, 1: 12}, {TP: 100}, {TP: 100}), SnapshotPlace(9, 5))
"""The properties of the table when the statement began."""
BEGUN_AGAIN = line_of({})


def entry(offset: int, start: int, end: int) -> Envelope:
    event = DataWritten(UUID(int=1), TableReference("c", ("db",), "t"), ())
    return Envelope(0, offset, event, {TP: (Span(start, end),)})


def noted(extent: LogExtent, before: TableMark = BEFORE) -> tuple[Ledger, Coverage, Mapping[str, str]]:
    """The ledger and the discarded offsets that the table tells afterwards, and its properties."""
    properties = {**AT_BEGINNING, **replaced(KEY, BEGUN_AGAIN, AT_BEGINNING, before, extent)}
    return KEY.read(BEGUN_AGAIN, properties), KEY.discarded(properties), properties


def test_what_the_log_covers_and_the_table_never_held_was_discarded() -> None:
    ledger, discarded, _ = noted(LogExtent({0: 30, 1: 12}, {TP: (Span(0, 140),), OTHER: (Span(5, 9),)}))
    assert ledger.unanswered == {TP: (Span(0, 140),), OTHER: (Span(5, 9),)}
    assert discarded == {TP: (Span(100, 140),), OTHER: (Span(5, 9),)}


def test_entries_above_the_last_commit_are_still_to_come() -> None:
    extent = LogExtent({0: 40, 1: 12}, {TP: (Span(0, 160),)}, lambda: [entry(29, 120, 140), entry(30, 140, 160)])
    ledger, discarded, _ = noted(extent)
    assert discarded == {TP: (Span(100, 140),)}
    assert ledger.control == {0: 30, 1: 12}


def test_entries_that_the_leader_has_not_read_are_committed_once_more() -> None:
    ledger, _, _ = noted(LogExtent({0: 25, 1: 12}, {TP: (Span(0, 120),)}))
    assert ledger.control == {0: 25, 1: 12}


@pytest.mark.parametrize("control", [{0: 30, 1: 12}, None])
def test_the_mark_is_no_longer_older(control: dict[int, int] | None) -> None:
    before = TableMark("u", 7, control)
    _, _, properties = noted(LogExtent({0: 30, 1: 12}, {TP: (Span(0, 140),)}), before)
    assert table_mark(KEY, "u", 6, AT_BEGINNING, ()).is_older_than(before)
    assert not table_mark(KEY, "u", 6, properties, ()).is_older_than(before)


def test_a_table_that_has_not_begun_again_was_not_replaced() -> None:
    branch = line_of(
        {"calving.source-offsets": '{"s":[100]}', KEY.offsets: '{"0":20}', "calving.control-log-id": "log-1"}
    )
    assert replaced(KEY, branch, AT_BEGINNING, BEFORE, LogExtent({0: 30}, {TP: (Span(0, 140),)})) == {}


def test_what_was_forgotten_before_the_replacement_is_not_asked_for_again() -> None:
    answered = {
        "calving.rollback-answered.control.connect-x": '{"from":null,"to":null,"forgotten":{"s":{"0":[[0,40]]}}}'
    }
    properties = {**AT_BEGINNING, **answered}
    changes = replaced(KEY, BEGUN_AGAIN, properties, BEFORE, LogExtent({0: 30, 1: 12}, {TP: (Span(0, 140),)}))
    assert KEY.read(BEGUN_AGAIN, {**properties, **changes}).unanswered == {TP: (Span(40, 140),)}


def test_only_what_has_snapshots_can_be_restored() -> None:
    ledger, _, properties = noted(LogExtent({0: 30, 1: 12}, {TP: (Span(0, 140),)}))
    lacking, discarded = restorable(KEY, properties, ledger)
    assert (lacking.gone, discarded) == ({TP: (Span(0, 100),)}, {TP: (Span(100, 140),)})


def test_what_comes_again_is_no_longer_discarded() -> None:
    ledger, _, properties = noted(LogExtent({0: 30, 1: 12}, {TP: (Span(0, 140),)}))
    now = ledger.regained({TP: (Span(0, 120),)})
    later = {**properties, **committed(KEY, BEGUN_AGAIN, properties, now, SnapshotPlace(2, 2))}
    assert KEY.discarded(later) == {TP: (Span(120, 140),)}
