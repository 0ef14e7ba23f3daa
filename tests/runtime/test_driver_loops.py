"""The page with the two driver loops: they run, and carry out every effect."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from calving.protocol.effects import CoordinatorEffect, WorkerEffect
from tests.cli.pages import DOCS, follow

PAGE = "explanation/driver-loops.md"


def test_the_loops_on_the_page_do_what_it_says(tmp_path: Path) -> None:
    assert follow(PAGE, tmp_path, {}) == 1


def test_the_loops_on_the_page_carry_out_every_effect() -> None:
    text = (DOCS / PAGE).read_text()
    effects = (*get_args(WorkerEffect), *get_args(CoordinatorEffect))
    assert [effect.__name__ for effect in effects if f"case {effect.__name__}(" not in text] == []
