"""Which tables are mutation tables, as the settings say."""

from __future__ import annotations

import pytest

from calving.errors import ConfigError
from calving.model.mutations import RowMutations
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


def test_dead_letters_are_not_replayed_over_newer_rows() -> None:
    """Rule M9."""
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dlq"}
    sink = parse({**BASE, **letters, "iceberg.tables.upsert-mode-enabled": "true"})
    with pytest.raises(ConfigError, match="replay would put old rows over newer ones; set order-field"):
        sink.replay()
    parse(
        {**BASE, **letters, "iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.order-field": "lsn"}
    ).replay()
