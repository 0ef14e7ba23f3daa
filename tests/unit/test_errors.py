"""Errors: one module, one way to name them, and a next move for each."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

import pytest

from calving import errors
from calving.errors import CalvingError

PACKAGES = Path(__file__).parents[2] / "packages"
ALL = [found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, CalvingError)]
ELSEWHERE = {
    "ProducerFencedError": "only the module that raises it tells it from a refused claim, and catches it",
    "TooLargeError": "it has the record, and only producers of records catch it",
}
"""Kinds of calving's errors that are declared in another module, and why."""


def declared() -> Iterator[tuple[str, str, list[str]]]:
    """Every class with a base that is named like an error: its module, its name, its bases."""
    for path in sorted(PACKAGES.rglob("src/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                if any(base.endswith(("Error", "Exception")) for base in bases):
                    yield path.name, node.name, bases


def test_every_error_is_named_an_error() -> None:
    assert [name for _, name, _ in declared() if not name.endswith("Error")] == []


def test_all_errors_for_others_are_in_one_module() -> None:
    own = {found.__name__ for found in ALL}
    astray = {name for module, name, bases in declared() if own.intersection(bases) and module != "errors.py"}
    assert astray == ELSEWHERE.keys()


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_an_error_has_its_contract_and_no_name_of_pythons(error: type[CalvingError]) -> None:
    assert len(error.__dict__.get("__doc__") or "") > 40
    assert not hasattr(builtins, error.__name__)


def test_the_base_is_never_raised_itself() -> None:
    raised = [
        f"{path.name}:{node.lineno}"
        for path in sorted(PACKAGES.rglob("src/**/*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
        and node.exc.func.id == CalvingError.__name__
    ]
    assert raised == []
