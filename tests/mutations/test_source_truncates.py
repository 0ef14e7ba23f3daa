"""Truncate events that delete the rows of their own source (``truncate-field``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calving.errors import ConfigError
from calving.iceberg.rules import TableSettings
from calving.model.files import FileContent
from calving.model.record_path import Evolution, Limits, RouteRule, Routing, TransformSpec
from calving.model.tables import RowMutations
from harness.structure import check
from tests.iceberg.reader import rows_of
from tests.mutations.changing import NAME, TOPIC, Changing, Message

OF_TENANT = RowMutations("op", on_truncate="delete", truncate_field="tenant")
TYPES = {"id": "long", "v": "string", "tenant": "string"}


def put(key: int, tenant: str | None, value: str = "a", op: str = "u") -> Message:
    return {"id": key}, {"id": key, "v": value, "tenant": tenant, "op": op}


def truncate(tenant: Any) -> Message:
    return None, {"op": "t", "tenant": tenant}


def sink_of(folder: Path, **more: Any) -> Changing:
    return Changing(folder, more.pop("mutations", OF_TENANT), columns=more.pop("columns", TYPES), **more)


LAYOUTS = [(), ("tenant",), ("bucket(id, 3)",), ("tenant", "bucket(id, 2)")]


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("partition_by", LAYOUTS, ids=lambda terms: " ".join(terms) or "flat")
def test_an_event_deletes_the_rows_of_its_source_and_no_others(
    tmp_path: Path, partition_by: tuple[str, ...], version: str
) -> None:
    sink = sink_of(tmp_path, partition_by=partition_by, properties={"format-version": version})
    sink.take(*(put(key, "us" if key % 2 else "eu") for key in range(10)))
    sink.take(put(20, "eu"), put(21, "us"), truncate("eu"), put(2, "eu", "new"))
    assert sorted(sink.rows("id", "v")) == [(1, "a"), (2, "new"), (3, "a"), (5, "a"), (7, "a"), (9, "a"), (21, "a")]
    assert sink.counts == {"truncate event": 1, "deleted": 1}
    check(sink.table, equality=False)


def test_the_event_is_a_key_file_of_the_column(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, "eu"))
    outcome = sink.read({0: [truncate("eu")]})
    (file,) = (file for steps in outcome.written.values() for step in steps for file in step.delete_files)
    column = sink.table.schema().find_field("tenant").field_id
    assert (file.content, file.equality_ids, file.record_count) == (FileContent.EQUALITY_DELETES, (column,), 1)


def test_an_update_before_the_event_still_replaces_the_row_of_another_source(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, "us"), put(2, "us"), put(3, "eu"))
    sink.take(put(1, "eu"), truncate("eu"), put(3, "eu", "again"))
    assert sink.rows("id", "tenant", "v") == [(2, "us", "a"), (3, "eu", "again")]


def test_an_update_that_moves_a_row_to_another_source_before_the_event_saves_it(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, "eu"), put(2, "eu"))
    sink.take(put(3, "eu"), put(3, "us"), put(1, "us", "moved"), truncate("eu"))
    assert sink.rows("id", "v") == [(1, "moved"), (3, "a")]


def test_a_delete_before_the_event_deletes_the_row_of_any_source(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, "us"), put(2, "us"))
    sink.take(({"id": 1}, {"id": 1, "op": "d"}), truncate("eu"))
    assert sink.rows("id") == [(2,)]


def test_several_events_of_a_batch_delete_each_what_came_before_it(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(*(put(key, tenant) for key, tenant in enumerate(("eu", "us", "jp"))))
    batch = [put(3, "eu"), truncate("eu"), put(4, "eu"), put(5, "us"), truncate("us"), truncate("eu"), put(6, "eu")]
    sink.take(*batch)
    assert sink.rows("id") == [(2,), (6,)]


def test_publications_of_one_commit_keep_their_order(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, "eu"), put(2, "us"))
    batches = [put(3, "eu")], [truncate("eu")], [put(1, "eu", "b")], [put(4, "us")], [truncate("us")], [put(5, "us")]
    sink.commit(*(sink.read({0: messages}) for messages in batches))
    assert sink.rows("id", "v") == [(1, "b"), (5, "a")]


def test_sources_of_several_partitions_are_truncated_by_themselves(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take_all({0: [put(key, "eu") for key in range(4)], 1: [put(key, "us") for key in range(10, 14)]})
    sink.take_all({0: [truncate("eu"), put(0, "eu", "b")], 1: [put(14, "us"), put(10, "us", "b")]})
    assert sink.rows("id", "v") == [(0, "b"), (10, "b"), (11, "a"), (12, "a"), (13, "a"), (14, "a")]


@pytest.mark.parametrize("limits", [Limits(block_records=3), Limits(block_records=3, buffered_bytes=1)])
@pytest.mark.parametrize("slots", [1, 3])
def test_tasks_that_share_a_partition_delete_what_came_before(tmp_path: Path, slots: int, limits: Limits) -> None:
    sink = sink_of(tmp_path, slots=slots, limits=limits)
    sink.take(*(put(key, "us" if key % 2 else "eu") for key in range(50)))
    first = [put(key, "us" if key % 2 else "eu") for key in range(100, 130)]
    sink.take(*first, truncate("eu"), *(put(key, "eu") for key in range(128, 140)), put(0, "eu", "b"))
    expected = [*(key for key in range(50) if key % 2), 0, *(key for key in range(100, 128) if key % 2)]
    assert sorted(key for (key,) in sink.rows("id")) == sorted([*expected, *range(128, 140)])


def test_inserts_that_append_are_dropped_and_leave_the_rows_of_their_key(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, mutations=replace(OF_TENANT, inserts="append"))
    sink.take(put(1, "us", "old", "c"))
    sink.take(put(1, "eu", "b", "c"), put(1, "us", "c", "c"), truncate("eu"), put(1, "eu", "d", "c"))
    assert sink.rows("v") == [("c",), ("d",), ("old",)]


@pytest.mark.parametrize("tenant", [None, {"a": 1}])
def test_an_event_without_a_source_is_bad(tmp_path: Path, tenant: Any) -> None:
    sink = sink_of(tmp_path, columns={**TYPES, "tenant": "long"})
    sink.take((None, {"id": 1, "tenant": 1, "op": "c"}))
    outcome = sink.take(truncate(tenant), truncate(1), (None, {"op": "t"}))
    assert [offset for offset, _ in sink.reasons(outcome)] == [1, 3]
    assert "tenant" in sink.reasons(outcome)[0][1]
    assert (sink.counts, sink.rows("id")) == ({"truncate event": 1}, [])


def test_an_event_that_is_bad_for_one_table_empties_no_other(tmp_path: Path) -> None:
    routing = Routing((RouteRule(NAME), RouteRule("db.whole")))
    sink = sink_of(tmp_path, routing=routing)
    emptied = RowMutations("op", on_truncate="delete")
    sink = sink.with_(tables={"db.whole": TableSettings((), ("id",), mutations=emptied, columns=TYPES)})
    sink.take(put(1, "eu"))
    outcome = sink.take(truncate(None))
    assert (len(outcome.dead_letters), sink.counts) == (1, {})
    assert [replace(sink, name=name).rows("id") for name in (NAME, "db.whole")] == [[(1,)], [(1,)]]
    sink.take(truncate("us"))
    assert [replace(sink, name=name).rows("id") for name in (NAME, "db.whole")] == [[(1,)], []]


UNWRAP = TransformSpec("unwrap", "DebeziumTransform")
OF_TOPIC = TransformSpec("insert", "InsertField$Value", {"topic.field": "tenant"})


def event(op: str, key: int, schema: str = "public") -> Message:
    source = {"db": "shop", "schema": schema, "table": "t"}
    return {"id": key}, {"op": op, "ts_ms": 1, "source": source, "before": None, "after": {"id": key} if key else None}


def test_an_event_of_debezium_deletes_the_rows_of_its_table(tmp_path: Path) -> None:
    mutations = RowMutations("_cdc.op", on_truncate="delete", truncate_field="_cdc.source")
    evolution = Evolution(create=True, evolve=True)
    sink = Changing(tmp_path, mutations, transforms=(UNWRAP,), evolution=evolution, slots=2)
    sink.take(event("c", 1, "a"), event("c", 2, "b"))
    sink.take(event("c", 3, "a"), event("t", 0, "a"), event("c", 4, "a"))
    assert sink.rows("id", "_cdc") == [(2, {"source": "b.t"}), (4, {"source": "a.t"})]


def test_a_transform_behind_it_may_say_the_source(tmp_path: Path) -> None:
    mutations = RowMutations("_cdc.op", on_truncate="delete", truncate_field="tenant")
    sink = Changing(tmp_path, mutations, transforms=(UNWRAP, OF_TOPIC))
    sink.take(event("c", 1), event("c", 2))
    sink.take(event("c", 3), event("t", 0), event("c", 4))
    assert sink.rows("id", "tenant") == [(4, TOPIC)]


def test_a_table_without_the_column_is_an_error(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, columns={"id": "long"}, mutations=replace(OF_TENANT, truncate_field=None))
    sink.take(({"id": 1}, {"id": 1, "op": "c"}))
    with pytest.raises(ConfigError, match="has no column tenant, which is its truncate-field"):
        sink.with_(mutations=OF_TENANT).take(put(1, "eu"))


def test_a_record_without_a_source_creates_no_table_and_is_no_event_s_row_later(tmp_path: Path) -> None:
    sink = Changing(tmp_path, OF_TENANT)
    outcome = sink.take(({"id": 1}, {"id": 1, "op": "c"}))
    assert "has no value for the truncate-field 'tenant'" in sink.reasons(outcome)[0][1]
    sink.take(put(1, "eu"), put(2, None))
    sink.take(truncate("eu"))
    assert sink.rows("id") == [(2,)]


def test_a_coordinator_with_equality_deletes_adds_the_file_as_one(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, properties={"format-version": "2"})
    sink.take(put(1, "eu"), put(2, "us"))
    outcome = sink.read({0: [put(3, "eu"), truncate("eu"), put(4, "eu")]})
    sink.with_(mutations=RowMutations("op", row_deletes="equality")).commit(outcome)
    assert [row[0] for row in rows_of(sink.table)] == [2, 4]
