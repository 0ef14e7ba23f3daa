"""Id columns that the keys of records name (``id-columns = @key``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calving.errors import BadRecordError, ConfigError
from calving.model.record_path import ConverterSpec, Evolution, Routing, Tolerance, TopicConverters, TransformSpec
from calving.model.tables import RowMutations
from tests.mutations.changing import NAME, Changing, Message

KEYED = RowMutations(upsert=True, by_key=True)
CDC = RowMutations("_cdc.op", by_key=True)
DEBEZIUM = TransformSpec("unwrap", "DebeziumTransform")


def upserts(folder: Path, mutations: RowMutations = KEYED, **more: Any) -> Changing:
    return Changing(folder, mutations, id_columns=(), **more)


def identifiers(sink: Changing, table: str = NAME) -> set[str]:
    return sink.catalog.load_table(table).schema().identifier_field_names()


def test_a_table_is_created_with_the_fields_of_its_records_keys(tmp_path: Path) -> None:
    sink = upserts(tmp_path)
    sink.take(({"tenant": "a", "id": 1}, {"id": 1, "v": "old", "tenant": "a"}))
    sink.take(
        ({"tenant": "a", "id": 1}, {"id": 1, "v": "new", "tenant": "a"}),
        ({"tenant": "b", "id": 1}, {"id": 1, "v": "other", "tenant": "b"}),
    )
    assert identifiers(sink) == {"id", "tenant"}
    assert sink.rows("tenant", "id", "v") == [("a", 1, "new"), ("b", 1, "other")]


def change(table: str, op: str, key: Any, row: Any) -> Message:
    source = {"db": "shop", "schema": "shop", "table": table}
    sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return key, {"op": op, "ts_ms": 1, "source": source, **sides}


def database(folder: Path, mutations: RowMutations = CDC) -> Changing:
    routing = Routing((), field="_cdc.target", dynamic=True)
    return upserts(folder, mutations, transforms=(DEBEZIUM,), routing=routing)


def rows_of(sink: Changing, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = sink.catalog.load_table(table).scan().to_arrow().to_pylist()
    return sorted(tuple(row[c] for c in columns) for row in found)


def test_each_table_of_a_database_has_the_primary_key_of_its_own(tmp_path: Path) -> None:
    sink = database(tmp_path)
    sink.take(
        change("customers", "c", {"id": 1}, {"id": 1, "name": "Ann"}),
        change("lines", "c", {"order": 7, "line": 1}, {"order": 7, "line": 1, "sku": "pear"}),
        change("lines", "c", {"order": 7, "line": 2}, {"order": 7, "line": 2, "sku": "plum"}),
    )
    sink.take(
        change("customers", "u", {"id": 1}, {"id": 1, "name": "Bob"}),
        change("lines", "d", {"order": 7, "line": 1}, {"order": 7, "line": 1, "sku": None}),
    )
    assert (identifiers(sink, "shop.customers"), identifiers(sink, "shop.lines")) == ({"id"}, {"order", "line"})
    assert rows_of(sink, "shop.customers", "id", "name") == [(1, "Bob")]
    assert rows_of(sink, "shop.lines", "order", "line", "sku") == [(7, 2, "plum")]


def test_a_tombstone_deletes_the_row_of_its_key(tmp_path: Path) -> None:
    sink = upserts(tmp_path, RowMutations(upsert=True, by_key=True, tombstones="delete"))
    sink.take(*(({"a": 1, "b": b}, {"a": 1, "b": b, "v": "x"}) for b in (1, 2)))
    sink.take(({"a": 1, "b": 2}, None))
    assert sink.rows("a", "b", "v") == [(1, 1, "x")]


def test_keys_with_a_schema_name_columns_too(tmp_path: Path) -> None:
    def typed(fields: dict[str, Any]) -> dict[str, Any]:
        kinds = [{"field": name, "type": "int64"} for name in fields]
        return {"schema": {"type": "struct", "fields": kinds}, "payload": fields}

    spec = ConverterSpec("json", {"schemas.enable": "true"})
    sink = upserts(tmp_path, converters=TopicConverters(spec, spec))
    sink.take((typed({"id": 1}), typed({"id": 1, "v": 1})))
    sink.take((typed({"id": 1}), typed({"id": 1, "v": 2})))
    assert (identifiers(sink), sink.rows("id", "v")) == ({"id"}, [(1, 2)])


WITHOUT = [None, "1", {}, {"id": None}]


@pytest.mark.parametrize("key", WITHOUT)
def test_a_record_without_a_key_stops_the_sink(tmp_path: Path, key: Any) -> None:
    reason = "the record's key names no columns, and the table would be created without id columns: let the source"
    with pytest.raises(BadRecordError, match=reason):
        upserts(tmp_path).take((key, {"id": 1}))


@pytest.mark.parametrize("key", WITHOUT)
def test_a_record_without_a_key_may_be_a_dead_letter(tmp_path: Path, key: Any) -> None:
    sink = upserts(tmp_path, RowMutations(upsert=True, by_key=True, on_missing_key="dead-letter"))
    reason = f"table {NAME}: the record's key names no columns, and "
    outcome = sink.take((key, {"id": 1}))
    assert sink.reasons(outcome) == [(0, reason + "the table would be created without id columns")]
    outcome = sink.take((key, {"id": 1}), ({"id": 2}, {"id": 2}))
    assert sink.reasons(outcome) == [(1, reason + "the rows of the table are identified by id")]
    assert sink.rows("id") == [(2,)]


def test_a_source_table_without_a_primary_key_may_be_appended_to(tmp_path: Path) -> None:
    sink = database(tmp_path, RowMutations("_cdc.op", by_key=True, on_missing_key="append"))
    sink.take(change("log", "c", None, {"v": 1}), change("customers", "c", {"id": 1}, {"id": 1}))
    sink.take(change("log", "u", None, {"v": 2}), change("log", "d", None, {"v": 2}))
    sink.take(change("customers", "d", {"id": 1}, {"id": 1}))
    assert rows_of(sink, "shop.log", "v") == [(1,), (2,), (2,)]
    assert (identifiers(sink, "shop.log"), rows_of(sink, "shop.customers", "id")) == (set(), [])


def test_a_record_with_another_key_than_the_tables_is_bad(tmp_path: Path) -> None:
    """Else the source's rows 1 of two tenants would be one row here."""
    sink = upserts(tmp_path)
    sink.take(({"id": 1}, {"id": 1, "tenant": "a"}))
    outcome = sink.take(({"id": 1, "tenant": "b"}, {"id": 1, "tenant": "b"}))
    assert sink.reasons(outcome) == [
        (
            1,
            f"table {NAME}: the record's key has the fields id, tenant, and the table's rows are identified by id: after"
            " a change of the source's primary key, change the table's identifier fields",
        )
    ]
    assert sink.rows("id", "tenant") == [(1, "a")]


def test_records_whose_keys_differ_create_no_table(tmp_path: Path) -> None:
    sink = upserts(tmp_path)
    outcome = sink.take(({"id": 1}, {"id": 1, "tenant": "a"}), ({"id": 1, "tenant": "b"}, {"id": 1, "tenant": "b"}))
    reason = "the keys of its records do not name the same id columns: id; id, tenant"
    assert [each.partition(f"table {NAME}: ")[2] for _, each in sink.reasons(outcome)] == [reason, reason]
    assert not sink.catalog.table_exists(NAME)


def test_a_key_whose_field_is_no_column_creates_no_table(tmp_path: Path) -> None:
    sink = upserts(tmp_path)
    outcome = sink.take(({"no": 1}, {"id": 1}))
    assert sink.reasons(outcome) == [(0, f"table {NAME}: the record has no value for the id-column 'no'")]


def test_a_transform_of_keys_comes_first(tmp_path: Path) -> None:
    spec = TransformSpec("key", "ValueToKey", {"fields": "id"})
    sink = upserts(tmp_path, transforms=(spec,))
    sink.take((None, {"id": 1, "v": "a"}))
    sink.take((None, {"id": 1, "v": "b"}))
    assert (identifiers(sink), sink.rows("id", "v")) == ({"id"}, [(1, "b")])


def test_case_may_differ_where_it_does_not_count(tmp_path: Path) -> None:
    sink = upserts(tmp_path, evolution=Evolution(create=True, case_insensitive=True))
    sink.take(({"ID": 1}, {"Id": 1, "v": "a"}))
    sink.take(({"id": 1}, {"ID": 1, "v": "b"}))
    assert [tuple(row.values()) for row in sink.table.scan(selected_fields=("v",)).to_arrow().to_pylist()] == [("b",)]


def test_a_table_that_exists_needs_identifier_fields(tmp_path: Path) -> None:
    Changing(tmp_path, None, id_columns=()).take(({"id": 1}, {"id": 1}))
    with pytest.raises(ConfigError, match="has no identifier fields, which id-columns = @key needs"):
        upserts(tmp_path).take(({"id": 2}, {"id": 2}))


@pytest.mark.parametrize("slots", [1, 3])
def test_tasks_agree_on_the_id_columns(tmp_path: Path, slots: int) -> None:
    sink = upserts(tmp_path, slots=slots, tolerance=Tolerance())
    sink.take_all({p: [({"id": i}, {"id": i, "p": p}) for i in range(p, 40, 3)] for p in range(3)})
    sink.take_all({p: [({"id": i}, {"id": i, "p": -1}) for i in range(p, 40, 6)] for p in range(3)})
    assert sink.rows("id", "p") == sorted(((i, -1 if i % 6 < 3 else i % 3) for i in range(40)), key=repr)
