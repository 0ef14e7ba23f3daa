"""The guide to Spark, followed: every block, in order, and what comes out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.jvm import write_defaults
from tests.cli.pages import follow


@pytest.mark.services
def test_the_guide_gives_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    write_defaults(tmp_path / "spark-conf")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "spark-conf"))
    assert follow("how-to/spark.md", tmp_path, {}) == 5
