"""JSON within a text becomes a map or fields."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.transforms.applying import chain, records, values


def test_json_text_becomes_a_map_under_the_root() -> None:
    text = '{"a":1,"b":{"c":[1]},"d":"x"}'
    assert values("JsonToMapTransform", {"json.root": "true"}, text) == [
        {"payload": [("a", "1"), ("b", '{"c":[1]}'), ("d", "x")]}
    ]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("x", "x"),
        (True, True),
        (7, 7),
        (2**40, 2**40),
        (2**70, Decimal(2**70)),
        (1.5, 1.5),
        ({"b": 1}, [("b", "1")]),
        ([1, 2], [1, 2]),
        ([{"a": 1}], [[("a", "1")]]),
        ([1, "x", None], ["1", "x", "null"]),
        ([[1], [2]], [[1], [2]]),
        ([[1], ["x"]], [["1"], ["x"]]),
    ],
)
def test_json_text_becomes_fields(item: Any, expected: Any) -> None:
    found = values("JsonToMapTransform", {}, json.dumps({"a": item, "k": 1}))[0]["a"]
    assert found == expected


@pytest.mark.parametrize("item", [None, {}, [], [[], []]])
def test_json_that_says_nothing_is_no_field(item: Any) -> None:
    assert values("JsonToMapTransform", {}, json.dumps({"a": item, "k": 1})) == [{"k": 1}]


@pytest.mark.parametrize("text", ["[1]", "{", "5"])
def test_text_that_is_no_json_object_is_bad(text: str) -> None:
    assert [b.index for b in chain("JsonToMapTransform").apply(records('{"a":1}', text)).bad] == [1]
