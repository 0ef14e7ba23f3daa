"""What a branch tells of the sink's last commit (R2), and what the ledger is then (R3, R4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from calving.iceberg.maintenance import carried_on
from calving.model.offsets import Coverage, Span, TopicPartition
from calving.model.tables import SnapshotPlace
from calving.protocol.ledger import Ledger
from calving.protocol.ledger_key import LEDGER_SNAPSHOT, LedgerKey
from calving.protocol.ledger_updates import committed, looked
from calving.protocol.rollback import Ancestor, Line, RolledBack, Verdict, added_by, verdict

KEY = LedgerKey("control", "connect-x", "log-1")
TP = TopicPartition("s", 0)
LAST = SnapshotPlace(5, 5)


def line(*numbers: int, root: bool = True, summaries: Mapping[int, Mapping[str, str]] | None = None) -> Line:
    """Snapshots with these numbers as ids, head first. ``root``: the last one is the first of the branch; else its
    parent, which has expired, is the one with the number before it.
    """
    parents = [*numbers[1:], None if root else numbers[-1] - 1]
    said = summaries or {}
    return Line(
        [Ancestor(SnapshotPlace(n, n), parent, said.get(n, {})) for n, parent in zip(numbers, parents, strict=True)]
    )


def past(line: Line, *numbers: int) -> Line:
    """The same branch; these snapshots have expired, and an earlier version of the metadata still has them."""
    known = {n: Ancestor(SnapshotPlace(n, n), n - 1, {}) for n in numbers}
    return replace(line, expired=known.get)


HEAD_HAS_FILES = replace(line(8, 7, root=False), has_files_of=lambda place: place == LAST)


@pytest.mark.parametrize(
    ("branch", "said"),
    [
        (line(5, 4, 1), Verdict.INTACT),
        (line(9, 5), Verdict.INTACT),
        (line(4, 1), Verdict.ROLLED_BACK),
        (line(9, 4, root=False), Verdict.ROLLED_BACK),
        (line(9), Verdict.ROLLED_BACK),
        (Line(()), Verdict.ROLLED_BACK),
        (line(9, 8, root=False), Verdict.DOUBT),
        (line(9, 6, root=False), Verdict.INTACT),
        (HEAD_HAS_FILES, Verdict.INTACT),
        (past(line(9, 8, root=False), 7, 6), Verdict.INTACT),
        (past(line(9, 8, root=False), 7), Verdict.DOUBT),
        (past(replace(line(9, 8, root=False), has_files_of=lambda place: True), 7), Verdict.INTACT),
    ],
    ids=[
        "at the head",
        "below another's",
        "an earlier snapshot",
        "another's on an earlier snapshot",
        "another beginning",
        "no head",
        "the rest has expired",
        "only the commit itself has expired",
        "files of the commit are left",
        "history names the commit",
        "history ends before",
        "history ends before and files are left",
    ],
)
def test_a_walk_from_the_head_tells_whether_the_commit_is_there(branch: Line, said: Verdict) -> None:
    assert verdict(branch, LAST) is said


def test_history_tells_of_a_rollback_whose_target_has_expired() -> None:
    branch = replace(line(9, 8, root=False), expired={7: Ancestor(SnapshotPlace(7, 4), 3, {})}.get)
    assert verdict(branch, LAST) is Verdict.ROLLED_BACK


def test_a_snapshot_whose_parent_the_catalog_has_removed_is_no_beginning() -> None:
    """pyiceberg removes the parent of a snapshot when the parent expires."""
    branch = replace(line(9, 8), parent_of={SnapshotPlace(8, 8): 7}.get)
    assert verdict(branch, LAST) is Verdict.DOUBT


def test_without_numbers_only_the_snapshot_log_tells_what_is_earlier() -> None:
    unnumbered = replace(line(4, root=False), snapshots=[Ancestor(SnapshotPlace(4, 0), 3, {})])
    last = SnapshotPlace(5, 0)
    assert verdict(unnumbered, last) is Verdict.DOUBT
    assert verdict(replace(unnumbered, is_earlier=lambda one, other: one.id < other.id), last) is Verdict.ROLLED_BACK


# The ledger

OLD, NEW = Ledger({0: 5}, {TP: 30}, {TP: 30}), Ledger({0: 9}, {TP: 60}, {TP: 60})


def test_a_table_without_a_summary_of_the_sink_holds_what_its_property_says_if_it_was_not_rolled_back() -> None:
    assert KEY.read(line(9, 5), KEY.properties(NEW, LAST)) == NEW


def test_a_table_that_was_rolled_back_to_before_the_first_commit_holds_nothing() -> None:
    ledger = KEY.read(line(4), KEY.properties(NEW, LAST))
    assert (ledger.source, ledger.settled, ledger.gone) == ({}, {}, {TP: (Span(0, 60),)})
    assert ledger.control == {0: 9}, "a replay must not bring the rows back"


def test_a_table_in_doubt_holds_what_its_property_says_and_says_so() -> None:
    assert KEY.read(line(9, 8, root=False), KEY.properties(NEW, LAST)) == replace(NEW, doubt=LAST)


def test_what_is_below_expired_snapshots_is_in_doubt_although_the_table_was_rolled_back_for_sure() -> None:
    assert KEY.read(line(4, root=False), KEY.properties(NEW, LAST)) == replace(NEW, doubt=LAST)


def test_a_rollback_to_a_snapshot_above_an_expired_commit_gives_the_ledger_of_that_time() -> None:
    properties = KEY.properties(OLD, SnapshotPlace(2, 2))
    above = line(4, 3, root=False)
    properties |= committed(KEY, above, properties, NEW, LAST)
    for head in (above, line(3, root=False), line(9, 3, root=False)):
        ledger = KEY.read(head, properties)
        assert (ledger.source, ledger.gone, ledger.doubt) == ({TP: 30}, {TP: (Span(30, 60),)}, None)


def test_the_first_commit_on_others_snapshots_keeps_that_they_hold_nothing() -> None:
    above = line(4, 3, root=False)
    properties = committed(KEY, above, {}, NEW, LAST)
    assert KEY.read(above, properties).source == {}


def test_a_table_of_an_earlier_version_goes_by_its_snapshot_log() -> None:
    commit = Ancestor(LAST, 4, KEY.summary(NEW))
    assert KEY.read(replace(line(4), heads=lambda: [commit]), KEY.properties(NEW)).source == {}
    assert KEY.read(line(4), KEY.properties(NEW)).source == {TP: 60}


# What is noted


def test_a_commit_names_its_snapshot() -> None:
    properties = committed(KEY, line(4), {}, NEW, LAST)
    assert properties["calving.ledger-snapshot.control.connect-x"] == "5:5"
    audit = replace(KEY, branch="audit")
    assert committed(audit, line(4), {}, NEW, LAST)["calving.ledger-snapshot.control.connect-x@audit"] == "5:5"


def test_a_look_notes_a_rollback_once() -> None:
    properties = KEY.properties(NEW, LAST)
    head = line(3, summaries={3: KEY.summary(OLD)})
    changes = looked(KEY, head, properties)
    assert changes["calving.gone-offsets.control.connect-x"] == '{"s":{"0":[[30,60]]}}'
    assert looked(KEY, head, properties | changes) == {}
    left = KEY.read(line(9, 8, root=False), properties | changes)
    assert left.source == {TP: 30} and left.doubt is not None


def test_a_look_notes_doubt_once_and_a_commit_keeps_it() -> None:
    properties = KEY.properties(NEW, LAST)
    head = line(9, 8, root=False)
    properties |= looked(KEY, head, properties)
    assert looked(KEY, head, properties) == {}
    properties |= committed(KEY, head, properties, KEY.read(head, properties), SnapshotPlace(10, 10))
    assert KEY.read(line(10, 9, 8, root=False), properties).doubt == LAST


def test_doubt_is_over_when_the_commit_is_in_the_branch_again() -> None:
    properties = KEY.properties(NEW, LAST)
    head = line(9, 8, root=False)
    properties |= looked(KEY, head, properties)
    again = line(5, 4, summaries={5: KEY.summary(NEW)})
    assert KEY.read(again, properties) == NEW
    assert looked(KEY, again, properties)["calving.ledger-doubt.control.connect-x"] == ""


def test_a_commit_ends_a_rollback_whose_records_are_all_there_again() -> None:
    properties = KEY.properties(replace(OLD, gone={TP: (Span(30, 60),)}), SnapshotPlace(3, 3))
    head = line(3, summaries={3: KEY.summary(OLD)})
    assert committed(KEY, head, properties, NEW, LAST)["calving.gone-offsets.control.connect-x"] == "{}"


def test_nobody_but_the_command_writes_during_a_recovery() -> None:
    properties = KEY.properties(NEW, LAST) | KEY.recovered_at("log-1", {0: 9}, again=True)
    assert looked(KEY, line(4), properties) == {}


def test_a_table_of_another_control_log_is_left_alone() -> None:
    assert looked(replace(KEY, log_id="log-2"), line(4), KEY.properties(NEW, LAST)) == {}


def test_a_commit_that_changes_no_row_carries_on_the_ledgers_of_its_head_and_branch() -> None:
    name = LEDGER_SNAPSHOT
    properties = {f"{name}.a": "5:5", f"{name}.b": "4:4", f"{name}.a@audit": "5:5", f"{name}.c@home": "5:5", "x": "5:5"}
    at = SnapshotPlace(6, 6)
    assert carried_on(properties, {"main", "audit"}, "main", 5, at) == {f"{name}.a": "6:6", f"{name}.c@home": "6:6"}
    assert carried_on(properties, {"main", "audit"}, "audit", 5, at) == {f"{name}.a@audit": "6:6"}


# What is said


def test_a_rollback_is_told_with_the_number_of_offsets_and_the_command() -> None:
    rolled_back = RolledBack({TP: (Span(30, 60), Span(70, 80))})
    assert rolled_back.offsets == 40
    text = rolled_back.text("db.t")
    assert (
        "it no longer holds 40 offsets" in text
        and "`calving rollback FILE --table db.t --as-is --then restore`" in text
    )


@pytest.mark.parametrize("rolled_back", [RolledBack({TP: (Span(30, 60),)}), RolledBack({}, SnapshotPlace(5, 5))])
def test_a_rollback_below_a_backfill_is_told_with_what_answers_it(rolled_back: RolledBack) -> None:
    text = rolled_back.text("db.t", "begin another one")
    assert text.endswith(", begin another one")
    assert "calving" not in text


def test_a_table_that_was_not_rolled_back_has_nothing_to_tell() -> None:
    assert RolledBack.of({}, None) is None


def added(pick: Mapping[str, str]) -> object:
    """What snapshot 4 has added. It is built on a cherry-pick, 3, and that on 1. 2 is built on 1, too."""
    ledgers = {1: (Span(0, 10),), 2: (Span(0, 10), Span(20, 30)), 4: (Span(0, 10), Span(20, 30), Span(40, 50))}
    parents = {1: None, 2: 1, 3: 1, 4: 3}
    shown = {n: Ancestor(SnapshotPlace(n, n), parent, pick if n == 3 else {}) for n, parent in parents.items()}

    def held(snapshot: Ancestor) -> Coverage | None:
        return {TP: ledgers[snapshot.place.id]} if snapshot.place.id in ledgers else None

    return added_by(Line((), snapshot=shown.get), 4, held)


def test_what_a_cherry_pick_brought_back_was_not_added_by_the_commit_above_it() -> None:
    assert added({"source-snapshot-id": "2"}) == {TP: (Span(40, 50),)}


def test_a_cherry_pick_of_a_staged_snapshot_brought_nothing_back() -> None:
    assert added({"source-snapshot-id": "7", "published-wap-id": "w"}) == {TP: (Span(20, 30), Span(40, 50))}


@pytest.mark.parametrize("source", ["7", "4"], ids=["expired", "the commit above it"])
def test_nobody_knows_what_a_commit_added_above_a_cherry_pick_of_an_unknown_source(source: str) -> None:
    assert added({"source-snapshot-id": source}) is None


def test_cherry_picks_of_commits_above_cherry_picks_are_not_followed_for_ever() -> None:
    parents = {n: n - 1 if n % 2 else None for n in range(2, 5_000)}
    summaries = {n: {"source-snapshot-id": str(n - 1)} if n % 2 == 0 else {} for n in parents}
    shown = {n: Ancestor(SnapshotPlace(n, n), parent, summaries[n]) for n, parent in parents.items()}
    assert added_by(Line((), snapshot=shown.get), 4_999, lambda each: {} if each.place.id % 2 else None) is None
