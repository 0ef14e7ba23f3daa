"""Every transform answers as the Java class of its name does, but for the differences that the manual lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.java.cases import CASES, Case
from tests.java.differences import CONVERSION, CONVERTERS, DIFFERENCES
from tests.java.ours import differences, lean, transformed
from tests.java.reference import Java, Message, running

pytestmark = pytest.mark.java
_RECORDS = 60
_MANUAL = Path(__file__).parents[2] / "docs" / "records.md"


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    with running() as found:
        yield found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_transform_gives_what_java_gives(java: Java, case: Case) -> None:
    messages = case.make(Random(case.name), _RECORDS)
    theirs, ours = java.transform(case.kind, case.options, messages), transformed(case.kind, case.options, messages)
    assert not [
        f"{path}: Java {a}, we {b}, of {message.value}"
        for message, their, our in zip(messages, theirs, ours, strict=True)
        for path, a, b in differences(lean(our), lean(their))
        if not any(d.allows(case.kind, path, a, b, _text(message)) for d in DIFFERENCES)
    ]


def _text(message: Message) -> str:
    return f"{message.key} {message.value}"


def test_the_manual_lists_every_difference() -> None:
    manual = _MANUAL.read_text()
    assert not [d.row for d in (*DIFFERENCES, *CONVERTERS, *CONVERSION) if d.row not in manual]
