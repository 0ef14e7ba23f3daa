"""Which tables are mutation tables, as the settings say."""

from __future__ import annotations

import re

import pytest

from calving.errors import ConfigError
from calving.model.tables import RowMutations
from calving.settings.load import parse

BASE = {
    "name": "orders",
    "topics": "a",
    "iceberg.tables": "db.orders, db.log",
    "kafka.bootstrap.servers": "localhost:9092",
}
LETTERS = {"errors.tolerance": "all", "errors.deadletterqueue.table": "db.letters"}


def test_without_an_operation_and_without_upserts_tables_are_appended_to() -> None:
    assert parse(BASE).mutations("db.orders") is None


def test_the_keys_of_the_java_sink_mean_what_they_meant() -> None:
    assert parse({**BASE, "iceberg.tables.cdc-field": "_cdc.op"}).mutations("db.orders") == RowMutations("_cdc.op")
    upserts = parse({**BASE, "iceberg.tables.upsert-mode-enabled": "true"})
    assert upserts.mutations("db.orders") == RowMutations(upsert=True)


def test_a_table_may_differ_from_the_others() -> None:
    sink = parse(
        {
            **BASE,
            "iceberg.tables.cdc-field": "_cdc.op",
            "iceberg.tables.delete-mode": "soft",
            "iceberg.table.db.orders.delete-mode": "hard",
            "iceberg.table.db.orders.order-field": "_cdc.ts",
            "iceberg.table.db.log.cdc-field": "",
        }
    )
    assert sink.mutations("db.orders") == RowMutations("_cdc.op", order_field="_cdc.ts")
    assert sink.mutations("db.other") == RowMutations("_cdc.op", delete_mode="soft")
    assert sink.mutations("db.log") is None


def test_with_equality_deletes_inserts_append_unless_told_otherwise() -> None:
    equality = {**BASE, "iceberg.tables.cdc-field": "op", "iceberg.tables.row-deletes": "equality"}
    told = parse({**equality, "iceberg.tables.inserts": "upsert"})
    assert parse(equality).mutations("db.orders") == RowMutations("op", row_deletes="equality", inserts="append")
    assert told.mutations("db.orders") == RowMutations("op", row_deletes="equality", inserts="upsert")


def test_dead_letters_are_appended_to_their_table() -> None:
    assert parse({**BASE, **LETTERS, "iceberg.tables.cdc-field": "op"}).mutations("db.letters") is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {
                "iceberg.tables.cdc-field": "op",
                "iceberg.tables.row-deletes": "equality",
                "iceberg.tables.order-field": "lsn",
            },
            "iceberg.tables.order-field needs row-deletes = positions",
        ),
        (
            {
                "iceberg.tables.upsert-mode-enabled": "true",
                "iceberg.tables.tombstones": "delete",
                "iceberg.tables.order-field": "lsn",
            },
            "iceberg.tables.tombstones = delete and iceberg.tables.order-field = lsn exclude each other",
        ),
        (
            {
                "iceberg.tables.cdc-field": "op",
                "iceberg.tables.tombstones": "delete",
                "iceberg.table.db.orders.order-field": "lsn",
            },
            "iceberg.tables.tombstones = delete and iceberg.table.db.orders.order-field = lsn exclude each other",
        ),
        (
            {"iceberg.table.db.orders.delete-mode": "soft"},
            "iceberg.table.db.orders.delete-mode has no effect without a cdc-field or upsert-mode-enabled = true",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(change: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse({**BASE, **change})


ROUTED = {
    **BASE,
    "iceberg.tables": "",
    "iceberg.tables.topic-pattern": "lake.{topic}",
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.upsert-mode-enabled": "true",
}
IDS = {"iceberg.tables.default-id-columns": "id"}
VERSION = "iceberg.tables.auto-create-props.format-version"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {},
            "iceberg.tables.upsert-mode-enabled: the tables that records are routed to would be created without id"
            " columns, and no row could be changed: set iceberg.tables.default-id-columns, or"
            " iceberg.tables.auto-create-enabled = false",
        ),
        ({"iceberg.tables.cdc-field": "op"}, "iceberg.tables.cdc-field: the tables that records are routed to"),
        (
            {
                "iceberg.tables.topic-pattern": "",
                "iceberg.tables.dynamic-enabled": "true",
                "iceberg.tables.route-field": "to",
            },
            "iceberg.tables.upsert-mode-enabled: the tables that records are routed to",
        ),
        ({**IDS, VERSION: "1"}, f"{VERSION} = 1: the tables that records are routed to would be created with it; row"),
        (
            {**IDS, VERSION: "3", "iceberg.tables.row-deletes": "equality"},
            f"{VERSION} = 3: the tables that records are routed to would be created with it; row-deletes = equality is"
            " for version 2: set it to 2, or set iceberg.tables.auto-create-enabled = false",
        ),
    ],
)
def test_with_dynamic_routing_defaults_by_which_no_table_could_be_created_are_refused(
    change: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        parse({key: value for key, value in {**ROUTED, **change}.items() if value})


@pytest.mark.parametrize(
    "change",
    [
        IDS,
        {"iceberg.table.lake.a.id-columns": "id"},
        {"iceberg.tables.auto-create-enabled": "false", VERSION: "1"},
        {"iceberg.tables.upsert-mode-enabled": "false", VERSION: "1"},
        {**IDS, VERSION: "3"},
        {**IDS, "iceberg.tables.row-deletes": "equality"},
        {"iceberg.tables.topic-pattern": "", "iceberg.tables": "db.t", VERSION: "1"},
    ],
    ids=str,
)
def test_with_dynamic_routing_defaults_by_which_a_table_could_be_created_are_taken(change: dict[str, str]) -> None:
    parse({key: value for key, value in {**ROUTED, **change}.items() if value})


def test_dead_letters_are_not_replayed_over_newer_rows() -> None:
    """Rule M9."""
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dlq"}
    sink = parse({**BASE, **letters, "iceberg.tables.upsert-mode-enabled": "true"})
    with pytest.raises(ConfigError, match="replay would put old rows over newer ones; set order-field"):
        sink.replay()
    parse(
        {**BASE, **letters, "iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.order-field": "lsn"}
    ).replay()


@pytest.mark.parametrize(("key", "value"), [("columns", "a long"), ("cdc-field", "op"), ("delete-mode", "soft")])
def test_keys_of_tables_of_records_are_refused_for_the_dead_letter_table(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"iceberg\.table\.db\.letters\.{key} has no effect: its columns are fixed"):
        parse({**BASE, **LETTERS, f"iceberg.table.db.letters.{key}": value})


def test_an_order_field_and_inserts_that_append_exclude_each_other() -> None:
    keys = {"iceberg.tables.cdc-field": "op", "iceberg.tables.order-field": "n", "iceberg.tables.inserts": "append"}
    with pytest.raises(ConfigError, match="order-field and inserts = append exclude each other"):
        parse({**BASE, **keys})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"iceberg.tables.row-deletes": "equality"}, "needs row-deletes = positions"),
        ({"iceberg.tables.inserts": "append"}, "and inserts = append exclude each other"),
        ({"iceberg.tables.order-field": "n"}, "and order-field exclude each other"),
    ],
    ids=["equality deletes", "appended inserts", "an order field"],
)
@pytest.mark.parametrize("key", ["on-unavailable-value", "unset-fields"])
def test_stored_values_cannot_be_kept_beside(change: dict[str, str], why: str, key: str) -> None:
    keys = {"iceberg.tables.cdc-field": "op", f"iceberg.tables.{key}": "keep"}
    with pytest.raises(ConfigError, match=f"{key} = keep {why}"):
        parse({**BASE, **keys, **change})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"row-deletes": "equality"}, "history = on needs row-deletes = positions"),
        ({"inserts": "append"}, "history = on and inserts = append exclude each other"),
        ({"delete-mode": "soft"}, "history = on and delete-mode = soft exclude each other"),
        ({"on-truncate": "delete"}, "history = on and on-truncate = delete exclude each other"),
        ({"on-unavailable-value": "keep"}, "history = on and on-unavailable-value = keep exclude each other"),
        ({"unset-fields": "keep"}, "history = on and unset-fields = keep exclude each other"),
        ({"order-field": "Valid_From"}, "history = on and order-field = Valid_From exclude each other"),
    ],
)
def test_versions_cannot_be_kept_beside(change: dict[str, str], sentence: str) -> None:
    keys = {"iceberg.tables.cdc-field": "op", "iceberg.tables.history": "on"}
    own = {f"iceberg.table.db.orders.{key}": value for key, value in change.items()}
    with pytest.raises(ConfigError, match=f"iceberg.table.db.orders.{sentence}"):
        parse({**BASE, **keys, **own})


def test_a_table_to_which_rows_are_only_added_keeps_no_versions() -> None:
    with pytest.raises(ConfigError, match=r"iceberg\.table\.db\.orders\.history has no effect without a cdc-field"):
        parse({**BASE, "iceberg.table.db.orders.history": "on"})


def test_an_order_type_needs_an_order_field() -> None:
    keys = {"iceberg.tables.cdc-field": "op", "iceberg.table.db.orders.order-type": "text"}
    with pytest.raises(
        ConfigError, match=r"iceberg\.table\.db\.orders\.order-type has no effect without an order-field"
    ):
        parse({**BASE, **keys})


@pytest.mark.parametrize("kind", ["DebeziumTransform", "org.apache.iceberg.connect.transforms.DmsTransform"])
@pytest.mark.parametrize(
    ("more", "warns"),
    [
        ({}, True),
        ({"iceberg.tables.cdc-field": "_cdc.op"}, False),
        ({"iceberg.tables.tombstones": "delete"}, False),
        ({"iceberg.tables.upsert-mode-enabled": "false"}, False),
    ],
)
def test_upserts_without_the_operation_that_a_transform_makes_are_warned_about(
    caplog: pytest.LogCaptureFixture, kind: str, more: dict[str, str], warns: bool
) -> None:
    chain = {"transforms": "unwrap", "transforms.unwrap.type": kind, "iceberg.tables.upsert-mode-enabled": "true"}
    parse({**BASE, **chain, **more})
    assert ("transform 'unwrap' puts the operation into _cdc.op: set iceberg.tables.cdc-field" in caplog.text) is warns


def test_the_keys_of_records_may_name_the_id_columns() -> None:
    sink = parse(
        {
            **BASE,
            "iceberg.tables.cdc-field": "op",
            "iceberg.tables.default-id-columns": "@key",
            "iceberg.table.db.log.id-columns": "at",
        }
    )
    assert (sink.mutations("db.orders"), sink.id_columns("db.orders")) == (RowMutations("op", by_key=True), ())
    assert (sink.mutations("db.log"), sink.id_columns("db.log")) == (RowMutations("op"), ("at",))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"row-deletes": "equality"}, "on-truncate = delete needs row-deletes = positions"),
        ({"order-field": "seq"}, "on-truncate = delete and order-field exclude each other"),
        ({"delete-mode": "soft"}, "on-truncate = delete and delete-mode = soft exclude each other"),
        ({"truncate-field": "tenant", "on-truncate": "skip"}, "truncate-field has no effect without on-truncate"),
        ({"truncate-field": "tenant", "unset-fields": "keep"}, "truncate-field and unset-fields = keep exclude each"),
        ({"truncate-field": "t", "on-unavailable-value": "keep"}, "truncate-field and on-unavailable-value = keep"),
    ],
)
def test_a_truncate_event_empties_only_tables_whose_rows_are_deleted_in_order(
    change: dict[str, str], sentence: str
) -> None:
    emptying = {**BASE, "iceberg.tables.cdc-field": "op", "iceberg.tables.on-truncate": "delete"}
    own = {f"iceberg.table.db.orders.{key}": value for key, value in change.items()}
    with pytest.raises(ConfigError, match=f"iceberg.table.db.orders.{sentence}"):
        parse({**emptying, **own})


def test_a_truncate_field_of_all_tables_holds_for_those_whose_truncate_events_delete_rows() -> None:
    of_all = {"iceberg.tables.cdc-field": "op", "iceberg.tables.truncate-field": "tenant"}
    own = {"iceberg.table.db.orders.on-truncate": "delete", "iceberg.table.db.log.on-truncate": "skip"}
    sink = parse({**BASE, **of_all, **own})
    fields = [mutations.truncate_field for name in ("db.orders", "db.log") if (mutations := sink.mutations(name))]
    assert fields == ["tenant", None]
    with pytest.raises(ConfigError, match=r"iceberg\.tables\.truncate-field has no effect without on-truncate"):
        parse({**BASE, **of_all})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"iceberg.tables.cdc-field": "op", "iceberg.table.db.orders.id-columns": "@key, id"},
            "iceberg.table.db.orders.id-columns: @key stands alone: the id columns are then all fields of the records'"
            " keys",
        ),
        (
            {"iceberg.tables.cdc-field": "op", "iceberg.tables.default-id-columns": "id, @key"},
            "iceberg.tables.default-id-columns: @key stands alone: the id columns are then all fields of the records'"
            " keys",
        ),
        (
            {"iceberg.tables.cdc-field": "op", "iceberg.table.db.orders.on-missing-key": "append"},
            "iceberg.table.db.orders.on-missing-key has no effect without id-columns = @key",
        ),
        (
            {"iceberg.table.db.orders.id-columns": "@key"},
            "iceberg.table.db.orders.id-columns = @key has no effect without a cdc-field or upsert-mode-enabled = true",
        ),
    ],
)
def test_id_columns_of_keys_stand_alone_in_mutation_tables(change: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        parse({**BASE, **change})
