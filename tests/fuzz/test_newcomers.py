"""Records that name new tables, a few of them always; ``make fuzz`` tries new ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import newcomers


@pytest.mark.parametrize("number", range(8))
def test_no_record_that_names_a_new_table_stops_the_sink_or_another_table(number: int, tmp_path: Path) -> None:
    count, fault = newcomers.check(7, number, tmp_path)
    assert count and not fault
