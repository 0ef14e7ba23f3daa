"""Who may import whom."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
import sys
import tomllib
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "packages" / "core" / "src" / "calving"
FOREIGN = {
    "pyspark",
    "confluent_kafka",
    "pyiceberg",
    "pyarrow",
    "pydantic",
    "typer",
    "rich",
    "threading",
    "logging",
    "random",
    "time",
}
ALLOWED = {
    "model": {"model"},
    "protocol": {"model", "protocol", "errors"},
    "wire": {"model", "wire"},
    "data": {"model", "data", "errors", "secrets", "source"},
}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    for path in (CORE / package).rglob("*.py"):
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("calving.")}
        assert ours <= ALLOWED[package], path


@pytest.mark.parametrize("package", ["model", "protocol"])
def test_the_protocol_knows_no_library_and_no_clock(package: str) -> None:
    for path in (CORE / package).rglob("*.py"):
        assert not {name.split(".")[0] for name in imports(path)} & FOREIGN, path


def test_core_imports_no_backend_package() -> None:
    for path in CORE.rglob("*.py"):
        assert not any(name.startswith("calving_") for name in imports(path)), path


def test_the_data_plane_imports_only_what_the_distribution_asks_for() -> None:
    project = tomllib.loads((CORE.parents[1] / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    declared = {re.split(r"[^\w-]", text)[0].replace("-", "_") for text in wanted}
    declared.add("google")  # Protobuf, of an extra of confluent-kafka
    for path in (CORE / "data").rglob("*.py"):
        foreign = {name.split(".")[0] for name in imports(path)} - {"calving"} - sys.stdlib_module_names
        assert foreign <= declared, path


@pytest.mark.parametrize(
    "module", ["bench.run", "campaign.run", "campaign.checker", "tests.simulation.run", "tests.fuzz.run"]
)
def test_what_make_starts_besides_tests_can_be_imported(module: str) -> None:
    importlib.import_module(module)
