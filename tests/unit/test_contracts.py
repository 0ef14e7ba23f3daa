"""Docstrings are the contracts of what others call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "packages/core/src/calving"
INTERFACES = (
    "api.py",
    "backend/interface.py",
    "converters/interface.py",
    "engine/interface.py",
    "model/events.py",
    "source/interface.py",
    "source/reading.py",
    "transforms/interface.py",
    "writing/formats/interface.py",
)
CONTRACTS = [*(CORE / each for each in INTERFACES), *sorted((CORE / "protocol").glob("*.py"))]


@pytest.mark.parametrize("path", CONTRACTS, ids=lambda path: path.relative_to(CORE).as_posix())
def test_every_public_class_function_and_method_says_what_it_promises(path: Path) -> None:
    assert [name for name, node in _public(ast.parse(path.read_text())) if ast.get_docstring(node) is None] == []


def _public(within: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef]]:
    for node in within.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, node
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from ((f"{node.name}.{name}", each) for name, each in _public(node))
