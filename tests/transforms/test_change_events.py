"""Events of Debezium and DMS become rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from calving.records.values import objects
from tests.transforms.applying import NOON, apply, chain, records, values

SOURCE = {"db": "shop", "schema": "public", "table": "orders"}


def debezium(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"op": op, "ts_ms": NOON, "source": SOURCE, "before": before, "after": after}


def test_debezium_events_become_rows() -> None:
    found = records(
        debezium("c", None, {"id": 1, "n": "x"}),
        debezium("u", {"id": 1, "n": "x"}, {"id": 1, "n": "y"}),
        debezium("d", {"id": 1, "n": "y"}, None),
        keys=[{"id": 1}] * 3,
    )
    done = chain("DebeziumTransform", {"cdc.target.pattern": "lake.{db}_{table}"}).apply(found)
    rows = {i: row for part in done.records for i, row in zip(part.index.to_pylist(), objects(part.value), strict=True)}
    assert {i: (r["id"], r["n"], r["_cdc"]["op"]) for i, r in rows.items()} == {
        0: (1, "x", "I"),
        1: (1, "y", "U"),
        2: (1, "y", "D"),
    }
    assert rows[0]["_cdc"] == {
        "op": "I",
        "ts": NOON,
        "offset": 100,
        "source": "public.orders",
        "target": "lake.public_orders",
        "key": {"id": 1},
    }


def test_the_time_of_a_debezium_event_with_a_schema_is_a_timestamp() -> None:
    found = records(debezium("c", None, {"id": 1}), typed=True)
    row = objects(apply("DebeziumTransform", {}, found).value)[0]
    assert row["_cdc"]["ts"] == datetime(2024, 1, 2, 12, tzinfo=UTC)


def test_a_debezium_event_without_a_row_is_dropped_and_counted() -> None:
    done = chain("DebeziumTransform").apply(records(debezium("c", None, {"id": 1}), debezium("m", None, None)))
    assert (done.dropped, len(done.records[0])) == ({"transform x: message": 1}, 1)


def test_dms_events_become_rows() -> None:
    def event(operation: str) -> dict[str, Any]:
        about = {"operation": operation, "timestamp": "2024", "schema-name": "s", "table-name": "t"}
        return {"data": {"id": 1}, "metadata": about}

    rows = values("DmsTransform", {}, event("load"), event("update"), event("delete"))
    assert [r["_cdc"]["op"] for r in rows] == ["I", "U", "D"]
    assert rows[0] == {"id": 1, "_cdc": {"op": "I", "ts": "2024", "source": "s.t"}}
    about = {"record-type": "control", "operation": "drop-table"}
    control = {"data": None, "metadata": about}
    assert chain("DmsTransform").apply(records(control)).dropped == {"transform x": 1}
