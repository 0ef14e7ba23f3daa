"""The guide to Spark, followed: every block, in order, and what comes out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.pages import follow


@pytest.mark.services
def test_the_guide_gives_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert follow("how-to/spark.md", tmp_path, {}) == 5
