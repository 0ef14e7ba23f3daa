"""Records on their way from a topic to tables: converters, transforms, routes, dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from calving.errors import BadRecordError
from calving.model.record_path import (
    ConverterSpec,
    Evolution,
    RouteRule,
    Routing,
    Tolerance,
    TopicConverters,
    TransformSpec,
)
from calving.runtime.batch import ErrorLimits
from harness.registry import avro, serving
from harness.topic import Topic
from tests.tasks.conftest import Plane, encode

Topics = Callable[..., Topic]


def test_a_chain_of_transforms_shapes_the_rows_and_keeps_every_record_counted(plane: Plane, topic: Topics) -> None:
    source = topic()
    source.send(*encode({"a": {"id": 1}, "s": "x"}, {"a": {"id": 2}, "s": "y"}), b"null", None)
    plane.transforms = (
        TransformSpec("f", "Flatten", {"delimiter": "_"}),
        TransformSpec("m", "KafkaMetadataTransform", {"field_name": "k"}),
        TransformSpec("q", "Sql", {"query": "SELECT a_id AS id, upper(s) AS s, k_offset FROM records WHERE a_id > 1"}),
    )
    outcome = plane.take(source)
    assert plane.rows().to_pylist() == [{"id": 2, "s": "Y", "k_offset": 1}]
    assert outcome.records == 4


def test_avro_of_two_schemas_evolves_the_table(plane: Plane, topic: Topics) -> None:
    source = topic()
    old: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    new: dict[str, Any] = {
        "type": "record",
        "name": "R",
        "fields": [*old["fields"], {"name": "n", "type": ["null", "string"]}],
    }
    new["fields"][0] = {"name": "id", "type": "long"}
    with serving() as registry:
        a, b = registry.register("s", json.dumps(old)), registry.register("s", json.dumps(new))
        plane.converters = {"": TopicConverters(value=ConverterSpec("avro", {"schema.registry.url": registry.url}))}
        source.send(avro(a, old, {"id": 1}))
        plane.take(source)
        source.send(avro(b, new, {"id": 2**40, "n": "x"}))
        plane.take(source, {0: (1, 2)})
    rows = sorted(plane.rows().to_pylist(), key=lambda r: r["id"])
    assert rows == [{"id": 1, "n": None}, {"id": 2**40, "n": "x"}]
    column = plane.catalog.load_table("db.t").schema().find_field("id")
    assert (str(column.field_type), column.required) == ("long", True)


def test_one_sink_feeds_a_table_for_each_topic(plane: Plane, topic: Topics) -> None:
    plane.routing = Routing(topic_pattern="lake.{1}", topic_regex=r"(x\d+)-.*")
    source = topic()
    source.send(*encode({"id": 1}))
    plane.take(source)
    assert plane.rows(f"lake.{source.name.split('-')[0]}").to_pylist() == [{"id": 1}]


def test_a_topic_that_its_regex_does_not_match_is_unrouted(plane: Plane, topic: Topics) -> None:
    plane.routing = Routing(topic_pattern="lake.{topic}", topic_regex="other", unrouted="fail")
    source = topic()
    source.send(*encode({"id": 1}))
    with pytest.raises(BadRecordError, match=f"no route takes its topic '{source.name}'"):
        plane.read(source)


def test_bad_records_in_any_place_become_dead_letters_and_the_others_rows(plane: Plane, topic: Topics) -> None:
    first, source = topic(), topic()
    first.send(*encode({"id": -1}))
    plane.take(first)
    plane.tolerance = Tolerance("topic")
    good = [{"id": i} for i in range(1000)]
    values = encode(*good)
    bad = {0: b"{", 5: b'{"id":"x"}', 500: b"\xff", 999: b"[1]"}
    for place, value in bad.items():
        values[place] = value
    source.send(*values, key=b"k", headers=[("h", b"v")])
    outcome = plane.take(source)
    assert sorted(plane.rows()["id"].to_pylist()) == [-1, *(i for i in range(1000) if i not in bad)]
    assert {letter.offset: letter.value for letter in outcome.dead_letters} == bad
    letter = outcome.dead_letters[0]
    assert (letter.key, letter.headers, letter.topic) == (b"k", (("h", b"v"),), source.name)


def test_a_batch_of_only_poison_writes_nothing_and_loses_nothing(plane: Plane, topic: Topics) -> None:
    source = topic()
    plane.tolerance = Tolerance("topic")
    source.send(*[b"{"] * 50)
    outcome = plane.read(source)
    assert (outcome.written, len(outcome.dead_letters)) == ({}, 50)


def test_a_record_that_one_of_its_tables_cannot_take_goes_to_none(plane: Plane, topic: Topics) -> None:
    for table, value in (("db.a", 1), ("db.b", True)):
        plane.routing = Routing((RouteRule(table),))
        first = topic()
        first.send(*encode({"id": value}))
        plane.take(first)
    plane.routing = Routing((RouteRule("db.a"), RouteRule("db.b")))
    plane.tolerance = Tolerance("topic")
    source = topic()
    source.send(*encode({"id": 2}, {"id": "true"}))
    outcome = plane.take(source)
    assert [letter.offset for letter in outcome.dead_letters] == [0, 1]
    assert plane.rows("db.a")["id"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("errors", "key"),
    [
        (ErrorLimits(10, share=1.0), "errors.max-per-batch"),
        (ErrorLimits(10_000, share=0.1, share_from=5), "errors.max-share"),
    ],
)
def test_too_many_bad_records_stop_the_sink_instead(plane: Plane, topic: Topics, errors: ErrorLimits, key: str) -> None:
    source = topic()
    plane.tolerance, plane.errors = Tolerance("topic"), errors
    source.send(*encode(*({"id": i} for i in range(50))), *[b"{"] * 20)
    with pytest.raises(BadRecordError, match=f"20 of 70 records are bad, more than {key}"):
        plane.read(source)


@pytest.mark.parametrize(
    ("bad", "read", "said"),
    [(1, 1, "1 of 1 record is bad"), (1, 2, "1 of 2 records is bad"), (2, 3, "2 of 3 records are bad")],
)
def test_the_error_of_too_many_bad_records_counts_them(bad: int, read: int, said: str) -> None:
    with pytest.raises(BadRecordError) as error:
        ErrorLimits(0, share=1.0).check(bad, read, "here")
    assert str(error.value) == f"{said}, more than errors.max-per-batch = 0 allows; the first: here"


def test_dead_letters_may_go_to_a_table(plane: Plane, topic: Topics) -> None:
    source = topic()
    plane.tolerance = Tolerance("table", "db.dead")
    source.send(*encode({"id": 1}), b"{", *encode({"id": 2}))
    plane.take(source)
    assert sorted(plane.rows()["id"].to_pylist()) == [1, 2]
    (dead,) = plane.rows("db.dead").to_pylist()
    assert (dead["topic"], dead["offset"], dead["value"], dead["stage"]) == (source.name, 1, b"{", "VALUE_CONVERTER")


def test_unrouted_records_and_missing_tables_may_become_dead_letters(plane: Plane, topic: Topics) -> None:
    plane.evolution = Evolution()
    plane.routing = Routing((RouteRule("db.none", "a"),), "kind", unrouted="dead-letter", missing_table="dead-letter")
    plane.tolerance = Tolerance("topic")
    source = topic()
    source.send(*encode({"kind": "a"}, {"kind": "b"}))
    outcome = plane.read(source)
    assert [letter.error for letter in outcome.dead_letters] == ["MissingTableError", "UnroutedError"]
