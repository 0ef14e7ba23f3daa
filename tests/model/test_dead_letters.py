"""Dead letters that are too large for their topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from calving.model.dead_letters import LEFT_OUT, DeadLetter, Stage, left_out
from calving.model.sink import DeadLetterTopic
from calving.source import producing

LETTER = DeadLetter("t", 2, 7, None, b"key", b"value", (("h", b"12"),), Stage.CONVERSION, "UnfitError", "a reason")
PLACE = {"topic": "t", "partition": 2, "offset": 7}


def smaller(letter: DeadLetter) -> Iterator[tuple[bytes | None, bytes | None, list[str], dict[str, object]]]:
    """Value, key, names of headers, and what is left out of each smaller letter."""
    while (less := letter.smaller()) is not None:
        letter = less
        headers = dict(letter.headers)
        yield letter.value, letter.key, [*headers], json.loads(headers[LEFT_OUT] or b"")


def test_a_letter_leaves_out_its_value_then_its_key_then_the_headers_of_its_record() -> None:
    assert [*smaller(LETTER)] == [
        (None, b"key", ["h", LEFT_OUT], {**PLACE, "value": 5}),
        (None, None, ["h", LEFT_OUT], {**PLACE, "value": 5, "key": 3}),
        (None, None, [LEFT_OUT], {**PLACE, "value": 5, "key": 3, "headers": 3}),
    ]


def test_a_letter_that_is_written_again_still_says_what_it_lacks() -> None:
    headers = ((LEFT_OUT, b'{"value": 90}'),)
    lacking = replace(LETTER, value=None, headers=headers, left_out=left_out(headers))
    (less,) = smaller(lacking)
    assert less == (None, None, [LEFT_OUT], {**PLACE, "value": 90, "key": 3})


@pytest.mark.parametrize(
    "forged",
    [
        b"[\xff",
        None,
        b"[" * 5000,
        b'{"topic": "payroll", "partition": 3, "offset": 1, "value": 9}',
        json.dumps({"a": "x" * 1_000_000}).encode(),
    ],
    ids=["damaged", "null", "nested", "another place", "large"],
)
def test_a_header_of_the_name_that_the_record_has_is_replaced(forged: bytes | None) -> None:
    odd = replace(LETTER, headers=((LEFT_OUT, forged), (LEFT_OUT, None)))
    assert next(smaller(odd)) == (None, b"key", [LEFT_OUT], {**PLACE, "value": 5})


def test_a_record_of_nothing_but_a_large_header_of_the_name_becomes_small() -> None:
    bare = replace(LETTER, key=None, value=None, headers=((LEFT_OUT, b"x" * 1_000_000),))
    assert [*smaller(bare)] == [(None, None, [LEFT_OUT], {**PLACE, "headers": 1_000_000 + len(LEFT_OUT)})]


@pytest.mark.parametrize(
    ("said", "believed"),
    [
        (b'{"topic": "t", "value": 90, "key": 0, "more": 1}', {"value": 90, "key": 0}),
        (b'{"value": -1, "key": 1.5, "headers": true}', {}),
        (b'{"value": 9223372036854775808, "key": 9223372036854775807}', {"key": 2**63 - 1}),
        (b'{"value": 90' + b" " * 1024 + b"}", {}),
        (b"[" * 1024, {}),
        (b"[90]", {}),
    ],
    ids=["sizes", "no sizes", "bounds", "too long", "nested", "a list"],
)
def test_the_sizes_in_the_header_of_a_letter_are_believed(said: bytes, believed: dict[str, int]) -> None:
    assert left_out(((LEFT_OUT, said),)) == believed


def test_a_letter_that_no_request_holds_is_sent_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "_MOST_BYTES", 400)
    large = replace(LETTER, value=b"v" * 500)
    (record,) = producing.records([large], DeadLetterTopic("dead", context_headers=False), "sink")
    assert (record.value, record.key, dict(record.headers)[LEFT_OUT]) == (
        None,
        b"key",
        json.dumps({**PLACE, "value": 500}).encode(),
    )


@pytest.mark.parametrize("key", ["compression.type", "compression.codec"])
def test_records_are_compressed_as_the_user_says(key: str) -> None:
    given = producing.producer_config({key: "none"})
    assert {name: said for name, said in given.items() if name.startswith("compression")} == {key: "none"}


def test_records_are_compressed_by_default() -> None:
    assert producing.producer_config({})["compression.type"] == "gzip"
