"""A few hostile schemas, records and control events; ``make fuzz`` tries many."""

from __future__ import annotations

import pytest

from tests.fuzz.hostile import bounded


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_read_is_a_value_or_bad_and_takes_little(seed: int) -> None:
    assert bounded(seed, 0, 40) == []
