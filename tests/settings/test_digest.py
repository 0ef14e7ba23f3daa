"""Digests of settings tell which workers would commit something else, and nothing of a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from calving.model.members import Member
from calving.settings.digest import COMMITTED, described, digests
from calving.settings.load import parse

BASE = {
    "name": "orders",
    "topics": "orders",
    "kafka.bootstrap.servers": "kafka:9092",
    "iceberg.tables": "db.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://catalog:8181",
}


def member(**changed: str) -> Member:
    return described(parse(BASE | {key.replace("__", "."): value for key, value in changed.items()}), "0.2.0", "h", "f")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("iceberg.tables.upsert-mode-enabled", "true"),
        ("iceberg.table.db.orders.id-columns", "id"),
        ("iceberg.tables.on-missing-table", "skip"),
        ("iceberg.tables.evolve-schema-enabled", "true"),
        ("iceberg.tables.default-commit-branch", "test"),
        ("iceberg.tables.write-props.write.format.default", "orc"),
        ("iceberg.limits.nesting", "5"),
        ("topics", "orders,returns"),
        ("value.converter", "avro"),
        ("value.converter.schema.registry.url", "http://other"),
        ("transforms.flat.delimiter", "_"),
        ("iceberg.catalog.uri", "http://other:8181"),
        ("iceberg.tables.on-unrouted", "skip"),
    ],
)
def test_a_setting_that_decides_what_is_committed_is_named_if_it_differs(key: str, value: str) -> None:
    common = {"transforms": "flat", "transforms.flat.type": "org.apache.kafka.connect.transforms.Flatten$Value"}
    base = described(parse(BASE | common), "0.2.0", "h", "f")
    other = described(parse(BASE | common | {key: value}), "0.2.0", "h", "f")
    assert base.settings != other.settings
    assert base.differing(other) == (key,)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("iceberg.control.commit.interval-ms", "1000"),
        ("spark.executor.memory", "4g"),
        ("iceberg.http.port", "8080"),
        ("kafka.fetch.min.bytes", "1000"),
        ("iceberg.tables.on-unrouted", "fail"),
        ("iceberg.tables.dynamic-enabled", "FALSE"),
    ],
)
def test_settings_that_change_no_commit_may_differ(key: str, value: str) -> None:
    assert described(parse(BASE | {key: value}), "0.2.0", "h", "f") == member()


def test_secrets_have_no_digest_of_their_own() -> None:
    first, second = (digests(parse(BASE | {"iceberg.catalog.credential": secret})) for secret in ("id:aaaa", "id:bbbb"))
    assert first == second


def test_the_keys_of_many_tables_have_one_digest_for_each_table() -> None:
    names = [f"db.t{i}" for i in range(200)]
    many = BASE | {"iceberg.tables": ",".join(names)}
    for name in names:
        many |= {f"iceberg.table.{name}.id-columns": "id", f"iceberg.table.{name}.commit-branch": "b"}
    first = described(parse(many), "0.2.0", "h", "f")
    second = described(parse(many | {"iceberg.table.db.t7.id-columns": "key"}), "0.2.0", "h", "f")
    assert first.differing(second) == ("iceberg.table.db.t7",)
    assert len(first.keys) < 250


def test_the_reference_lists_the_keys_that_have_a_digest() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/stored-state.md").read_text()
    assert [prefix for prefix in COMMITTED if f"`{prefix}`" not in page] == []
