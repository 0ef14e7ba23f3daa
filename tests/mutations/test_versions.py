"""Tables that keep the former versions of their rows (``history = on``)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, IcebergType, LongType, NestedField, StringType, TimestamptzType

from calving.errors import ConfigError, OtherSettingsError
from calving.iceberg.resolution import RowChangeResolver, RowChanges
from calving.model.files import CHANGES
from calving.model.record_path import Evolution, Limits, TransformSpec
from calving.model.tables import Landing, RowMutations
from harness.blocks import MILLIS
from harness.structure import check
from tests.iceberg.reader import rows_of
from tests.mutations.changing import NAME, Changing, Message

BY_ORDER = RowMutations("op", order_field="n", history="on")
BY_TIME = RowMutations("op", history="on")
WHEN = "valid_from", "valid_to", "is_current"


def put(key: int, op: str = "u", **row: Any) -> Message:
    return {"id": key}, {"id": key, "op": op, **row}


def gone(key: int, **row: Any) -> Message:
    return put(key, "d", **row)


def ordered(folder: Path, **more: Any) -> Changing:
    return Changing(folder, more.pop("mutations", BY_ORDER), columns={"id": "long", "n": "long", "v": "string"}, **more)


def timed(folder: Path, *seconds: int, **more: Any) -> Changing:
    """Records have the timestamps of these seconds."""
    return Changing(
        folder,
        more.pop("mutations", BY_TIME),
        columns={"id": "long", "v": "string"},
        clock=lambda partition, offset: MILLIS + 1000 * seconds[offset],
        **more,
    )


def seconds_of(sink: Changing, *columns: str) -> list[tuple[Any, ...]]:
    """The rows with these columns, and the seconds from which and until which each counts."""
    start = datetime.fromtimestamp(MILLIS / 1000, UTC)

    def since(moment: datetime | None) -> int | None:
        return None if moment is None else (moment - start) // timedelta(seconds=1)

    rows = sink.rows(*columns, *WHEN)
    return [(*row[: len(columns)], *map(since, row[-3:-1]), row[-1]) for row in rows]


def test_an_update_ends_a_version_and_begins_one(tmp_path: Path) -> None:
    sink = ordered(tmp_path)
    sink.take(put(1, "c", n=1, v="a"), put(2, "c", n=1, v="x"))
    sink.take(put(1, n=5, v="b"))
    assert sink.rows("id", "v", *WHEN) == [(1, "a", 1, 5, False), (1, "b", 5, None, True), (2, "x", 1, None, True)]
    check(sink.table)


def test_only_versions_that_change_are_written_anew(tmp_path: Path) -> None:
    sink = ordered(tmp_path)
    sink.take(*(put(1, n=n, v=str(n)) for n in range(5)), put(2, n=1, v="x"))
    sink.take(put(1, n=7, v="7"), put(3, n=1, v="y"))
    head = sink.table.current_snapshot()
    assert head is not None and head.summary is not None
    counted = {
        name: head.summary[f"calving.mutations.{name}"] for name in ("keys", "located", "superseded", "unmatched")
    }
    assert counted == {"keys": "2", "located": "5", "superseded": "1", "unmatched": "0"}
    assert head.summary["added-records"] == "3"


def test_a_delete_ends_the_last_version(tmp_path: Path) -> None:
    sink = ordered(tmp_path)
    sink.take(put(1, "c", n=1, v="a"))
    sink.take(gone(1, n=4), gone(2, n=4))
    assert (sink.rows("id", "v", *WHEN), sink.counts) == ([(1, "a", 1, 4, False)], {"deleted": 2})


@pytest.mark.parametrize("together", [True, False], ids=["in a batch", "in batches of their own"])
def test_a_late_change_splits_the_version_that_contains_it(tmp_path: Path, together: bool) -> None:
    sink = ordered(tmp_path)
    changes = [put(1, n=1, v="a"), put(1, n=9, v="c"), put(1, n=5, v="b"), put(1, n=0, v="z"), gone(1, n=7)]
    for batch in [changes] if together else [[change] for change in changes]:
        sink.take(*batch)
    assert sink.rows("v", *WHEN) == [("a", 1, 5, False), ("b", 5, 7, False), ("c", 9, None, True), ("z", 0, 1, False)]


def test_a_change_that_comes_again_adds_no_version(tmp_path: Path) -> None:
    sink = ordered(tmp_path)
    sink.take(put(1, n=1, v="a"), put(1, n=5, v="b"), put(1, n=5, v="B"))
    assert sink.counts == {"superseded": 1}
    sink.take(put(1, "r", n=1, v="again"), put(1, "r", n=5, v="again"))
    assert sink.rows("v", *WHEN) == [("again", 1, 5, False), ("again", 5, None, True)]


def test_publications_of_one_commit_build_on_each_other(tmp_path: Path) -> None:
    sink = ordered(tmp_path)
    batches = [[put(1, n=1, v="a")], [put(1, n=5, v="c"), gone(2, n=1)], [put(1, n=3, v="b")], [gone(1, n=8)]]
    sink.commit(*(sink.read({0: batch}) for batch in batches))
    assert sink.rows("v", *WHEN) == [("a", 1, 3, False), ("b", 3, 5, False), ("c", 5, 8, False)]
    check(sink.table)


def test_an_update_that_changes_its_key_ends_the_version_of_the_old_key(tmp_path: Path) -> None:
    sink = ordered(
        tmp_path,
        mutations=RowMutations("_cdc.op", order_field="n", history="on"),
        transforms=(TransformSpec("unwrap", "DebeziumTransform"),),
    )
    source = {"db": "shop", "schema": "public", "table": "t"}
    event = {"op": "u", "ts_ms": 5, "source": source}
    sink.take((None, {**event, "before": None, "after": {"id": 1, "n": 1, "v": "a"}}))
    sink.take((None, {**event, "before": {"id": 1}, "after": {"id": 2, "n": 6, "v": "b"}}))
    assert sink.rows("id", "v", *WHEN) == [(1, "a", 1, 6, False), (2, "b", 6, None, True)]


def test_versions_of_a_text_count_by_what_it_says(tmp_path: Path) -> None:
    sink = Changing(tmp_path, BY_ORDER, columns={"id": "long", "n": "string", "v": "string"})
    for batch in ([put(1, n="0/9", v="a")], [put(1, n="0/B0", v="c")], [put(1, n="0/10", v="b")]):
        sink.take(*batch)
    assert sink.rows("v", *WHEN) == [
        ("a", "0/9", "0/10", False),
        ("b", "0/10", "0/B0", False),
        ("c", "0/B0", None, True),
    ]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("uuid", [f"00000000-0000-0000-0000-00000000000{digit}" for digit in "1f9"]),
        ("decimal(20, 3)", ["1.5", "19.25", "7"]),
        ("date", ["2024-01-01", "2024-01-31", "2024-01-09"]),
        ("time", ["01:00:00", "19:00:00", "07:00:00"]),
        ("timestamptz", ["2024-01-01T00:00:00Z", "2024-01-31T00:00:00Z", "2024-01-09T00:00:00Z"]),
        ("double", [-1.5, 19.0, 7.5]),
        ("binary", ["AQ==", "CQ==", "BQ=="]),
    ],
)
def test_versions_have_the_type_of_the_order_field(tmp_path: Path, kind: str, values: list[Any]) -> None:
    sink = Changing(tmp_path, BY_ORDER, columns={"id": "long", "n": kind, "v": "string"})
    for name, value in zip("acb", values, strict=True):
        sink.take(put(1, n=value, v=name))
    stored = {row[0]: row[1] for row in sink.rows("v", "n")}
    assert sorted(sink.rows("v", *WHEN)) == [
        ("a", stored["a"], stored["b"], False),
        ("b", stored["b"], stored["c"], False),
        ("c", stored["c"], None, True),
    ]
    assert [str(sink.table.schema().find_field(name).field_type) for name in WHEN] == [kind, kind, "boolean"]


def test_the_columns_follow_an_order_field_that_becomes_wider(tmp_path: Path) -> None:
    sink = Changing(
        tmp_path, BY_ORDER, columns={"id": "long", "n": "int"}, evolution=Evolution(create=True, evolve=True)
    )
    sink.take(put(1, n=1))
    sink.take(put(1, n=2**40))
    assert sink.rows(*WHEN) == [(1, 2**40, False), (2**40, None, True)]
    assert [str(sink.table.schema().find_field(name).field_type) for name in WHEN] == ["long", "long", "boolean"]


def test_without_an_order_field_a_version_begins_with_the_timestamp_of_its_record(tmp_path: Path) -> None:
    sink = timed(tmp_path, 0, 10, 10, 30, 40)
    sink.take(put(1, v="a"))
    sink.take(put(1, v="b"), put(1, v="c"))
    sink.take(gone(1), put(1, v="d"))
    assert seconds_of(sink, "v") == [
        ("a", 0, 10, False),
        ("b", 10, 10, False),
        ("c", 10, 30, False),
        ("d", 40, None, True),
    ]


@pytest.mark.parametrize("together", [True, False], ids=["in a batch", "in batches of their own"])
def test_no_version_begins_before_the_one_before_it(tmp_path: Path, together: bool) -> None:
    """The clocks of producers go back."""
    sink = timed(tmp_path, 20, 10, 30, 5, 50, 40)
    changes = [put(1, v="a"), put(1, v="b"), put(1, v="c"), put(2, v="x"), gone(1), put(1, v="d")]
    for batch in [changes] if together else [[change] for change in changes]:
        sink.take(*batch)
    assert seconds_of(sink, "id", "v") == [
        (1, "a", 20, 20, False),
        (1, "b", 20, 30, False),
        (1, "c", 30, 50, False),
        (1, "d", 50, None, True),
        (2, "x", 5, None, True),
    ]


@pytest.mark.parametrize("together", [True, False], ids=["in a batch", "in batches of their own"])
def test_a_delete_that_ends_nothing_is_forgotten(tmp_path: Path, together: bool) -> None:
    sink = timed(tmp_path, 90, 20, 30, 95, 25)
    changes = [gone(1), put(1, v="a"), gone(1), gone(1), put(1, v="b")]
    for batch in [changes] if together else [[change] for change in changes]:
        sink.take(*batch)
    assert seconds_of(sink, "v") == [("a", 20, 30, False), ("b", 30, None, True)]


def test_a_record_without_a_timestamp_is_bad(tmp_path: Path) -> None:
    sink = timed(tmp_path).with_(clock=lambda partition, offset: MILLIS if offset != 1 else None)
    outcome = sink.take(put(1, v="a"), put(2, v="b"), put(3, v="c"))
    assert [(at, "has no timestamp" in why) for at, why in sink.reasons(outcome)] == [(1, True)]
    assert sink.rows("id") == [(1,), (3,)]


def test_tombstones_end_versions(tmp_path: Path) -> None:
    sink = timed(tmp_path, 1, 5, mutations=RowMutations(upsert=True, tombstones="delete", history="on"))
    sink.take(put(1, v="a"))
    sink.take(({"id": 1}, None))
    assert seconds_of(sink, "v") == [("a", 1, 5, False)]


def test_rows_from_before_are_current_versions_until_their_key_changes(tmp_path: Path) -> None:
    sink = ordered(tmp_path, mutations=RowMutations("op", order_field="n"))
    sink.take(put(1, n=1, v="a"), put(2, n=1, v="x"))
    sink.with_(mutations=BY_ORDER).take(put(1, n=5, v="b"))
    assert sink.rows("id", "v", *WHEN) == [
        (1, "a", None, 5, False),
        (1, "b", 5, None, True),
        (2, "x", None, None, None),
    ]


def test_a_sink_that_would_delete_versions_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = ordered(tmp_path)
    sink.take(put(1, n=1, v="a"))
    assert "history is off" not in caplog.text
    sink.with_(mutations=RowMutations("op", order_field="n")).read({0: [put(1, n=5, v="b")]})
    assert (
        "table db.t has the columns of versions (valid_from, valid_to, is_current), and history is off" in caplog.text
    )


@pytest.mark.parametrize("landing", ["partitioned", "unpartitioned"])
@pytest.mark.parametrize("term", ["g", "is_current", "bucket(id, 3)", "valid_to"])
def test_versions_may_be_in_different_partitions(tmp_path: Path, term: str, landing: Landing) -> None:
    columns = {"id": "long", "n": "long", "g": "long", "is_current": "boolean", "valid_to": "long"}
    sink = Changing(tmp_path, BY_ORDER, columns=columns, partition_by=(term,), landing=landing)
    sink.take(*(put(key, n=1, g=key) for key in range(4)))
    sink.take(*(put(key, n=2, g=0) for key in range(3)), gone(3, n=7))
    assert sink.rows("id", "g", *WHEN) == sorted(
        [
            *((key, key, 1, 2, False) for key in range(3)),
            *((key, 0, 2, None, True) for key in range(3)),
            (3, 3, 1, 7, False),
        ],
        key=repr,
    )
    check(sink.table)


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_versions_may_be_in_files_of_other_formats(tmp_path: Path, file_format: str) -> None:
    sink = timed(tmp_path, 1, 5, 9, properties={"write.format.default": file_format})
    sink.take(put(1, v="a"))
    sink.take(put(1, v="b"))
    sink.take(gone(1))
    rows = sorted(
        tuple(row[sink.table.schema().column_names.index(name)] for name in ("v", "is_current"))
        for row in rows_of(sink.table)
    )
    assert rows == [("a", False), ("b", False)]


@pytest.mark.parametrize("name", ["valid_from", "Valid_To"])
def test_a_field_that_a_column_of_the_history_would_hide_is_bad(tmp_path: Path, name: str) -> None:
    sink = ordered(tmp_path, evolution=Evolution(create=True, evolve=True))
    outcome = sink.take(put(1, n=1, v="a"), put(2, n=1, **{name: "x"}))
    assert [at for at, _ in sink.reasons(outcome)] == [1]
    assert f"field '{name}' has the name of a column that history = on fills" in sink.reasons(outcome)[0][1]
    assert sink.rows("id", *WHEN) == [(1, 1, None, True)]


def test_a_record_with_such_a_field_creates_no_table(tmp_path: Path) -> None:
    sink = Changing(tmp_path, BY_ORDER)
    outcome = sink.take(put(1, n=1, is_current=True), put(2, n=1))
    assert [at for at, _ in sink.reasons(outcome)] == [0]
    assert sink.rows("id", *WHEN) == [(2, 1, None, True)]


@pytest.mark.parametrize(
    ("name", "kind", "required", "complaint"),
    [
        ("valid_from", StringType(), False, r"column valid_from is string, and history = on needs timestamptz"),
        ("IS_CURRENT", LongType(), False, r"column IS_CURRENT is long, and history = on needs boolean"),
        ("valid_to", TimestamptzType(), True, r"column valid_to is required, .* make it optional"),
    ],
)
def test_a_table_whose_columns_cannot_hold_versions_is_refused(
    tmp_path: Path, name: str, kind: IcebergType, required: bool, complaint: str
) -> None:
    sink = timed(tmp_path, 1)
    sink.catalog.create_namespace("db")
    own = NestedField(1, "id", LongType(), required=False)
    sink.catalog.create_table(NAME, Schema(own, NestedField(2, name, kind, required=required)))
    with pytest.raises(ConfigError, match=complaint):
        sink.take(put(1))


def test_a_table_may_have_the_columns_already(tmp_path: Path) -> None:
    sink = timed(tmp_path, 1, 2)
    sink.catalog.create_namespace("db")
    columns = [("id", LongType()), ("VALID_FROM", TimestamptzType()), ("valid_to", TimestamptzType())]
    fields = [NestedField(number, *column, required=number == 2) for number, column in enumerate(columns, 1)]
    sink.catalog.create_table(NAME, Schema(*fields, NestedField(9, "is_current", BooleanType(), required=True)))
    sink.take(put(1))
    sink.take(put(1))
    assert sorted(row[0] for row in sink.rows("is_current")) == [False, True]
    assert [each.name for each in sink.table.schema().fields] == ["id", "VALID_FROM", "valid_to", "is_current"]


def test_files_wait_for_a_coordinator_that_keeps_versions(tmp_path: Path) -> None:
    sink = ordered(tmp_path)
    sink.take(put(1, n=1, v="a"))
    outcome = sink.read({0: [put(1, n=2, v="b")]})
    ((step,),) = outcome.written.values()
    assert [CHANGES in (file.equality_ids or ()) for file in step.delete_files] == [True]
    with pytest.raises(OtherSettingsError, match="written with history = on, and this worker's settings do not keep"):
        sink.with_(mutations=RowMutations("op", order_field="n")).commit(outcome)
    sink.commit(outcome)
    assert len(sink.rows("id")) == 2


def test_files_wait_for_a_coordinator_with_the_same_order_field(tmp_path: Path) -> None:
    columns = {"id": "long", "n": "timestamptz"}
    sink = Changing(tmp_path, BY_ORDER, columns=columns)
    sink.take(put(1, n="2024-01-01T00:00:00Z"))
    waiting = sink.read({0: [put(1, n="2024-01-02T00:00:00Z")]})
    with pytest.raises(OtherSettingsError, match="this worker's settings have another order-field"):
        sink.with_(mutations=BY_TIME).commit(waiting)
    timely = sink.with_(mutations=BY_TIME).read({0: [put(2, n="2024-01-01T00:00:00Z")]})
    with pytest.raises(OtherSettingsError, match="this worker's settings have another order-field"):
        sink.commit(timely)


def test_files_without_versions_wait_for_a_coordinator_that_keeps_none(tmp_path: Path) -> None:
    former = ordered(tmp_path, mutations=RowMutations("op", order_field="n"))
    former.take(put(1, n=1, v="a"))
    outcome = former.read({0: [put(1, n=2, v="b")]})
    with pytest.raises(OtherSettingsError, match="written without history = on, and this worker's settings keep"):
        former.with_(mutations=BY_ORDER).commit(outcome)


def test_a_batch_that_does_not_fit_into_memory_leaves_the_same(tmp_path: Path) -> None:
    sink = timed(tmp_path, *range(55), limits=Limits(block_records=3, buffered_bytes=2_000))
    sink.take(*(put(n % 4, v=f"{n}" * 50) if n % 7 else gone(n % 4) for n in range(55)))
    found = seconds_of(sink, "id")
    for key in range(4):
        own = sorted(row for row in found if row[0] == key)
        assert all(before[2] <= after[1] for before, after in pairwise(own))
        assert sum(row[3] for row in own) == 1
    assert len(found) == sum(bool(n % 7) for n in range(55))


def test_versions_that_were_moved_by_a_compaction_are_found(tmp_path: Path) -> None:
    sink = ordered(tmp_path)
    for n in (1, 5, 9):
        sink.take(put(1, n=n, v=str(n)), put(2, n=n, v=str(n)))
    waiting = sink.read({0: [put(1, n=7, v="7"), gone(2, n=11)]})
    sink.table.overwrite(sink.table.scan().to_arrow())
    sink.commit(waiting)
    assert sink.rows("id", *WHEN) == [
        (1, 1, 5, False),
        (1, 5, 7, False),
        (1, 7, 9, False),
        (1, 9, None, True),
        (2, 1, 5, False),
        (2, 5, 9, False),
        (2, 9, 11, False),
    ]


def test_a_refused_commit_ends_the_versions_of_the_new_head_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ordered(tmp_path)
    sink.take(put(1, n=1, v="a"), put(2, n=1, v="x"))
    waiting = sink.read({0: [put(1, n=5, v="b")]})
    resolve, tries = RowChangeResolver.resolve, [0]

    def overtaken(*given: Any) -> RowChanges:
        changes = resolve(*given)
        tries[0] += 1
        if tries[0] == 1:  # somebody else rewrites all rows before the commit
            rows = sink.table.scan().to_arrow()
            place = rows.schema.get_field_index("v")
            texts = pa.array(["other"] * 2, rows["v"].type)
            sink.table.overwrite(rows.set_column(place, rows.schema.field(place), texts))
        return changes

    monkeypatch.setattr(RowChangeResolver, "resolve", overtaken)
    sink.commit(waiting)
    assert (tries, sink.rows("id", "v", *WHEN)) == (
        [2],
        [(1, "b", 5, None, True), (1, "other", 1, 5, False), (2, "other", 1, None, True)],
    )
    named = {path.removeprefix("file://") for path in sink.table.inspect.all_files()["file_path"].to_pylist()}
    written = {str(path) for path in Path(sink.table.location().removeprefix("file://"), "data").rglob("*.parquet")}
    assert {path for path in written if not path.endswith("-keys.parquet")} <= named


def test_the_order_field_may_be_within_structs(tmp_path: Path) -> None:
    unwrap = TransformSpec("unwrap", "DebeziumTransform", {"cdc.source-ts": "true"})
    mutations = RowMutations("_cdc.op", order_field="_cdc.source_ts", history="on")
    sink = Changing(tmp_path, mutations, transforms=(unwrap,))
    for second, v in ((1, "a"), (9, "c"), (5, "b")):
        about = {"db": "shop", "schema": "public", "table": "t", "ts_ms": MILLIS + 1000 * second}
        sink.take((None, {"op": "u", "ts_ms": 5, "before": None, "after": {"id": 1, "v": v}, "source": about}))
    first, second, third = (MILLIS + 1000 * n for n in (1, 5, 9))
    assert sink.rows("v", *WHEN) == [("a", first, second, False), ("b", second, third, False), ("c", third, None, True)]
