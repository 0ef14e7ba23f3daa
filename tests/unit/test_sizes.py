"""Modules, functions and branches stay small; an exception needs its sentence here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "packages"
MODULE_LINES, FUNCTION_LINES, BRANCHES = 350, 50, 12
_BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.BoolOp,
    ast.comprehension,
    ast.match_case,
    ast.With,
)

LONG_MODULES = {
    "calving/settings/keys.py": "one list: every key of the configuration, with its default and its sentence",
    "calving/testing/contract.py": "one list: every promise of a backend, each a test",
}
LONG_FUNCTIONS: dict[str, str] = {}
BRANCHING = {
    "calving/transforms/mask.py: _masked": "a case for each type that can be masked",
    "calving/records/inferred.py: merge": "a case for each pair of types that have one in common",
    "calving/records/inferred.py: of_type": "a case for each type of Arrow",
    "calving/records/inferred.py: of_value": "a case for each type of a JSON value",
    "calving/records/json_table_plan.py: _field": "a case for each type of a column",
    "calving/records/shapes.py: _merge": "a case for each pair of shapes that have one in common",
    "calving/records/arrays.py: build": "a case for each type of Arrow",
    "calving/transforms/dates.py: _writer": "a case for each letter of Java's date patterns",
    "calving/transforms/bson.py: _typed": "a case for each type of extended JSON",
    "calving/converters/json_schema.py: declared": "a case for each keyword of JSON Schema",
    "calving/casting/texts.py: java_double": "the rules by which Java writes a double",
    "calving/casting/exact.py: _to": "a case for each type of a column",
    "calving_redis/durability.py: inspect": "a check for each setting of Redis that can lose writes",
    "calving/iceberg/expiry.py: expired": "the table properties that decide, one after the other",
}


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


def test_every_branching_function_has_its_reason_and_no_other_has_one() -> None:
    found = {name for name, f in _functions() if sum(isinstance(n, _BRANCHES) for n in ast.walk(f)) > BRANCHES}
    assert found == BRANCHING.keys()
