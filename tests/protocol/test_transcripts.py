"""Whole histories of the protocol, as text that a newcomer can read: ``--rewrite`` writes them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.protocol.history import replayed

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_history_runs_as_it_is_told(path: Path, request: pytest.FixtureRequest) -> None:
    told = path.read_text()
    happened = replayed(told)
    if request.config.getoption("--rewrite"):
        path.write_text(happened)
    else:
        assert happened == told


def test_there_is_no_step_that_nobody_knows() -> None:
    with pytest.raises(ValueError, match="there is no step 'worker A sings'"):
        replayed("> worker A sings\n")
