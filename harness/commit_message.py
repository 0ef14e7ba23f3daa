"""The hook of pre-commit for messages: ``git log --oneline`` and mails show no more of a subject than 72 characters."""

from __future__ import annotations

import sys
from pathlib import Path

SUBJECT_CHARACTERS = 72
_GITS_OWN = ("fixup! ", "squash! ", "amend! ", "Merge ")
"""Subjects that git writes itself."""


def refusal(message: str) -> str | None:
    """Why a commit's message is refused; None if it is not. Git cuts off lines that begin with ``#`` afterwards."""
    lines = [line.rstrip() for line in message.strip().splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if not subject:
        return "the message has no subject"
    if len(subject) > SUBJECT_CHARACTERS and not subject.startswith(_GITS_OWN):
        return (
            f"the subject has {len(subject)} characters, {len(subject) - SUBJECT_CHARACTERS} too many:"
            " say the rest in the body"
        )
    if len(lines) > 1 and lines[1]:
        return "the second line is not empty: it separates the subject from the body"
    return None


def main() -> None:
    reason = refusal(Path(sys.argv[1]).read_text())
    if reason is not None:
        sys.exit(f"error: {reason}")


if __name__ == "__main__":
    main()
