"""The hook for messages of commits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.commit_message import refusal


@pytest.mark.parametrize(
    "message",
    [
        "x" * 72,
        "A paused sink is DEGRADED\n\nRecords wait for a worker " + "x" * 100,
        "# a comment of git's\nA paused sink is DEGRADED\n# another one",
        "fixup! " + "x" * 72,
        "Merge branch 'a-long-name' " + "x" * 72,
    ],
)
def test_a_message_with_a_short_subject_is_taken(message: str) -> None:
    assert refusal(message) is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("x" * 73, "73 characters, 1 too many"),
        ("A paused sink is DEGRADED\nbecause records wait", "second line is not empty"),
        ("# only a comment\n\n", "no subject"),
    ],
)
def test_a_message_is_refused_with_the_reason(message: str, reason: str) -> None:
    assert reason in str(refusal(message))


def test_the_hook_ends_with_an_error_that_git_shows(tmp_path: Path) -> None:
    (tmp_path / "COMMIT_EDITMSG").write_text("x" * 80)
    command = [sys.executable, "-m", "harness.commit_message", str(tmp_path / "COMMIT_EDITMSG")]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "error: the subject has 80 characters, 8 too many: say the rest in the body\n",
    )
