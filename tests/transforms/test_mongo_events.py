"""Debezium's events of MongoDB become rows."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from calving.records.values import Records, objects
from calving.transforms.mongo_changes import changed
from tests.transforms.applying import apply, chain, records


def mongo(**event: Any) -> Records:
    return records({"op": "u", **event}, keys=[{"id": '{"$oid": "65"}'}])


def test_a_mongo_insert_becomes_a_struct() -> None:
    document = {
        "_id": {"$oid": "65"},
        "n": {"$numberLong": "5"},
        "d": {"$date": 1704196800000},
        "list": [{"$numberInt": "1"}, {"$numberInt": "2"}],
        "b": {"$binary": {"base64": "aGk=", "subType": "00"}},
        "min": {"$minKey": 1},
        "symbol": {"$symbol": "s"},
        "pointer": {"$dbPointer": {"$ref": "c", "$id": {"$oid": "66"}}},
        "undefined": {"$undefined": True},
    }
    found = objects(apply("MongoDebeziumTransform", {}, mongo(after=json.dumps(document))).value)[0]
    assert found["after"] == {
        "_id": "65",
        "n": 5,
        "d": datetime(2024, 1, 2, 12, tzinfo=UTC),
        "list": [1, 2],
        "b": b"hi",
        "min": "MinKey",
        "symbol": "s",
        "pointer": {"ref": "c", "id": "66"},
        "undefined": None,
    }
    assert "before" not in found


def test_numbers_that_json_lacks_are_read_as_debezium_writes_them() -> None:
    found = objects(apply("MongoDebeziumTransform", {}, mongo(after='{"a": NaN, "l": [1.5, -Infinity]}')).value)[0]
    assert math.isnan(found["after"]["a"])
    assert found["after"]["l"] == [1.5, -math.inf]


def test_a_regular_expression_has_the_same_fields_in_both_forms_of_extended_json() -> None:
    old, new = '{"$regex": "^a", "$options": "mi"}', '{"$regularExpression": {"pattern": "^a", "options": "mi"}}'
    found = objects(apply("MongoDebeziumTransform", {}, mongo(after=f'{{"r": [{old}, {new}]}}')).value)[0]
    assert found["after"]["r"] == [{"regex": "^a", "options": "im"}] * 2


def test_a_mongo_update_without_after_is_made_of_its_changes() -> None:
    changes = {"updatedFields": '{"a": 2}', "removedFields": ["b"]}
    found = objects(apply("MongoDebeziumTransform", {}, mongo(before='{"a":1,"b":1}', updateDescription=changes)).value)
    assert found[0]["after"] == {"a": 2, "_id": "65"}


def test_an_array_that_a_mongo_update_cuts_off_has_only_its_first_elements() -> None:
    cut: dict[str, Any] = {"updatedFields": '{"n": 2}', "truncatedArrays": [{"field": "l", "size": 1}]}
    before = '{"l": ["a", "b", "c"], "n": 1}'
    found = objects(apply("MongoDebeziumTransform", {}, mongo(before=before, updateDescription=cut)).value)
    assert found[0]["after"] == {"l": ["a"], "n": 2, "_id": "65"}


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({"updatedFields": '{"a.x": 5, "a.new.z": 6}'}, {"a": {"x": 5, "y": 2, "new": {"z": 6}}, "l": [{"n": 1}, 2]}),
        ({"updatedFields": '{"l.0.n": 5, "l.3": 9}'}, {"a": {"x": 1, "y": 2}, "l": [{"n": 5}, 2, None, 9]}),
        ({"removedFields": ["a.x", "l"]}, {"a": {"y": 2}}),
    ],
)
def test_a_document_before_a_mongo_update_is_changed_in_its_parts(changes: Any, after: Any) -> None:
    before = {"a": {"x": 1, "y": 2}, "l": [{"n": 1}, 2]}
    assert changed(before, changes) == (after, "row")


def test_a_mongo_update_of_what_the_document_before_it_lacks_is_bad() -> None:
    event = mongo(before='{"a": 1}', updateDescription={"updatedFields": '{"a.b": 1}'})
    assert "'a.b' was changed" in chain("MongoDebeziumTransform").apply(event).bad[0].reason


@pytest.mark.parametrize(
    ("kind", "options", "content"),
    [
        ("InsertField$Value", {"topic.field": "t"}, "partial row"),
        ("ReplaceField$Key", {"exclude": "x"}, "partial row"),
        ("ReplaceField$Value", {"exclude": "x"}, "changed fields"),
    ],
)
def test_only_some_transforms_leave_a_mongo_update_what_a_stored_row_completes(
    kind: str, options: dict[str, str], content: str
) -> None:
    update = mongo(updateDescription={"updatedFields": '{"a.b": 1}'})
    (made,) = chain("MongoDebeziumTransform").apply(update).records
    (left,) = chain(kind, options).apply(made).records
    assert (made.content, left.content) == ("partial row", content)


@pytest.mark.parametrize("cut", [{"field": "l"}, {"field": "l", "size": -1}, {"field": "n", "size": 1}, {"size": 1}])
def test_a_mongo_update_that_cuts_off_what_is_no_array_is_bad(cut: dict[str, Any]) -> None:
    changes = {"updatedFields": None, "truncatedArrays": [cut]}
    done = chain("MongoDebeziumTransform").apply(mongo(before='{"l": [1, 2], "n": 1}', updateDescription=changes))
    assert "truncatedArrays" in done.bad[0].reason


def test_mongo_arrays_of_several_kinds_are_bad_unless_taken_as_documents() -> None:
    event = mongo(after='{"_id": 1, "l": [1, "x"]}')
    assert "array_handling_mode" in chain("MongoDebeziumTransform").apply(event).bad[0].reason
    found = apply("MongoDebeziumTransform", {"array_handling_mode": "document"}, event)
    assert objects(found.value)[0]["after"]["l"] == {"_0": 1, "_1": "x"}


def test_what_is_no_mongo_event_is_bad() -> None:
    assert "not a MongoDB event" in chain("MongoDebeziumTransform").apply(records({"a": 1})).bad[0].reason


def test_an_array_of_documents_without_a_common_field_takes_too_many_places() -> None:
    text = "[" + ",".join(f'{{"f{i}":1}}' for i in range(4_000)) + "]"
    found = chain("MongoDebeziumTransform").apply(mongo(after=f'{{"l": {text}}}'))
    assert "iceberg.limits.cells" in found.bad[0].reason


def test_an_array_of_many_documents_of_one_kind_takes_few_places() -> None:
    text = "[" + ",".join(f'{{"f":{i}}}' for i in range(4_000)) + "]"
    assert not chain("MongoDebeziumTransform").apply(mongo(after=f'{{"l": {text}}}')).bad


def test_documents_of_an_array_have_the_fields_of_all() -> None:
    text = '[{"a": 1, "l": [null]}, {"b": {"c": 1}}, {"b": {"d": "x"}, "l": [{"$numberLong": "5"}], "a": 4294967296}]'
    found = objects(apply("MongoDebeziumTransform", {}, mongo(after=f'{{"l": {text}}}')).value)[0]["after"]["l"]
    assert found == [
        {"a": 1, "l": [None], "b": None},
        {"a": None, "l": None, "b": {"c": 1, "d": None}},
        {"a": 2**32, "l": [5], "b": {"c": None, "d": "x"}},
    ]
