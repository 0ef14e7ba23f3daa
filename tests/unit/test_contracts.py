"""Docstrings are the contracts of what others call."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "packages/core/src/calving"
CONTRACTS = [CORE / "model/events.py", CORE / "backend/interface.py", *sorted((CORE / "protocol").glob("*.py"))]


@pytest.mark.parametrize("path", CONTRACTS, ids=lambda path: path.relative_to(CORE).as_posix())
def test_every_public_class_of_the_protocol_says_what_it_promises(path: Path) -> None:
    classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    public = [node for node in classes if not node.name.startswith("_")]
    assert [node.name for node in public if ast.get_docstring(node) is None] == []
