"""A table whose rows records could never change is refused before it is created."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.rules import TableRules, TableSettings
from calving.iceberg.tables import Tables
from calving.model.record_path import RouteRule, Routing
from calving.model.tables import RowMutations, SchemaChange
from calving.runtime.checks import refuse_missing_tables
from calving.services.rest_catalog import RestCatalog
from calving.settings.load import parse
from tests.mutations.changing import Changing

SOFT = RowMutations("op", delete_mode="soft")
ORDERED = RowMutations("op", order_field="lsn")
RECORD = {"id": 1, "op": "c"}


STATIC, DYNAMIC = Routing((RouteRule("db.t"),)), Routing(field="to", dynamic=True)


@pytest.mark.parametrize(
    ("settings", "sentences"),
    [
        (
            {"properties": {"format-version": "1"}},
            [
                "table db.t would be created with format version 1; row mutations need 2 or 3",
                "set iceberg.tables.auto-create-props.format-version = 2",
            ],
        ),
        (
            {"id_columns": ()},
            ["table db.t has no id columns", "iceberg.table.db.t.id-columns or iceberg.tables.default-id-columns"],
        ),
    ],
    ids=["version 1", "no id columns"],
)
def test_settings_by_which_records_could_not_change_a_table_create_none(
    tmp_path: Path, settings: dict[str, Any], sentences: list[str]
) -> None:
    sink = Changing(tmp_path, routing=STATIC, **settings)
    with pytest.raises(ConfigError) as refused:
        sink.take((None, RECORD))
    for sentence in sentences:
        assert sentence in str(refused.value)
    other = Changing(tmp_path, routing=DYNAMIC, **settings)
    ((_, reason),) = other.reasons(other.take((None, {**RECORD, "to": "db.t"})))
    for sentence in sentences:  # here any record can name a table, so that it alone is bad
        assert sentence.removeprefix("table db.t ") in reason
    assert sink.catalog.list_namespaces() == []


@pytest.mark.parametrize("routing", [STATIC, DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({}, "table db.t: the record has no value for the order-field 'lsn'"),
        ({"lsn": {"high": 1}}, "table db.t: the order-field 'lsn' cannot hold what the record has there"),
    ],
)
def test_a_record_without_a_single_order_value_creates_no_table_and_is_bad(
    tmp_path: Path, record: dict[str, Any], sentence: str, routing: Routing
) -> None:
    sink = Changing(tmp_path, ORDERED, routing=routing)
    ((_, reason),) = sink.reasons(sink.take((None, {**RECORD, **record, "to": "db.t"})))
    assert sentence in reason
    assert sink.catalog.list_namespaces() == []
    to = {**RECORD, "to": "db.t"}
    assert len(sink.reasons(sink.take((None, {**to, "lsn": 1}), (None, {**to, **record})))) == 1


def test_the_column_that_marks_deleted_rows_is_boolean_whatever_records_have_there(tmp_path: Path) -> None:
    sink = Changing(tmp_path, SOFT)
    outcome = sink.take(*((None, {**RECORD, "id": n, "_cdc_deleted": m}) for n, m in enumerate(["no", {"a": 1}, True])))
    assert [offset for offset, _ in sink.reasons(outcome)] == [0, 1]
    assert sink.rows("id", "_cdc_deleted") == [(2, False)]


def test_an_order_column_that_is_declared_is_created_although_the_first_records_lack_it(tmp_path: Path) -> None:
    sink = Changing(tmp_path, ORDERED, columns={"lsn": "long"})
    (reason,) = sink.reasons(sink.take((None, RECORD)))
    assert "field lsn is null or missing" in reason[1]
    sink.take((None, {**RECORD, "lsn": 7}))
    assert sink.rows("id", "lsn") == [(1, 7)]


def test_a_soft_delete_field_that_is_declared_as_boolean_is_created_from_text(tmp_path: Path) -> None:
    sink = Changing(tmp_path, SOFT, columns={"_cdc_deleted": "boolean"})
    sink.take((None, {**RECORD, "_cdc_deleted": "false"}))
    sink.take((None, {**RECORD, "_cdc_deleted": "false", "op": "d"}))
    assert sink.rows("id", "_cdc_deleted") == [(1, True)]


# Before a start

SETTINGS = {
    "name": "s",
    "topics": "t",
    "iceberg.tables": "db.t",
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.upsert-mode-enabled": "true",
    "iceberg.tables.default-id-columns": "id",
    "kafka.bootstrap.servers": "localhost:9092",
}
VERSION_1 = {"iceberg.tables.auto-create-props.format-version": "1"}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("c", {"type": "embedded", "warehouse": str(tmp_path)})


def check(catalog: Catalog, keys: dict[str, str]) -> list[tuple[str, bool]]:
    """As `calving validate` and the first start do."""
    return list(refuse_missing_tables(catalog, parse({**SETTINGS, **keys})))


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (VERSION_1, "table db.t would be created with format version 1; row mutations need 2 or 3"),
        (
            {"iceberg.tables.auto-create-props.format-version": "3", "iceberg.table.db.t.row-deletes": "equality"},
            "table db.t would be created with format version 3; row-deletes = equality is for version 2:"
            " set iceberg.tables.auto-create-props.format-version = 2 or row-deletes = positions",
        ),
        (
            {"iceberg.tables.default-id-columns": ""},
            "table db.t has no id columns: set iceberg.table.db.t.id-columns or iceberg.tables.default-id-columns",
        ),
        (
            {"iceberg.tables.delete-mode": "soft", "iceberg.table.db.t.columns": "_cdc_deleted text"},
            "table db.t: its soft-delete-field _cdc_deleted is string, not boolean",
        ),
    ],
)
def test_a_table_that_the_settings_alone_make_useless_is_refused_before_the_start(
    catalog: Catalog, keys: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        check(catalog, keys)


def test_the_version_of_new_tables_does_not_matter_to_a_table_that_exists(catalog: Catalog) -> None:
    catalog.create_namespace("db")
    catalog.create_table("db.t", Schema(NestedField(1, "id", LongType(), required=False)))
    assert check(catalog, VERSION_1) == [("db.t", True)]


def test_the_version_of_new_tables_does_not_matter_to_a_sink_that_creates_none(catalog: Catalog) -> None:
    keys = {"iceberg.tables.auto-create-enabled": "false", "iceberg.tables.on-missing-table": "skip"}
    assert check(catalog, VERSION_1 | keys) == [("db.t", False)]


def test_the_version_of_new_tables_does_not_matter_to_tables_that_are_appended_to(catalog: Catalog) -> None:
    assert check(catalog, VERSION_1 | {"iceberg.tables.upsert-mode-enabled": "false"}) == [("db.t", False)]


def test_a_soft_delete_field_of_text_in_a_table_that_exists_is_refused_before_the_start(catalog: Catalog) -> None:
    catalog.create_namespace("db")
    columns = (
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "_cdc_deleted", StringType(), required=False),
    )
    catalog.create_table("db.t", Schema(*columns))
    assert check(catalog, {}) == [("db.t", True)]
    with pytest.raises(ConfigError, match=r"table db\.t: its soft-delete-field _cdc_deleted is string, not boolean"):
        check(catalog, {"iceberg.tables.delete-mode": "soft"})


# REST catalogs


def create(catalog: Catalog, name: str, mutations: RowMutations, properties: dict[str, str]) -> None:
    rules = TableRules(create_properties=properties, defaults=TableSettings(id_columns=("id",), mutations=mutations))
    Tables(catalog, "c", rules).apply([SchemaChange(name, "create", type={"struct": {"id": "long"}})])


def test_a_table_of_version_3_is_not_created_for_equality_deletes(rest_uri: str) -> None:
    catalog, name = open_catalog("c", {"type": "rest", "uri": rest_uri}), f"refused.t{uuid4().hex}"
    mutations = RowMutations(upsert=True, row_deletes="equality")
    with pytest.raises(ConfigError, match=f"table {name} would be created with format version 3; row-deletes ="):
        create(catalog, name, mutations, {"format-version": "3"})
    assert not catalog.table_exists(name)


def test_no_table_is_created_with_the_version_1_that_the_catalog_says_is_its_default(rest_uri: str) -> None:
    properties = {"type": "rest", "uri": rest_uri, "table-default.format-version": "1"}
    catalog, name = open_catalog("c", properties), f"refused.t{uuid4().hex}"
    with pytest.raises(ConfigError, match=f"table {name} would be created with format version 1; row mutations need"):
        create(catalog, name, RowMutations(upsert=True), {})
    assert not catalog.table_exists(name)
    create(catalog, name, RowMutations(upsert=True), {"format-version": "2"})
    assert catalog.load_table(name).metadata.format_version == 2


@pytest.mark.services
def test_a_default_of_version_1_that_the_catalog_does_not_tell_is_overridden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_TABLE__DEFAULT_FORMAT__VERSION", "1")
    server = RestCatalog(tmp_path)
    try:
        catalog = open_catalog("c", {"type": "rest", "uri": server.uri})
        create(catalog, "db.t", RowMutations(upsert=True), {})
        assert catalog.load_table("db.t").metadata.format_version == 2
    finally:
        server.stop()
