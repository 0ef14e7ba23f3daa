"""The pages that a reader follows step by step, followed: every block, in order, and what comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from calving.services.kafka import _IMAGE
from tests.cli.pages import DOCS, blocks, follow

TUTORIAL = "tutorial/first-sink.md"


@pytest.mark.parametrize("page", [TUTORIAL, "how-to/python.md"])
def test_a_page_that_is_followed_gives_what_it_says(
    page: str, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert follow(page, tmp_path, {"localhost:9092": servers})


def test_the_tutorial_leaves_out_only_installation_and_its_broker() -> None:
    left_out = [block.text for block in blocks(TUTORIAL) if not block.runs]
    assert [re.findall(r"make|docker run|docker rm", text) for text in left_out] == [
        ["make"],
        ["docker run"],
        ["docker rm"],
    ]
    assert all(block.runs for block in blocks(TUTORIAL) if block.kind != "bash")


def test_the_tutorials_broker_is_of_the_version_that_the_tests_have() -> None:
    assert f" {_IMAGE}\n" in (DOCS / TUTORIAL).read_text()
