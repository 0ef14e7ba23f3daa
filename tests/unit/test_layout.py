"""The repository beside its packages: who imports whom, and where the tests of a package are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
CORE = ROOT / "packages" / "core" / "src" / "calving"
MAY_IMPORT = {
    "packages": set[str](),
    "harness": set[str](),
    "campaign": {"harness"},
    "bench": {"harness"},
    "tools": {"harness"},
}
"""Tests import the harness, and those of the campaign import the campaign."""
TESTS_OF = {
    "campaign": ("campaign/*.py", "e2e/test_campaign*.py", "readback/test_campaign.py"),
    "bench": (),
    "tools": ("unit/test_house.py",),
}

NO_PACKAGE = {
    "campaign": "the fault campaign's own checker and books",
    "cluster": "whole sinks on clusters: standalone, YARN, an executor of the image for Kubernetes",
    "conformance": "the contract of backends on every backend, and random interleavings of sessions",
    "demo": "the demo from wheels alone",
    "deploy": "manifests, alerts and the image",
    "e2e": "worker processes that are killed, stopped and lied to",
    "fuzz": "random records and tables against an oracle",
    "goldens": "files that results are compared with",
    "harness": "what tests, bench and campaign share",
    "java": "the record path beside the Java sink's classes",
    "kafka": "what only the Kafka backend does",
    "packaging": "the distributions",
    "programs": "the sink on servers that no wheel has",
    "readback": "tables read by Spark and DuckDB",
    "redis": "what only the Redis backend does",
    "spark": "the data source of Spark: streams and batches of a real Spark",
    "simulation": "the protocol against a simulated world, by seed",
    "unit": "single modules of the core, and the repository itself",
    "zookeeper": "what only the ZooKeeper backend does",
}
"""Folders of tests, and what they hold. Every other folder tests the package of its name."""
ELSEWHERE = {
    "testing": ("*/test_*_contract.py", "calving's own parts pass the contracts; its backends do so in conformance"),
}
"""Packages without a folder: the files that test them, and how."""


def used(path: Path) -> Iterator[str]:
    """Modules that a file imports, or names in a text, as for a process of its own."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isascii():
            name = node.value
            if all(map(str.isidentifier, name.split("."))) and (ROOT / f"{name.replace('.', '/')}.py").is_file():
                yield name


@cache
def parts(path: Path) -> set[str]:
    return {name.split(".")[0] for name in used(path)} & {"harness", "campaign", "bench", "tests", "tools"}


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_what_tests_share_imports_no_test_and_campaign_and_bench_do_not_import_each_other(part: str) -> None:
    files = sorted((ROOT / part).rglob("*.py"))
    assert files
    for path in files:
        assert parts(path) <= {part, *MAY_IMPORT[part]}, path


@pytest.mark.parametrize(("part", "tests"), TESTS_OF.items())
def test_only_the_tests_of_campaign_bench_and_tools_import_them(part: str, tests: tuple[str, ...]) -> None:
    its = {path for pattern in tests for path in TESTS.glob(pattern)}
    others = set(TESTS.rglob("*.py")) - its - {TESTS / "unit" / "test_layers.py"}  # which only asks whether they load
    assert [path for path in sorted(others) if part in parts(path)] == []


def test_every_package_has_a_folder_of_tests_or_says_where_they_are() -> None:
    packages = {path.parent.name for path in CORE.glob("*/__init__.py")}
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders - NO_PACKAGE.keys() == packages - ELSEWHERE.keys()
    assert NO_PACKAGE.keys() <= folders
    assert ELSEWHERE.keys() <= packages
    assert [name for name in folders - {"goldens"} if not list((TESTS / name).glob("test_*.py"))] == []
    assert [name for name, (pattern, _) in ELSEWHERE.items() if not list(TESTS.glob(pattern))] == []
