"""What a move of the stored positions means for each table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calving.errors import CommandFailedError
from calving.model.offsets import Coverage, Span, TopicPartition, size, within
from calving.protocol.ledger import Ledger, SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.moves import (
    PositionMove,
    TablePart,
    begun,
    mind_other,
    noted,
    part_of,
    reached,
    restated,
    unfinished,
)

TP = TopicPartition("t", 0)
IDS = {"t": "id"}
OWN = within(TP, "id")
KEY = LedgerKey("control", "group", "log")
BACK = PositionMove("--by -40", {TP: 100}, {TP: 60}, {TP: 60}, {TP: 100})
AGAIN = PositionMove("--by -40 --again", {TP: 100}, {TP: 60}, {TP: 60}, {TP: 100}, again=True)
FORWARD = PositionMove("--to latest", {TP: 100}, {TP: 130}, {TP: 130}, {TP: 100})


def ledger(source: int, settled: int | None = None, *missing: Span, gone: tuple[Span, ...] = ()) -> Ledger:
    return Ledger(
        {0: 7},
        {OWN: source},
        {OWN: source if settled is None else settled},
        {OWN: missing} if missing else {},
        {OWN: gone} if gone else {},
    )


def part(move: PositionMove, found: Ledger, *, waits: bool = False) -> TablePart:
    return part_of(move, found.present(IDS), waits=waits)


def after(move: PositionMove, found: Ledger) -> Ledger:
    return restated(move, found, part=part(move, found), topic_ids=IDS)


def spans(*pairs: tuple[int, int]) -> Coverage:
    return {TP: tuple(Span(*pair) for pair in pairs)} if pairs else {}


def test_a_table_skips_what_it_holds_from_the_new_position_on() -> None:
    assert part(BACK, ledger(100)).leaves_out(BACK) == spans((60, 100))
    assert after(BACK, ledger(100)) == ledger(100, 60)


def test_a_table_without_commits_for_long_holds_what_is_settled() -> None:
    assert part(BACK, ledger(10)).leaves_out(BACK) == spans((60, 100))
    assert after(BACK, ledger(10)) == ledger(100, 10)


def test_a_table_that_never_got_a_commit_holds_nothing() -> None:
    blank = Ledger({})
    assert not part(BACK, blank).held
    assert after(BACK, blank) == blank


def test_a_table_of_the_java_sink_holds_what_is_settled() -> None:
    assert part(BACK, Ledger({0: 3})).doubles(BACK) == spans((60, 100))


def test_of_a_table_that_waits_for_records_only_its_own_ledger_counts() -> None:
    assert part(BACK, ledger(100, 50, Span(70, 80)), waits=True).leaves_out(BACK) == spans((60, 70), (80, 100))


def test_offsets_that_a_rollback_took_away_stay_away() -> None:
    found = ledger(100, 50, Span(70, 80), gone=(Span(70, 80),))
    assert part(AGAIN, found).doubles(AGAIN) == spans((60, 70), (80, 100))
    assert part(AGAIN, found).leaves_out(AGAIN) == spans((70, 80))
    assert after(AGAIN, found).gone == {OWN: (Span(70, 80),)}


def test_a_ledger_lets_go_of_exactly_the_offsets_that_come_again() -> None:
    changed = after(AGAIN, ledger(120, 100))
    assert changed.held(OWN) == (Span(0, 60), Span(100, 120))
    assert (changed.settled[OWN], changed.missing[OWN]) == (60, (Span(60, 100),))


def test_a_ledger_claims_no_offset_that_was_skipped() -> None:
    changed = after(FORWARD, ledger(100))
    assert changed.held(OWN) == (Span(0, 100),)
    assert changed.gone == changed.forgotten == {OWN: (Span(100, 130),)}


def test_records_that_the_table_holds_already_are_not_skipped() -> None:
    found = ledger(120, 100)
    assert after(FORWARD, found).gone == {OWN: (Span(120, 130),)}


@given(
    st.integers(0, 120),
    st.integers(0, 120),
    st.integers(0, 130),
    st.booleans(),
    st.tuples(st.integers(0, 120), st.integers(0, 120)),
)
def test_a_second_run_changes_nothing_more(end: int, settled: int, to: int, again: bool, hole: tuple[int, int]) -> None:
    low, high = sorted(hole)
    missing = (
        [Span(max(low, min(settled, end)), min(high, end))] if max(low, min(settled, end)) < min(high, end) else []
    )
    move = PositionMove("", {TP: 100}, {TP: to}, {TP: to}, {TP: 100}, again=again)
    first = after(move, ledger(end, min(settled, end), *missing))
    assert after(move, first) == first
    assert part(move, first).leaves_out(move) == part(move, ledger(end, min(settled, end), *missing)).leaves_out(move)


def test_what_the_log_calls_settled_need_not_be_read_again() -> None:
    progress = SourceProgress(covered=spans((0, 100)), settled=spans((0, 80), (90, 100)))
    assert reached({TP: 100}, progress, {TP: 20}) == {TP: 80}


def test_of_partitions_of_which_the_log_tells_nothing_the_tables_tell() -> None:
    assert reached({TP: 100}, SourceProgress({}, {}), {TP: 20}) == {TP: 20}
    assert reached({TP: 100}, SourceProgress({}, {}), {}) == {TP: 100}


@pytest.mark.parametrize("move", [BACK, AGAIN, FORWARD])
def test_a_table_remembers_the_move_until_it_has_ended(move: PositionMove) -> None:
    properties = begun(replace(move, end={0: 9}), KEY, IDS)
    assert unfinished(KEY, properties, IDS) == move
    assert KEY.is_superseded(properties, SourceProgress({}, {}, since={0: 9}))
    ended = properties | KEY.recovered_at("log", {0: 9})
    assert unfinished(KEY, ended, IDS) is None
    assert not KEY.is_superseded(ended, SourceProgress({}, {}, since={0: 9}))


def test_a_table_is_not_told_of_a_second_move_before_the_first_one_has_ended() -> None:
    properties = dict(begun(BACK, KEY, IDS))
    with pytest.raises(CommandFailedError, match="`calving offsets FILE --by -40` moves the positions"):
        noted(KEY, FORWARD, IDS, properties)
    assert noted(KEY, BACK, IDS, properties) == properties


def test_a_ledger_does_not_change_for_a_move_that_another_command_has_taken_the_place_of() -> None:
    mind_other(KEY, BACK, begun(BACK, KEY, IDS))
    for later in (begun(FORWARD, KEY, IDS), KEY.recovered_at("", {0: 9}), {}):
        with pytest.raises(CommandFailedError, match="at the same time: wait for its end"):
            mind_other(KEY, BACK, later)


def test_a_move_leaves_out_a_topic_that_was_deleted_meanwhile() -> None:
    assert not BACK.of_partitions(()).start
    assert BACK.of_partitions((TP,)) == BACK


def test_a_move_forgets_a_topic_that_was_recreated_meanwhile() -> None:
    found = unfinished(KEY, begun(BACK, KEY, IDS), {"t": "another"})
    assert found is not None and not found.targets


def test_the_parts_of_a_move_count_offsets() -> None:
    assert (size(BACK.back), size(BACK.skipped), size(FORWARD.back), size(FORWARD.skipped)) == (40, 0, 0, 30)
