"""Digests of settings tell which workers would commit something else, and nothing of a value."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from uuid import UUID

import pytest

from calving.model.events import DataComplete, Envelope
from calving.model.members import MOST_KEYS, Member
from calving.model.tables import RowMutations
from calving.protocol.members import Members
from calving.settings.deciding import deciding_keys
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
        ("iceberg.tables.landing", "unpartitioned"),
        ("iceberg.table.db.orders.landing", "unpartitioned"),
        ("iceberg.tables.on-missing-table", "skip"),
        ("iceberg.tables.evolve-schema-enabled", "true"),
        ("iceberg.tables.default-commit-branch", "test"),
        ("iceberg.tables.write-props.write.format.default", "orc"),
        ("iceberg.limits.nesting", "5"),
        ("iceberg.source.on-data-loss", "skip"),
        ("iceberg.source.start", "latest"),
        ("topics", "orders,returns"),
        ("value.converter", "avro"),
        ("key.converter.schema.registry.url", "http://other"),
        ("iceberg.catalog.uri", "http://other:8181"),
        ("iceberg.tables.on-unrouted", "skip"),
    ],
)
def test_a_setting_that_decides_what_is_committed_is_named_if_it_differs(key: str, value: str) -> None:
    common = {"transforms": "flat", "transforms.flat.type": "org.apache.kafka.connect.transforms.Flatten$Value"}
    common |= {"key.converter": "avro", "key.converter.schema.registry.url": "http://registry"}
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
        ("iceberg.tables.landing", "partitioned"),
        ("iceberg.table.db.orders.landing", "partitioned"),
    ],
)
def test_settings_that_change_no_commit_may_differ(key: str, value: str) -> None:
    assert described(parse(BASE | {key: value}), "0.2.0", "h", "f") == member()


JSON = "org.apache.kafka.connect.json.JsonConverter"
TABLE = "iceberg.table.db.orders."


@pytest.mark.parametrize(
    ("settings", "written_out"),
    [
        ({}, {f"{TABLE}upsert-mode-enabled": "false", f"{TABLE}cdc-field": "", f"{TABLE}commit-branch": "main"}),
        ({}, {"iceberg.tables.default-commit-branch": "main"}),
        ({}, {"value.converter": "json", "value.converter.schemas.enable": "FALSE"}),
        ({}, {"value.converter": JSON, "value.converter.schemas.enable": "false"}),
        ({}, {"value.converter.decimal.format": "NUMERIC", "value.converter.converter.type": "value"}),
        ({}, {"iceberg.topic.orders.value.converter": "json", "iceberg.topic.orders.key.converter": "bytes"}),
        ({}, {"key.converter": "bytes", "key.converter.schemas.enable": "true"}),
        ({"value.converter": JSON}, {"value.converter.schemas.enable": "true"}),
        ({"value.converter": JSON}, {"value.converter.replace.null.with.default": "true"}),
        ({"key.converter": "string"}, {"key.converter.converter.encoding": "UTF-8"}),
        ({"iceberg.tables.default-id-columns": "id"}, {f"{TABLE}id-columns": "id"}),
        ({"iceberg.tables.default-partition-by": "day(ts)"}, {f"{TABLE}partition-by": "day(ts)"}),
        ({"iceberg.tables.default-commit-branch": "b"}, {f"{TABLE}commit-branch": "b"}),
        ({"iceberg.tables.upsert-mode-enabled": "true"}, {f"{TABLE}upsert-mode-enabled": "true"}),
        ({"iceberg.tables.upsert-mode-enabled": "true"}, {"iceberg.tables.inserts": "upsert"}),
        ({"iceberg.tables.upsert-mode-enabled": "true"}, {f"{TABLE}inserts": "upsert", f"{TABLE}order-field": ""}),
        (
            {f"{TABLE}upsert-mode-enabled": "true", f"{TABLE}row-deletes": "equality"},
            {f"{TABLE}inserts": "append", f"{TABLE}delete-mode": "hard"},
        ),
        ({"iceberg.tables.upsert-mode-enabled": "true"}, {"iceberg.tables.on-rollback": "stop"}),
        ({}, {f"{TABLE}on-rollback": "continue"}),
        ({"topics": "orders,returns"}, {"topics": "returns, orders"}),
        ({"iceberg.tables": "db.a,db.b"}, {"iceberg.tables": "db.b,db.a"}),
        ({}, {"iceberg.tables.look-ms": "1000"}),
    ],
)
def test_a_default_that_is_written_out_is_no_other_setting(
    settings: dict[str, str], written_out: dict[str, str]
) -> None:
    assert digests(parse(BASE | settings | written_out)) == digests(parse(BASE | settings))


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"iceberg.tables.upsert-mode-enabled": "true"}, {f"{TABLE}upsert-mode-enabled": "false"}),
        ({"iceberg.tables.default-commit-branch": "b"}, {f"{TABLE}commit-branch": "main"}),
        ({"iceberg.tables.default-id-columns": "id"}, {f"{TABLE}id-columns": "key"}),
        ({"iceberg.tables.upsert-mode-enabled": "true"}, {f"{TABLE}inserts": "append"}),
        ({"value.converter": JSON}, {"value.converter.schemas.enable": "false"}),
        ({"value.converter": "avro"}, {"iceberg.topic.orders.value.converter": "json"}),
        ({}, {f"{TABLE}columns": "ts timestamptz"}),
        ({}, {f"{TABLE}location": "s3://b/t"}),
    ],
)
def test_a_setting_against_a_default_is_another_one(settings: dict[str, str], changed: dict[str, str]) -> None:
    base, other = (
        described(parse(BASE | {"value.converter.schema.registry.url": "http://r"} | each), "", "h", "")
        if "avro" in each.values()
        else described(parse(BASE | each), "", "h", "")
        for each in (settings, settings | changed)
    )
    assert set(changed) <= set(base.differing(other))


def own_step(**options: str) -> dict[str, str]:
    """The keys of a user's own transform, with these options, in their order."""
    step = {"transforms": "t", "transforms.t.type": "tests.fuzz.own.Seen", "transforms.t.field": "seen"}
    return BASE | step | {f"transforms.t.{name}": text for name, text in options.items()}


def test_a_secret_option_of_a_transform_has_no_digest_of_its_own() -> None:
    first, second = (digests(parse(own_step(password=secret))) for secret in ("7391", "7392"))
    assert first == second


def test_an_option_of_a_transform_counts_as_it_is_written() -> None:
    assert digests(parse(own_step(flag="TRUE"))) != digests(parse(own_step(flag="true")))


def test_the_order_of_a_transforms_options_does_not_count() -> None:
    assert digests(parse(own_step(a="1", b="2"))) == digests(parse(own_step(b="2", a="1")))


def test_secrets_have_no_digest_of_their_own() -> None:
    first, second = (digests(parse(BASE | {"iceberg.catalog.credential": secret})) for secret in ("id:aaaa", "id:bbbb"))
    assert first == second


def many(count: int, **changed: str) -> Member:
    names = [f"db.t{i}" for i in range(count)]
    keys = {key: text for key, text in BASE.items() if key != "iceberg.tables"}
    keys |= {"iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "table"}
    for name in names:
        keys |= {f"iceberg.table.{name}.id-columns": "id", f"iceberg.table.{name}.commit-branch": "b"}
    return described(parse(keys | {key.replace("__", "."): value for key, value in changed.items()}), "0.2.0", "h", "f")


def test_many_keys_are_put_together_and_the_table_that_differs_is_named() -> None:
    first, second = many(40), many(40, **{"iceberg__table__db__t7__id-columns": "key"})
    assert first.differing(second) == ("iceberg.table.db.t7",)
    assert len(first.keys) <= MOST_KEYS


def test_workers_with_different_numbers_of_keys_compare_what_both_can_tell() -> None:
    few, some = many(20), many(40)
    assert few.level < some.level
    assert few.differing(some) == tuple(f"iceberg.table.db.t{i}" for i in sorted(range(20, 40), key=str))
    assert few.differing(many(2000)) == ("iceberg.table",)


LONG = "db." + "o" * 190


def of_long_table(**changed: str) -> Member:
    own = {"id-columns": "id", "partition-by": "day(ts)"} | {
        key.replace("_", "-"): text for key, text in changed.items()
    }
    keys = BASE | {"iceberg.tables": LONG} | {f"iceberg.table.{LONG}.{key}": text for key, text in own.items()}
    return described(parse(keys), "0.2.0", "h", "f")


@pytest.mark.parametrize(("key", "value"), [("cdc_field", "op"), ("commit_branch", "audit"), ("id_columns", "key")])
def test_each_key_of_a_table_with_a_long_name_has_a_digest_of_its_own(key: str, value: str) -> None:
    first, second = of_long_table(), of_long_table(**{key: value})
    assert first.settings != second.settings
    assert len(first.differing(second)) == 1


def test_the_keys_that_decide_where_and_how_files_are_committed_are_those_of_branches_and_row_mutations() -> None:
    deciding = deciding_keys(("db", "t"))
    assert {"iceberg.tables.default-commit-branch", "iceberg.table.db.t.commit-branch"} <= deciding
    assert {"iceberg.tables.default-id-columns", "iceberg.table.db.t.id-columns"} <= deciding
    assert {"iceberg.tables.upsert-mode-enabled", "iceberg.table.db.t.upsert-mode-enabled"} <= deciding
    assert len(deciding) == 2 * (2 + len(fields(RowMutations)) - 1)  # id-columns say whether keys name the columns


@pytest.mark.parametrize("most", [MOST_KEYS, 7, 0])
def test_a_table_with_a_long_name_waits_while_workers_commit_it_to_different_branches(most: int) -> None:
    own, other = of_long_table(), of_long_table(commit_branch="audit").within(most)
    members = Members(own)
    members.hear(Envelope(0, 0, DataComplete(UUID(int=1)), parts=0, member=other, sender="b"))
    assert members.disputed(own, [tuple(LONG.split("."))], deciding_keys)


def test_a_description_is_small_whatever_the_settings_are() -> None:
    topics = {f"iceberg.topic.t{i}.value.converter": "string" for i in range(2000)}
    every = {key: text for key, text in BASE.items() if key != "topics"} | {"topics.regex": "t.*"} | topics
    assert len(json.dumps(described(parse(every), "0.2.0", "h", "f").as_json())) < 8_000


def test_a_value_from_the_environment_counts_by_what_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "iceberg.catalog.uri"
    monkeypatch.setenv("CATALOG", BASE[key])
    assert digests(parse(BASE | {key: "${env:CATALOG}"})) == digests(parse(BASE))
    monkeypatch.setenv("CATALOG", "http://other:8181")
    assert digests(parse(BASE | {key: "${env:CATALOG}"}))[key] != digests(parse(BASE))[key]


def test_a_login_in_a_url_has_no_digest() -> None:
    first, second = (digests(parse(BASE | {"iceberg.catalog.uri": f"http://{u}@c:8181"})) for u in ("a:aaaa", "b:bbbb"))
    assert first == second


def test_options_of_transforms_count_though_an_error_would_not_show_them() -> None:
    step = {"transforms": "t", "transforms.t.type": "org.apache.kafka.connect.transforms.InsertField$Value"}
    step |= {"transforms.t.static.field": "tenant"}
    first, second = (
        described(parse(BASE | step | {"transforms.t.static.value": tenant}), "", "h", "")
        for tenant in ("acme", "globex")
    )
    assert first.differing(second) == ("transforms.t",)


@pytest.mark.parametrize(
    ("key", "letters"),
    [
        ("iceberg.catalog.warehouse", 8),
        ("iceberg.catalog.header.X-Pin", 2),
        ("transforms.t.static.field", 8),
        ("transforms.t.static.value", 2),
    ],
)
def test_the_digest_of_a_value_that_may_be_a_secret_is_too_short_to_guess_it(key: str, letters: int) -> None:
    step = {"transforms": "t", "transforms.t.type": "org.apache.kafka.connect.transforms.InsertField$Value"}
    made = digests(parse(BASE | {"transforms.t.static.field": "a"} | step | {key: "1234"}))
    assert len(made[key if key in made else "transforms.t"]) == letters


def test_the_reference_lists_the_keys_that_have_a_digest() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/stored-state.md").read_text()
    assert [prefix for prefix in COMMITTED if f"`{prefix}`" not in page] == []
