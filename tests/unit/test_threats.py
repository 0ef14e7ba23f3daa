"""The threat model names tests that attack."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = re.findall(r"`(\S+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text())
    assert len(named) > 10
    assert [each for each in named if f"def {each[1]}(" not in (ROOT / each[0]).read_text()] == []
