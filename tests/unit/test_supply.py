"""What is installed is what was locked, and each exception from the rules about dangerous calls has its reason."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("lock", ["requirements.lock", "docs/requirements.txt", "deploy/pyspark.txt", "deploy/uv.txt"])
def test_every_locked_package_has_a_hash(lock: str) -> None:
    entries = re.sub(r"\\\n\s*", "", (ROOT / lock).read_text()).splitlines()
    assert entries
    assert not [entry for entry in entries if not re.search(r"^[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", entry)]


def test_the_image_is_made_of_locked_packages_alone() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    assert text.count("--constraint /locks/") == 2
    assert [line for line in text.splitlines() if "pip install" in line and "uv pip" not in line] == [
        "RUN pip install --no-cache-dir --require-hashes --requirement /locks/uv.txt"
    ]
    (pyspark,) = re.findall(r"^pyspark==(\S+)", (ROOT / "deploy" / "pyspark.txt").read_text(), re.MULTILINE)
    assert f"SPARK ?= {pyspark}\n" in (ROOT / "Makefile").read_text()


def test_every_exception_from_a_rule_about_dangerous_calls_says_why() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    silent = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("packages", "bench", "campaign")
        for path in (ROOT / folder).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"# noqa: (?=.*\bS\d{3})[A-Z0-9, ]+$", line)
    ]
    assert not silent
