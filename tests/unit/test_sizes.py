"""Modules and functions stay small; an exception needs its sentence here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "packages"
MODULE_LINES, FUNCTION_LINES = 350, 50

LONG_MODULES = {
    "calving/cli/main.py": "a function for each command, with the help of its options",
    "calving/settings/keys.py": "one list: every key of the configuration, with its default and its sentence",
    "calving/testing/contract.py": "one list: every promise of a backend, each a test",
}
LONG_FUNCTIONS: dict[str, str] = {}


def _sources() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("src/**/*.py")):
        yield path.as_posix().rpartition("/src/")[2], path.read_text()


def _functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for name, text in _sources():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}: {node.name}", node


def test_every_long_module_has_its_reason_and_no_other_has_one() -> None:
    assert {name for name, text in _sources() if len(text.splitlines()) > MODULE_LINES} == LONG_MODULES.keys()


def test_every_long_function_has_its_reason_and_no_other_has_one() -> None:
    found = {name for name, f in _functions() if (f.end_lineno or 0) - f.lineno + 1 > FUNCTION_LINES}
    assert found == LONG_FUNCTIONS.keys()
