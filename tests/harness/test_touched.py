"""The tests that a change touches."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.touched import ROOT, chosen, left_out, needs_services, touched_by

STRUCTURE = ["tests/unit/test_layers.py", "tests/unit/test_sizes.py", "tests/unit/test_house.py"]


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("packages/core/src/calving/transforms/sql.py", ["tests/transforms", *STRUCTURE]),
        ("packages/core/src/calving/writing/formats/orc.py", [*STRUCTURE, "tests/writing"]),
        ("packages/core/src/calving/testing/formats.py", ["tests/backend", *STRUCTURE]),
        ("packages/core/src/calving/errors.py", ["tests/unit"]),
        ("packages/backend-redis/src/calving_redis/cursor.py", ["tests/redis"]),
        ("packages/spark/src/calving_spark/source.py", ["tests/spark"]),
        ("packages/native/src/json.rs", ["tests/converters", "tests/records"]),
        ("tests/protocol/test_ledger.py", ["tests/protocol/test_ledger.py"]),
        ("tests/protocol/history.py", ["tests/protocol"]),
        ("tests/conftest.py", ["tests/unit"]),
        ("docs/how-to/upgrade.md", ["tests/unit/test_docs.py"]),
        ("README.md", ["tests/unit/test_docs.py"]),
        ("changes/paused.fixed.md", ["tests/unit/test_changes.py"]),
        ("harness/topic.py", ["tests/harness", "tests/unit/test_layout.py"]),
        ("deploy/Dockerfile", ["tests/deploy"]),
        ("pyproject.toml", ["tests/unit"]),
        ("stubs/pyarrow/compute.pyi", []),
    ],
)
def test_a_changed_file_has_these_tests(changed: str, tests: list[str]) -> None:
    assert chosen([changed]) == sorted(tests)


def test_a_folder_of_tests_stands_for_its_files() -> None:
    changed = ["tests/protocol/test_ledger.py", "tests/protocol/history.py", "packages/core/src/calving/errors.py"]
    assert chosen([*changed, "docs/index.md"]) == ["tests/protocol", "tests/unit"]


def test_a_deleted_test_is_not_run() -> None:
    assert chosen(["tests/protocol/test_deleted.py"]) == []


def test_long_tests_are_run_if_they_have_changed_themselves() -> None:
    (long,) = left_out(["packages/core/src/calving/iceberg/commit.py"])
    assert (ROOT / long).exists()
    assert left_out([long]) == []


def test_only_the_tests_of_backends_start_services() -> None:
    assert [test for test in ("tests/redis/test_store.py", "tests/kafka", "tests/wire") if needs_services(test)] == [
        "tests/redis/test_store.py",
        "tests/kafka",
    ]


def test_every_file_of_the_packages_leads_to_tests() -> None:
    modules = (path.relative_to(ROOT) for path in Path(ROOT / "packages").glob("*/src/**/*.py"))
    without = [str(path) for path in modules if not all((ROOT / test).exists() for test in touched_by(str(path)))]
    assert without == []
