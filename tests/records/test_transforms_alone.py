"""What a transform makes of a record does not depend on the records beside it."""

from __future__ import annotations

import json
from random import Random

import pytest

from tests.java.cases import CASES, Case
from tests.java.ours import transformed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_record_becomes_the_same_alone(case: Case) -> None:
    messages = case.make(Random(f"alone {case.name}"), 24)
    together = transformed(case.kind, case.options, messages)
    alone = [transformed(case.kind, case.options, [message])[0] for message in messages]
    assert json.dumps(alone) == json.dumps(together)
