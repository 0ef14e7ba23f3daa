"""Schema changes of a source table change the target table. The events have the fields of Debezium's connectors for
MySQL, SQL Server and Oracle.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyiceberg.table import Table
from pyiceberg.types import StringType

from calving.model.record_path import ConverterSpec, Evolution, ReadTopics, Routing, TopicConverters, TransformSpec
from calving.model.tables import RowMutations
from tests.mutations.changing import Changing, Message
from tests.mutations.test_sources import CDC, DEBEZIUM, MYSQL, Row

SOURCE = {**MYSQL, "name": "shop"}
FOLLOWING = Evolution(create=True, evolve=True, followed=ReadTopics(frozenset({"shop.inventory.customers"})))


def change(row: Row, op: str = "c") -> Message:
    before, after = (row, None) if op == "d" else (None, row)
    return {"id": row["id"]}, {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 5}


def column(name: str, kind: str, length: int | None = None, jdbc: int = 0) -> Row:
    return {
        "name": name,
        "jdbcType": jdbc,
        "nativeType": None,
        "typeName": kind,
        "typeExpression": kind,
        "charsetName": None,
        "length": length,
        "scale": None,
        "position": 1,
        "optional": True,
        "autoIncremented": False,
        "generated": False,
    }


def altered(
    ddl: str | None, columns: Mapping[str, str], table: str = '"inventory"."customers"', **more: Any
) -> Message:
    made = {
        "defaultCharsetName": "utf8mb4",
        "primaryKeyColumnNames": ["id"],
        "columns": [column(name, kind) for name, kind in columns.items()],
    }
    event = {
        "source": SOURCE,
        "ts_ms": 5,
        "databaseName": "inventory",
        "schemaName": None,
        "ddl": ddl,
        "tableChanges": [{"type": "ALTER", "id": table, "table": made}],
    }
    return {"databaseName": "inventory"}, {**event, **more}


@pytest.fixture
def sink(tmp_path: Path) -> Changing:
    return Changing(tmp_path, CDC, evolution=FOLLOWING, transforms=(DEBEZIUM,))


def enveloped(message: Message) -> Message:
    """The message in Connect's envelope, with a schema of its own fields."""

    def schema(value: Any) -> Row:
        if isinstance(value, dict):
            fields = [{"field": name, **schema(each)} for name, each in value.items()]
            return {"type": "struct", "fields": fields, "optional": True}
        if isinstance(value, list):
            return {"type": "array", "items": schema(value[0]), "optional": True}
        return {"type": _CONNECT.get(type(value), "string"), "optional": True}

    key, event = message
    return key, {"schema": schema(event), "payload": event}


_CONNECT = {bool: "boolean", int: "int64"}


def columns(sink: Changing) -> dict[str, str]:
    return {field.name: str(field.field_type) for field in sink.table.schema().fields}


def test_a_column_is_there_before_its_first_value(sink: Changing) -> None:
    sink.take(change({"id": 1}))
    sink.take(altered("ALTER TABLE customers ADD note TEXT", {"id": "INT", "note": "TEXT"}))
    assert columns(sink) == {"id": "long", "note": "string"}
    assert sink.counts == {"transform unwrap: schema change": 1}


def test_a_column_becomes_wider_before_a_value_needs_it(tmp_path: Path) -> None:
    sink = Changing(tmp_path, CDC, types={"n": "int"}, evolution=FOLLOWING, transforms=(DEBEZIUM,))
    sink.take(change({"id": 1, "n": 1}))
    assert columns(sink)["n"] == "int"
    sink.take(altered("ALTER TABLE customers MODIFY n BIGINT", {"id": "INT", "n": "BIGINT"}))
    assert columns(sink)["n"] == "long"


def test_a_renamed_column_keeps_its_id_and_takes_late_records_of_its_former_name(sink: Changing) -> None:
    sink.take(change({"id": 1, "name": "a"}), change({"id": 2, "name": "b"}))
    before = sink.table.schema().find_field("name").field_id
    sink.take(
        altered("ALTER TABLE customers RENAME COLUMN name TO label", {"id": "INT", "label": "TEXT"}),
        change({"id": 2, "name": "late"}, "u"),
        change({"id": 3, "label": "new"}),
    )
    assert columns(sink) == {"id": "long", "label": "string"}
    assert sink.table.schema().find_field("label").field_id == before
    assert sink.rows("id", "label") == [(1, "a"), (2, "late"), (3, "new")]


def test_a_schema_change_that_comes_again_changes_nothing(sink: Changing) -> None:
    sink.take(change({"id": 1, "a": "x"}))
    first = altered("ALTER TABLE customers CHANGE a b TEXT", {"id": "INT", "b": "TEXT"})
    second = altered("ALTER TABLE customers CHANGE b c TEXT", {"id": "INT", "c": "TEXT"})
    sink.take(first, second)
    location = sink.table.metadata_location
    sink.take(first, second)
    assert sink.table.metadata_location == location
    assert columns(sink) == {"id": "long", "c": "string"}


def test_a_column_that_gets_a_former_name_back_keeps_its_name_of_now(sink: Changing) -> None:
    sink.take(change({"id": 1, "a": "x"}))
    there = altered("ALTER TABLE customers CHANGE a b TEXT", {"id": "INT", "b": "TEXT"})
    back = altered("ALTER TABLE customers CHANGE b a TEXT", {"id": "INT", "a": "TEXT"})
    sink.take(there, back, change({"id": 2, "a": "y"}), change({"id": 3, "b": "z"}))
    assert sink.rows("id", "b") == [(1, "x"), (2, "y"), (3, "z")]
    assert columns(sink) == {"id": "long", "b": "string"}


def test_a_rename_behind_records_of_the_new_name_leaves_both_columns(
    sink: Changing, caplog: pytest.LogCaptureFixture
) -> None:
    sink.take(change({"id": 1, "a": "x"}), change({"id": 2, "b": "y"}))
    caplog.clear()
    sink.take(altered("ALTER TABLE customers CHANGE a b TEXT", {"id": "INT", "b": "TEXT"}))
    assert sink.rows("id", "a", "b") == [(1, "x", None), (2, None, "y")]
    (warning,) = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.startswith(
        "table db.t: the source has renamed 'a' to 'b', and the table has not: the table has both"
    )


@pytest.mark.parametrize("is_told", [True, False])
def test_a_new_column_of_a_former_name_takes_no_value_of_the_renamed_one(sink: Changing, is_told: bool) -> None:
    sink.take(change({"id": 1, "a": "x"}))
    sink.take(altered("ALTER TABLE customers CHANGE a b TEXT", {"id": "INT", "b": "TEXT"}))
    if is_told:
        sink.take(altered("ALTER TABLE customers ADD a TEXT", {"id": "INT", "b": "TEXT", "a": "TEXT"}))
    sink.take(change({"id": 2, "b": "y", "a": "z"}))
    sink.take(change({"id": 3, "a": "w"}))
    assert sink.rows("id", "b", "a") == [(1, "x", None), (2, "y", "z"), (3, None, "w")]


def test_a_dropped_column_stays(sink: Changing) -> None:
    sink.take(change({"id": 1, "a": "x"}))
    sink.take(altered("ALTER TABLE customers DROP a", {"id": "INT"}), change({"id": 2}), change({"id": 3, "a": "late"}))
    assert sink.rows("id", "a") == [(1, "x"), (2, None), (3, "late")]


def test_tables_of_other_topics_and_missing_tables_are_counted_alone(sink: Changing) -> None:
    sink.take(altered(None, {"id": "INT", "a": "TEXT"}))
    sink.take(change({"id": 1}))
    sink.take(altered(None, {"id": "INT", "b": "TEXT"}, '"inventory"."orders"'))
    assert columns(sink) == {"id": "long"}
    assert sink.counts == {"transform unwrap: schema change": 1}


def test_columns_that_only_records_can_tell_wait_for_them(sink: Changing) -> None:
    sink.take(change({"id": 1}))
    kinds = {"id": "INT", "d": "DECIMAL", "t": "DATETIME", "f": "FLOAT", "u": "BIGINT UNSIGNED", "b": "BLOB"}
    sink.take(altered(None, kinds))
    assert columns(sink) == {"id": "long"}


def test_an_id_column_keeps_its_name(sink: Changing, caplog: pytest.LogCaptureFixture) -> None:
    sink.take(change({"id": 1}))
    sink.take(altered("ALTER TABLE customers CHANGE id number INT", {"number": "INT"}))
    assert columns(sink) == {"id": "long", "number": "int"}
    assert "the settings name this column" in caplog.text


def test_names_and_routes_are_those_of_rows(tmp_path: Path) -> None:
    names = TransformSpec("names", "FieldNames", {"style": "snake"})
    unwrap = TransformSpec("unwrap", "DebeziumTransform", {"cdc.target.pattern": "lake.{table}"})
    routing = Routing(field="_cdc.target", dynamic=True)
    sink = Changing(
        tmp_path,
        RowMutations("_cdc.op"),
        evolution=FOLLOWING,
        transforms=(unwrap, names),
        routing=routing,
        name="lake.customers",
    )
    sink.take(change({"id": 1, "firstName": "x"}))
    renamed = altered(
        "ALTER TABLE customers CHANGE firstName givenName TEXT, ADD lastName TEXT",
        {"id": "INT", "givenName": "TEXT", "lastName": "TEXT"},
    )
    sink.take(renamed)
    assert columns(sink) == {"id": "long", "given_name": "string", "last_name": "string"}


def test_a_sink_that_does_not_follow_only_counts(tmp_path: Path) -> None:
    sink = Changing(tmp_path, CDC, evolution=Evolution(create=True, evolve=True), transforms=(DEBEZIUM,))
    sink.take(change({"id": 1}))
    sink.take(altered(None, {"id": "INT", "a": "TEXT"}))
    assert columns(sink) == {"id": "long"}


def test_schema_changes_and_rows_with_a_schema_are_followed_alike(tmp_path: Path) -> None:
    converters = TopicConverters(ConverterSpec("json"), ConverterSpec("json", {"schemas.enable": "true"}))
    sink = Changing(tmp_path, CDC, evolution=FOLLOWING, transforms=(DEBEZIUM,), converters=converters)
    sink.take(enveloped(change({"id": 1, "name": "a"})), enveloped(change({"id": 2, "name": "b"})))
    renamed = altered("ALTER TABLE customers CHANGE name label TEXT, ADD note TEXT", {"label": "TEXT", "note": "TEXT"})
    sink.take(enveloped(renamed), enveloped(change({"id": 2, "name": None}, "u")))
    sink.take(enveloped(change({"id": 3, "label": "c", "note": None})), enveloped(change({"id": 4, "name": "late"})))
    assert sink.rows("id", "label", "note") == [(1, "a", None), (2, None, None), (3, "c", None), (4, "late", None)]
    assert columns(sink) == {"id": "long", "label": "string", "note": "string"}


def test_a_rename_goes_before_rows_of_the_new_name_that_another_task_reads(tmp_path: Path) -> None:
    sink = Changing(tmp_path, CDC, evolution=FOLLOWING, transforms=(DEBEZIUM,), slots=2)
    sink.take(change({"id": 1, "a": "x"}))
    renamed = [altered(f"ALTER TABLE customers CHANGE {old} {new} TEXT", {new: "TEXT"}) for old, new in ("ab", "bc")]
    sink.take_all({0: [change({"id": i, "abc"[i % 3]: f"{i}"}) for i in range(2, 8)], 1: renamed})
    assert columns(sink) == {"id": "long", "c": "string"}
    assert sink.rows("id", "c") == [(1, "x"), *((i, f"{i}") for i in range(2, 8))]


def test_a_row_keeps_a_value_that_it_has_under_a_former_name(tmp_path: Path) -> None:
    keeping = RowMutations("_cdc.op", on_unavailable_value="keep")
    sink = Changing(tmp_path, keeping, evolution=FOLLOWING, transforms=(DEBEZIUM,))
    sink.take(change({"id": 1, "a": "large", "n": 1}), change({"id": 2, "a": "large", "n": 1}))
    left_out = keeping.unavailable_value_placeholder
    sink.take(altered("ALTER TABLE customers CHANGE a b TEXT", {"id": "INT", "b": "TEXT", "n": "INT"}))
    sink.take(change({"id": 1, "b": left_out, "n": 2}, "u"), change({"id": 2, "a": left_out, "n": 3}, "u"))
    assert sink.rows("id", "b", "n") == [(1, "large", 2), (2, "large", 3)]


def test_names_of_any_case_are_one_name_if_the_sink_says_so(tmp_path: Path) -> None:
    folding = replace(FOLLOWING, case_insensitive=True)
    sink = Changing(tmp_path, CDC, evolution=folding, transforms=(DEBEZIUM,))
    sink.take(change({"id": 1, "Name": "x"}))
    sink.take(altered("ALTER TABLE customers CHANGE name LABEL TEXT", {"ID": "INT", "LABEL": "TEXT", "NOTE": "TEXT"}))
    sink.take(change({"id": 2, "label": "y", "note": "z"}), change({"id": 3, "NAME": "late"}))
    assert sink.rows("id", "LABEL", "NOTE") == [(1, "x", None), (2, "y", "z"), (3, "late", None)]


def test_a_transform_that_refuses_a_schema_change_makes_no_record_bad(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = TransformSpec("names", "FieldNames", {"style": "snake"})
    sink = Changing(tmp_path, CDC, evolution=FOLLOWING, transforms=(DEBEZIUM, names))
    sink.take(change({"id": 1}))
    outcome = sink.take(altered(None, {"id": "INT", "userName": "TEXT", "user_name": "TEXT"}))
    assert (outcome.dead_letters, columns(sink)) == ((), {"id": "long"})
    assert sink.counts == {"transform unwrap: schema change": 1}
    assert "a schema change is ignored: transform 'names': the fields 'userName' and 'user_name'" in caplog.text


@pytest.mark.parametrize("source", [None, "text", {"name": 5}, {}])
def test_a_schema_change_without_a_source_is_counted_alone(sink: Changing, source: object) -> None:
    sink.take(change({"id": 1}))
    key, event = altered(None, {"id": "INT", "a": "TEXT"})
    outcome = sink.take((key, {**event, "source": source}))
    assert (outcome.dead_letters, columns(sink)) == ((), {"id": "long"})
    assert sink.counts == {"transform unwrap: schema change": 1}


def test_a_rename_that_another_writer_was_faster_with_leaves_what_that_writer_made(
    sink: Changing, caplog: pytest.LogCaptureFixture
) -> None:
    sink.take(change({"id": 1, "a": "x"}))
    commit, raced = Table._do_commit, [False]

    def slower(table: Table, *about: Any) -> None:
        if not raced[0]:
            raced[0] = True
            with sink.table.update_schema() as update:
                update.add_column("b", StringType())
        commit(table, *about)

    with mock.patch.object(Table, "_do_commit", slower):
        outcome = sink.take(altered("ALTER TABLE customers CHANGE a b TEXT", {"id": "INT", "b": "TEXT"}))
    sink.take(change({"id": 2, "a": "y"}), change({"id": 3, "b": "z"}))
    assert outcome.dead_letters == ()
    assert sink.rows("id", "a", "b") == [(1, "x", None), (2, "y", None), (3, None, "z")]
    assert "the source has renamed 'a' to 'b', and the table has not" in caplog.text
