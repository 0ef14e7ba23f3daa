"""Texts that are numbers or positions in a log compare as what they are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from calving.records.positions import _key, order_keys

ASCENDING = {
    "numbers": ["-10", "-9", "-1", "0", "2", "9", "10", "0010.5", "10.50001", "11", "9" * 30, "1" + "0" * 30],
    "Postgres": ["0/9", "0/10", "0/16B3748", "0/16b3749", "1/0", "A/0", "10/0", "FFFFFFFF/FFFFFFFF"],
    "SQL Server": ["00000027:00000ac0:0002", "00000027:00000AC0:0003", "00000027:00000ac1:0001", "00000028:0:1"],
    "Debezium's sequence": ['["9","8"]', '["9","10"]', '["10",null]', '["10","9"]', '["10","10"]', '["100","1"]'],
    "without a first commit": ['[null,"9"]', '[null,"10"]', '["1","2"]'],
    "binary log": ["mysql-bin.000003:154", "mysql-bin.000003:1000", "mysql-bin.000010:4", "mysql-bin.1000000:4"],
}


@pytest.mark.parametrize("texts", ASCENDING.values(), ids=ASCENDING)
def test_the_keys_ascend_as_the_numbers_and_positions_do(texts: list[str]) -> None:
    keys = order_keys(pa.array(texts), "parsed").to_pylist()
    assert None not in keys
    assert keys == sorted({*keys})


@pytest.mark.parametrize(
    ("one", "other"), [("7", "+007"), ("1.50", "1.5"), ("-0", "0"), ("0/A", "00/0a"), (" 3 ", "3")]
)
def test_other_spellings_are_the_same(one: str, other: str) -> None:
    first, second = order_keys(pa.array([one, other]), "parsed").to_pylist()
    assert first is not None
    assert first == second


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "abc",
            "2024-01-01T00:00:00Z",
            "-1.5",
            "1e5",
            "1.",
            "0x10",
            "[]",
            "[1",
            '["a"]',
            "[1.5]",
            "[[1]]",
            "[" * 900,
        ),
        *("3E11FA47-71CA-11E1-9E33-C80AA9429562:23", "1/2/3", "0/123456789", "9" * 1001, "0" * 100_000 + "x", "\uff11"),
    ],
    ids=lambda text: text[:30],
)
def test_other_texts_have_no_key(text: str) -> None:
    assert order_keys(pa.array([text, None]), "parsed").to_pylist() == [None, None]


ODD = ["", " 7", "-3", "2.5", "00", "0" * 38, "9" * 39, "0/0", "a/B", "1:2:3", "x.1:2", "x\n.1:2", "7\n", '[null, "0"]']
ODD += [
    '["00","1"]',
    '["1","2","3"]',
    "[null,null]",
    '[1,"2"]',
    "\u0663",
    "\x1c5",
    "2024-01-01",
    "a.b.07/08",
    "[]",
    "." * 300,
    "x" * 999 + ".1:2",
    "1.00",
    "007.500",
]


@pytest.mark.parametrize("first", [texts[0] for texts in ASCENDING.values()] + ODD, ids=repr)
def test_the_key_of_a_text_does_not_depend_on_the_texts_beside_it(first: str) -> None:
    texts = [first, None, *ODD, *(text for texts in ASCENDING.values() for text in texts)]
    alone = [order_keys(pa.array([text], pa.string()), "parsed")[0].as_py() for text in texts]
    one_by_one = [None if text is None else _key(text.strip()) for text in texts]
    assert order_keys(pa.array(texts), "parsed").to_pylist() == alone == one_by_one


def test_texts_that_are_declared_as_text_and_other_types_are_their_own_keys() -> None:
    texts, numbers = pa.array(["10", "9", "abc"]), pa.array([10, 9])
    assert order_keys(texts, "text") is texts
    assert order_keys(numbers, "parsed") is numbers
