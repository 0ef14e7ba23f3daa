"""Dates of any year as texts. The texts are those of Java's ``LocalDate.toString`` and ``ISO_LOCAL_DATE_TIME``."""

from __future__ import annotations

import pytest

from calving.records.calendar import date_text, timestamp_text


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (0, "1970-01-01"),
        (-719_162, "0001-01-01"),
        (-719_528, "0000-01-01"),
        (-719_529, "-0001-12-31"),
        (-719_894, "-0002-12-31"),
        (-1_000_000, "-0768-02-04"),
        (2_932_896, "9999-12-31"),
        (2_932_897, "+10000-01-01"),
        (2**31 - 1, "+5881580-07-11"),
        (-(2**31), "-5877641-06-23"),
    ],
)
def test_a_date_of_any_year_has_the_text_that_java_gives_it(days: int, text: str) -> None:
    assert date_text(days) == text
    assert timestamp_text(days * 86_400_000_000 + 1, 1_000_000) == f"{text}T00:00:00.000001"
