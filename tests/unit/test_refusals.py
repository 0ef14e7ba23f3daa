"""Every refusal that names a command stands in the manual, with that command; and every message there is in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "recover.md"
SOURCES = sorted((ROOT / "packages").glob("*/src/**/*.py"))
GAP = "..."
"""Names and numbers, in a message of the manual and in one of the code."""
REMEDY = re.compile(
    r"`(calving (?:recover|release)[^`]*)`|(iceberg\.(?:source\.on-data-loss|control\.on-truncation|control\.other-sinks)) ="
)


def texts(tree: ast.Module) -> Iterator[str]:
    """Every text of a module but its docstrings: constants of the module stand in it, all else is a gap."""
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    passed = {id(node.value) for node in [*ast.walk(tree)] if isinstance(node, ast.Expr)}
    passed |= {id(node.value) for node in tree.body if isinstance(node, ast.Assign)}
    for node in ast.walk(tree):
        if id(node) in passed:
            continue
        if isinstance(node, ast.JoinedStr):
            passed |= {id(part) for part in node.values}
            yield "".join(part_of(part, constants) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%(s|d|r|\.\df)", GAP, node.value)


def part_of(part: ast.expr, constants: dict[str, str]) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    return constants.get(part.value.id, GAP) if isinstance(part.value, ast.Name) else GAP


ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| message"))
]


@pytest.fixture(scope="module")
def of_the_code() -> list[str]:
    return [text for path in SOURCES for text in texts(ast.parse(path.read_text()))]


def says(text: str, message: str) -> bool:
    """Whether a text of the code has all words of a message of the manual, in this order."""
    words = re.sub(r" \([^)]*\)$", "", message).split(GAP)
    return re.search(".*".join(re.escape(part.strip(" ,:")) for part in words), text, re.DOTALL) is not None


def lacking(refusal: str) -> Iterator[str]:
    """The remedies that a refusal names, and that the manual does not name in the row of this refusal."""
    rows = [row for row in ROWS if says(refusal, row[0])]
    for command, key in REMEDY.findall(refusal):
        wanted = " ".join(command.split()[:2]) or key
        if not any(wanted in " ".join(row) for row in rows):
            yield wanted


def test_every_refusal_stands_in_the_manual_with_its_remedies(of_the_code: list[str]) -> None:
    # Where a text begins with a gap, the reason is in another text.
    refusals = [text for text in of_the_code if REMEDY.search(text) and not text.startswith(GAP)]
    assert len(refusals) > 10
    assert {text: missing for text in refusals if (missing := list(lacking(text)))} == {}


@pytest.mark.parametrize("message", [row[0] for row in ROWS])
def test_a_message_of_the_manual_is_one_of_the_code(message: str, of_the_code: list[str]) -> None:
    assert any(says(text, message) for text in of_the_code)
