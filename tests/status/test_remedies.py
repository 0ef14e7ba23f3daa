"""Every reason has its remedy, and its section in the manual."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from calving.status.remedies import PAGE, REMEDIES, Cause, Trouble, advice

SECTIONS = dict(
    re.findall(
        r"^### (\S+)\n\n(.*?)(?=^##|\Z)", (Path(__file__).parents[2] / PAGE).read_text(), re.DOTALL | re.MULTILINE
    )
)


def test_every_reason_has_a_remedy_and_a_section_in_the_manual_and_there_is_no_other() -> None:
    assert list(SECTIONS) == list(REMEDIES) == [*Cause, *Trouble]


@pytest.mark.parametrize("reason", REMEDIES)
def test_a_section_begins_with_the_meaning_and_the_command_of_the_code_and_goes_on(reason: str) -> None:
    remedy = REMEDIES[reason]
    beginning = f"{remedy.meaning}\n\n```bash\n{remedy.command}\n```\n"
    assert SECTIONS[reason].startswith(beginning)
    assert len(SECTIONS[reason]) > len(beginning) + 50


def test_a_reason_that_this_version_does_not_know_has_the_page() -> None:
    assert advice("something-new") == f"see {PAGE}"
