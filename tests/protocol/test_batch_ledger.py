"""What the ledger of Spark's jobs answers: a batch is held, is new, or nobody can tell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from calving.errors import ConfigError, TableTroubleError
from calving.model.tables import SnapshotPlace
from calving.protocol.batch_ledger import (
    MOST_ENTRIES,
    LastBatch,
    LostBatches,
    OneWrite,
    StreamBatch,
    lost_batches,
    lost_writes,
    noted,
    outdated,
    repeated,
)
from calving.protocol.rollback import Ancestor, Line

ORDERS = "calving.spark-batch.orders"
BATCH = StreamBatch("lake.t", "orders", "q1", 7)


def said(query: str, batch: int) -> str:
    return json.dumps({"query": query, "batch": batch})


def stored(query: str, batch: int, at: int) -> str:
    return json.dumps({"query": query, "batch": batch, "snapshot": f"{at}:{at}", "at": 1})


def line(*summaries: Mapping[str, str], below: int | None = None) -> Line:
    """Snapshots, the head first; the last of them has number 1. ``below``: the expired parent of the last one, which
    then has the next number.
    """
    numbers = [len(summaries) - i + (below or 0) for i in range(len(summaries))]
    parents = [*numbers[1:], below]
    return Line(
        [
            Ancestor(SnapshotPlace(n, n), parent, summary)
            for n, parent, summary in zip(numbers, parents, summaries, strict=True)
        ]
    )


@pytest.mark.parametrize(("last", "held"), [(6, False), (7, True)])
def test_the_last_batch_of_its_query_is_held(last: int, held: bool) -> None:
    branch = line({}, {ORDERS: said("q1", last)}, {ORDERS: said("q1", 1)})
    assert BATCH.is_held(branch, {ORDERS: stored("q1", last, 2)}) is held


@pytest.mark.parametrize("other", [False, True], ids=["last", "before one of another query"])
def test_an_earlier_batch_is_refused_because_its_checkpoint_is_older_than_the_table(other: bool) -> None:
    """Spark repeats the last batch alone. With an older checkpoint the batch may have other rows, which would be lost."""
    summaries = [{ORDERS: said("q0", 3)}] * other + [{ORDERS: said("q1", 8)}]
    branch, properties = line(*summaries), {ORDERS: stored("q0" if other else "q1", 3 if other else 8, len(summaries))}
    for continues in (False, True):
        with pytest.raises(
            ConfigError, match=r"holds batch 8 of query q1, .* this is batch 7: the checkpoint is older"
        ):
            replace(BATCH, continues=continues).is_held(branch, properties)


def picked(*picks: int, other: str | None = None, gone: frozenset[int] = frozenset()) -> Line:
    """Batches 5 to 7 were in snapshots 1 to 3, and 4 repeats the last one: the branch went back to 1, somebody else
    added 5, and then the ``picks`` came back. ``other``: what somebody else says. ``gone``: what has expired.
    """
    batches = [Ancestor(SnapshotPlace(n, n), n - 1 or None, {ORDERS: said("q1", 4 + n)}) for n in (1, 2, 3)]
    repeats = Ancestor(SnapshotPlace(4, 4), 3, {ORDERS: said("q1", 7)})
    branch = [Ancestor(SnapshotPlace(5, 5), 1, {ORDERS: other} if other else {}), batches[0]]
    for n, pick in enumerate(picks, 6):
        branch.insert(0, Ancestor(SnapshotPlace(n, n), n - 1, {"source-snapshot-id": str(pick)}))
    known = {each.place.id: each for each in (*batches, repeats, *branch) if each.place.id not in gone}
    return Line(branch, snapshot=known.get)


@pytest.mark.parametrize("other", [None, said("q1", 5)])
def test_a_batch_that_a_rollback_removed_and_cherry_picks_brought_back_is_held(other: str | None) -> None:
    assert BATCH.is_held(picked(2, 3, other=other), {ORDERS: stored("q1", 7, 3)})


@pytest.mark.parametrize(
    "branch", [picked(), picked(3), picked(2), picked(3, 2), picked(2, 4), picked(2, 3, gone=frozenset({2}))]
)
def test_a_batch_that_cherry_picks_did_not_bring_back_with_those_before_it_is_not_held(branch: Line) -> None:
    with pytest.raises(ConfigError, match="was rolled back: it does not hold batch 7"):
        BATCH.is_held(branch, {ORDERS: stored("q1", 7, 3)})


def test_a_write_that_a_cherry_pick_brought_back_is_held() -> None:
    write, name = OneWrite("w"), "calving.spark-write.w"
    source = Ancestor(SnapshotPlace(2, 2), 1, {name: "{}"})
    first, other = Ancestor(SnapshotPlace(1, 1), None, {}), Ancestor(SnapshotPlace(3, 3), 1, {})
    pick = Ancestor(SnapshotPlace(4, 4), 3, {"source-snapshot-id": "2"})
    properties = {name: json.dumps({"snapshot": "2:2", "at": 1})}
    assert write.is_held(Line([pick, other, first], snapshot={2: source}.get), properties)
    assert not write.is_held(Line([other, first], snapshot={2: source}.get), properties)


def test_a_table_without_an_entry_holds_no_batch() -> None:
    assert not BATCH.is_held(line({}, {}), {})


def test_the_property_tells_of_a_batch_whose_snapshot_has_expired() -> None:
    assert BATCH.is_held(line({}, {}, below=2), {ORDERS: stored("q1", 7, 2)})


def test_the_summary_tells_of_a_batch_whose_property_somebody_has_removed() -> None:
    assert BATCH.is_held(line({}, {ORDERS: said("q1", 7)}), {})


def test_a_batch_of_another_query_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"lake\.t: sink orders was written by query q0, up to batch 3; this is .* q1"
    ):
        BATCH.is_held(line({ORDERS: said("q0", 3)}), {ORDERS: stored("q0", 3, 1)})


def test_a_batch_of_another_query_is_new_if_the_option_says_so() -> None:
    batch = replace(BATCH, continues=True)
    assert not batch.is_held(line({ORDERS: said("q0", 9)}), {ORDERS: stored("q0", 9, 1)})


@pytest.mark.parametrize("continues", [True, False])
def test_a_batch_that_landed_before_one_of_another_query_is_held(continues: bool) -> None:
    branch = line({ORDERS: said("q0", 9)}, {ORDERS: said("q1", 7)})
    assert replace(BATCH, continues=continues).is_held(branch, {ORDERS: stored("q0", 9, 2)})


@pytest.mark.parametrize(
    "summaries", [({}, {}), ({}, {ORDERS: said("q1", 5)})], ids=["to no batch", "to an earlier one"]
)
@pytest.mark.parametrize("batch", [7, 8], ids=["repeated", "next"])
def test_no_batch_follows_a_rollback(summaries: tuple[Mapping[str, str], ...], batch: int) -> None:
    properties = {ORDERS: stored("q1", 7, 3)}
    with pytest.raises(ConfigError, match=r"lake\.t was rolled back: it does not hold batch 7 of query q1"):
        replace(BATCH, batch=batch).is_held(line(*summaries), properties)


def test_a_rollback_is_noticed_by_the_entry_that_later_snapshots_repeat_if_the_others_have_expired() -> None:
    branch = line({ORDERS: said("q1", 5)}, below=8)
    with pytest.raises(ConfigError, match=r"lake\.t was rolled back"):
        BATCH.is_held(branch, {ORDERS: stored("q1", 7, 3)})


@pytest.mark.parametrize(("batch", "held"), [(5, True), (6, False), (8, False)])
def test_after_a_rollback_the_option_lets_the_batches_follow_that_are_gone(batch: int, held: bool) -> None:
    branch = line({}, {ORDERS: said("q1", 5)})
    entry = replace(BATCH, batch=batch, continues=True)
    assert entry.is_held(branch, {ORDERS: stored("q1", 7, 3)}) is held


def test_each_branch_has_a_property_of_its_own() -> None:
    entry = replace(BATCH, branch="audit")
    assert list(noted(entry, SnapshotPlace(3, 4), 5)) == [f"{ORDERS}@audit"]
    assert not entry.is_held(line({}), {ORDERS: stored("q1", 7, 1)})


def test_what_is_noted_is_held() -> None:
    branch = line({})
    assert BATCH.is_held(branch, noted(BATCH, SnapshotPlace(1, 1), 5))
    assert BATCH.place(noted(BATCH, SnapshotPlace(1, 1), 5)) == SnapshotPlace(1, 1)
    assert OneWrite("w").is_held(branch, noted(OneWrite("w"), SnapshotPlace(1, 1), 5))


def test_a_write_with_an_id_is_held_until_it_is_rolled_back() -> None:
    properties = noted(OneWrite("w"), SnapshotPlace(2, 2), 5)
    assert OneWrite("w").is_held(line({}, {"calving.spark-write.w": "{}"}, {}), properties)
    assert not OneWrite("w").is_held(line({}), properties)
    assert not OneWrite("v").is_held(line({}, {"calving.spark-write.w": "{}"}, {}), properties)


@pytest.mark.parametrize(
    "text", ["7", "{", '{"query": "q1"}', '{"query": "q1", "batch": "x", "snapshot": "1:1", "at": 1}', "[]"]
)
def test_a_property_that_calving_has_not_written_is_refused(text: str) -> None:
    with pytest.raises(TableTroubleError, match="is not what calving writes"):
        BATCH.is_held(line({}), {ORDERS: text})


def test_the_oldest_entries_of_a_kind_go_when_there_are_too_many() -> None:
    writes = [noted(OneWrite(f"w{n}"), SnapshotPlace(n, n), n) for n in range(MOST_ENTRIES + 1)]
    properties = {name: text for each in writes for name, text in each.items()} | {ORDERS: stored("q1", 7, 1)}
    assert outdated(OneWrite("new"), properties) == ["calving.spark-write.w1", "calving.spark-write.w0"]
    assert outdated(BATCH, properties) == []


def test_a_damaged_entry_of_another_query_stays_and_stops_nobody_else() -> None:
    queries = [noted(replace(BATCH, sink=f"s{n}"), SnapshotPlace(n, n), n) for n in range(MOST_ENTRIES)]
    properties = {name: text for each in queries for name, text in each.items()} | {f"{ORDERS}-2": "{"}
    assert outdated(BATCH, properties) == ["calving.spark-batch.s0"]


def test_the_next_summary_repeats_the_entries_of_queries_that_stay() -> None:
    summary = {ORDERS: "1", "calving.spark-batch.old": "2", "calving.spark-write.w": "3", "total-records": "4"}
    assert repeated(summary, ["calving.spark-batch.old"]) == {ORDERS: "1"}


def test_a_rollback_takes_from_each_sink_what_came_after_the_last_batch_that_stays() -> None:
    others = "calving.spark-batch.others"
    leaving = [{}, {ORDERS: said("q1", 9), others: said("q2", 3)}, {ORDERS: said("q1", 8), others: said("q2", 3)}]
    staying = [{others: said("q2", 3)}, {ORDERS: said("q1", 7)}, {ORDERS: said("q1", 6)}]
    assert lost_batches(leaving, staying) == [LostBatches("orders", LastBatch("q1", 9), LastBatch("q1", 7))]
    assert lost_batches(leaving, []) == [
        LostBatches("orders", LastBatch("q1", 9), None),
        LostBatches("others", LastBatch("q2", 3), None),
    ]


def test_a_rollback_takes_the_writes_whose_snapshots_leave() -> None:
    assert lost_writes([{"calving.spark-write.b": "{}"}, {"total-records": "1"}, {"calving.spark-write.a": "{}"}]) == [
        "a",
        "b",
    ]
