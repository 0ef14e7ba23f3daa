"""Every transform answers as the Java class of its name does, but for the differences that the manual lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from random import Random

import pytest

from tests.java.cases import CASES, REFUSED, Case
from tests.java.differences import EVERYWHERE, TRANSFORMS, Found, stale, unlisted
from tests.java.ours import differences, lean, transformed
from tests.java.reference import Java, Message, running
from tests.java.value_differences import CONVERSION, CONVERTERS

pytestmark = [pytest.mark.java, pytest.mark.services]
_RECORDS = 60
_MANUAL = Path(__file__).parents[2] / "docs" / "reference" / "records.md"
Compare = Callable[[Case], list[Found]]


@pytest.fixture(scope="module")
def compare() -> Iterator[Compare]:
    """Java's other answers; each case is asked once."""
    with running() as java:
        yield cache(partial(_compare, java))


def _compare(java: Java, case: Case) -> list[Found]:
    messages = case.make(Random(case.name), _RECORDS)
    theirs, ours = java.transform(case.kind, case.options, messages), transformed(case.kind, case.options, messages)
    return [
        Found(case.kind, path, a, b, _text(message))
        for message, their, our in zip(messages, theirs, ours, strict=True)
        for path, a, b in differences(lean(our), lean(their))
    ]


def _text(message: Message) -> str:
    return f"{message.key} {message.value}"


@pytest.mark.parametrize("case", [*CASES, *REFUSED], ids=lambda case: case.name)
def test_a_transform_gives_what_java_gives(compare: Compare, case: Case) -> None:
    assert not unlisted(compare(case), [*EVERYWHERE, *TRANSFORMS])


def test_every_difference_of_transforms_is_still_one(compare: Compare) -> None:
    assert not stale([*EVERYWHERE, *TRANSFORMS], [found for case in (*CASES, *REFUSED) for found in compare(case)])


def test_the_manual_lists_every_difference_and_why() -> None:
    manual = _MANUAL.read_text()
    assert not [d.row for d in (*EVERYWHERE, *TRANSFORMS, *CONVERTERS, *CONVERSION) if d.row not in manual]
