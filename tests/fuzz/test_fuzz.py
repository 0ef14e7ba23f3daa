"""Fixed seeds of the fuzzer; ``make fuzz`` tries new ones."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from harness.forms import forms
from tests.fuzz import cases, work
from tests.fuzz.checks import Disagreement, check
from tests.fuzz.drawn import RARE
from tests.fuzz.plain import UnreadableError
from tests.fuzz.sink import Sink

_CASES, _RECORDS = 3, 40


@pytest.mark.parametrize("first", forms(range(0, 15, _CASES), [0, 6, 12]))
def test_a_record_becomes_what_the_manual_says_whatever_stands_beside_it(first: int, tmp_path: Path) -> None:
    sink = Sink(tmp_path / "warehouse")
    try:
        made = [cases.make(1, n) for n in range(first, first + _CASES)]
        found = {case.number: _check(case.only(case.places[:_RECORDS]), sink) for case in made}
    finally:
        sink.close()
    assert {n: disagreements for n, disagreements in found.items() if disagreements} == {}


_SCHEMAS = (68, 209, 411, 464, 177)
"""Cases with most of the types, units and converters that the others have not."""


_RARE = (2402, 551, 1098, 2439, 9434, 374, 118, 2042, 235, 243, 0, 113, 405, 9263, 753, 460, 2873)
"""Cases that together draw everything that is rare."""


def test_the_seeds_that_are_always_tried_draw_all_that_is_rare() -> None:
    drawn = frozenset[str]().union(*(cases.make(1, number).drawn for number in _RARE))
    assert sorted(drawn) == sorted(RARE)


@pytest.mark.parametrize("number", (*_SCHEMAS, *_RARE))
def test_a_value_becomes_what_its_schema_or_its_column_says(number: int, tmp_path: Path) -> None:
    case = cases.make(1, number)
    sink = Sink(tmp_path / "warehouse")
    try:
        assert _check(case.only(case.places[:12]), sink) == []
    finally:
        sink.close()


def _check(case: cases.Case, sink: Sink) -> list[Disagreement]:
    try:
        return check(case, sink)
    except UnreadableError:
        return []


_WAYS = [*work.ways()]


@pytest.mark.parametrize("way", [*_WAYS[:3], *_WAYS[3::9]], ids=lambda way: way.name)
def test_no_record_takes_much_more_work_than_a_harmless_one(way: work.Way) -> None:
    assert work.check(way, [3_000, 60_000], Random(way.name)) == []
