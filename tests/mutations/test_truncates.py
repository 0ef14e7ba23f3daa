"""Truncate events that empty a table (``on-truncate = delete``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calving.errors import OtherSettingsError
from calving.iceberg.rules import TableSettings
from calving.model.files import EVERY_ROW
from calving.model.offsets import Span, TopicPartition
from calving.model.record_path import Limits, RouteRule, Routing, Tolerance, TransformSpec
from calving.model.tables import RowMutations
from harness.structure import check
from tests.mutations.changing import NAME, TOPIC, Changing, Message

EMPTYING = RowMutations("op", on_truncate="delete")
SOURCE = {"db": "shop", "schema": "public", "table": "t"}
TRUNCATE: Message = (None, {"op": "t"})


def put(key: int, value: str = "a", op: str = "u") -> Message:
    return {"id": key}, {"id": key, "v": value, "op": op}


def sink_of(folder: Path, **more: Any) -> Changing:
    return Changing(folder, more.pop("mutations", EMPTYING), tolerance=Tolerance(), **more)


def test_a_truncate_event_deletes_the_rows_before_it(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(*map(put, range(10)))
    sink.take(put(1, "gone"), put(20), TRUNCATE, put(2, "new"))
    assert (sink.rows("id", "v"), sink.counts) == ([(2, "new")], {"truncate event": 1, "superseded": 2})
    check(sink.table, equality=False)


def test_an_event_of_debezium_does_too(tmp_path: Path) -> None:
    unwrap = TransformSpec("unwrap", "DebeziumTransform")
    sink = sink_of(tmp_path, mutations=RowMutations("_cdc.op", on_truncate="delete"), transforms=(unwrap,))

    def event(op: str, key: int) -> Message:
        row = {"after": {"id": key}} if op == "c" else {}
        return {"id": key}, {"op": op, "ts_ms": 1, "source": SOURCE, "before": None, "after": None, **row}

    sink.take(event("c", 1))
    sink.take(event("c", 2), (None, event("t", 0)[1]), event("c", 3))
    assert sink.rows("id") == [(3,)]


def test_a_batch_with_nothing_else_empties_the_table(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(*map(put, range(10)))
    sink.take(TRUNCATE)
    assert (sink.rows("id"), sink.counts) == ([], {"truncate event": 1})
    sink.take(put(1))
    assert sink.rows("id") == [(1,)]


def test_publications_of_one_commit_keep_their_order(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(*map(put, range(5)))
    sink.commit(*(sink.read({0: messages}) for messages in ([put(6)], [TRUNCATE], [put(1, "b")], [put(7)])))
    assert sink.rows("id", "v") == [(1, "b"), (7, "a")]


def test_changes_that_did_not_fit_into_memory_are_deleted_too(tmp_path: Path) -> None:
    """The task has written them before it reads the event."""
    sink = sink_of(tmp_path, limits=Limits(block_records=2, buffered_bytes=1))
    sink.take(put(100))
    messages = [*map(put, range(9)), TRUNCATE, *map(put, range(5, 12)), TRUNCATE, put(8, "last"), put(30)]
    sink.take(*messages)
    assert sorted(sink.rows("id", "v")) == [(8, "last"), (30, "a")]


@pytest.mark.parametrize("limits", [Limits(block_records=3), Limits(block_records=3, buffered_bytes=1)])
def test_tasks_that_share_a_partition_delete_what_came_before(tmp_path: Path, limits: Limits) -> None:
    sink = sink_of(tmp_path, slots=3, limits=limits)
    sink.take(*map(put, range(50)))
    sink.take(*map(put, range(100, 130)), TRUNCATE, *map(put, range(120, 150)), put(0, "b"))
    assert sorted(sink.rows("id", "v")) == [(0, "b"), *((key, "a") for key in range(120, 150))]


def test_inserts_that_append_are_deleted(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, mutations=replace(EMPTYING, inserts="append"))
    sink.take(*(put(1, value, "c") for value in "abc"))
    sink.take(put(1, "d", "c"), TRUNCATE, put(1, "e", "c"), put(1, "f", "c"))
    assert sink.rows("id", "v") == [(1, "e"), (1, "f")]


def test_a_table_that_holds_the_event_is_not_emptied_again(tmp_path: Path) -> None:
    """After a recovery the sink reads records again that some tables hold, and later rows with them."""
    messages = put(1), TRUNCATE, put(2)
    sink_of(tmp_path).take(*messages)
    again = Changing(tmp_path, EMPTYING, held={TopicPartition(TOPIC, 0): (Span(0, 3),)})
    outcome = again.take(*messages)
    assert (outcome.written, again.rows("id")) == ({}, [(2,)])


def test_each_table_of_the_event_does_as_its_settings_say(tmp_path: Path) -> None:
    routing = Routing((RouteRule(NAME), RouteRule("db.kept")))
    kept = {"db.kept": TableSettings((), ("id",), mutations=replace(EMPTYING, on_truncate="skip"))}
    sink = sink_of(tmp_path, routing=routing, tables=kept)
    sink.take(put(1))
    sink.take(TRUNCATE, put(2))
    assert sink.counts == {"truncate event": 1}
    assert (sink.rows("id"), replace(sink, name="db.kept").rows("id")) == ([(2,)], [(1,), (2,)])


def test_settings_with_equality_deletes_commit_no_file_that_empties_a_table(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, properties={"format-version": "2"})
    sink.take(put(1))
    outcome = sink.read({0: [TRUNCATE]})
    assert [f.equality_ids for steps in outcome.written.values() for s in steps for f in s.delete_files] == [EVERY_ROW]
    other = sink.with_(mutations=RowMutations("op", row_deletes="equality"))
    with pytest.raises(OtherSettingsError, match=r"a file for it deletes all rows \(on-truncate = delete\)"):
        other.commit(outcome)
    sink.commit(outcome)
    assert sink.rows("id") == []
