"""Runs the contract on every backend and writes the manual's matrix: ``python -m harness.generate_matrix``."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from calving.testing.contract import BackendContract

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "conformance.md"
BACKENDS = {
    "memory": "test_memory.py",
    "Kafka": "test_kafka.py",
    "Redis": "test_redis.py",
    "ZooKeeper": "test_zookeeper.py",
}
_HEAD = """# What every backend promises

*This page is generated from a run of the contract's tests on real stores (`make matrix`).*

The protocol is built on these rules. Each rule is a test in `calving.testing`. A backend of your own can run these tests
with ten lines (see the docstring). "-" means that the rule does not apply: the memory backend ends with its process, and
nobody else can write into it; Kafka itself deletes the positions in a topic that is gone.

"""


def rules() -> dict[str, str]:
    """Sentences by number, in order."""
    marked = (getattr(method, "rule", None) for method in vars(BackendContract).values())
    return dict(sorted((rule for rule in marked if rule is not None), key=lambda rule: _numbers(rule[0])))


def _numbers(rule: str) -> list[int]:
    """B10.1 comes after B9.2."""
    return [int(number) for number in rule.removeprefix("B").split(".")]


def page(results: Mapping[str, Mapping[str, str]]) -> str:
    rows = "".join(
        f"| {number} | {sentence} | " + " | ".join(results[b].get(number, "-") for b in BACKENDS) + " |\n"
        for number, sentence in rules().items()
    )
    return f"{_HEAD}| | rule | {' | '.join(BACKENDS)} |\n| --- | --- |{' --- |' * len(BACKENDS)}\n{rows}"


class _Collector:
    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        number = getattr(getattr(item, "function", None), "rule", ("", ""))[0]
        if report.failed:
            self.found[number] = "**no**"
        elif report.skipped:
            self.found.setdefault(number, "-")
        elif report.when == "call":
            self.found.setdefault(number, "yes")
        return report


def main() -> None:
    results = {}
    for backend, file in BACKENDS.items():
        collector = _Collector()
        pytest.main(["-q", str(ROOT / "tests" / "conformance" / file)], plugins=[collector])
        results[backend] = collector.found
    PAGE.write_text(page(results))
    sys.exit(any("no" in mark for found in results.values() for mark in found.values()))


if __name__ == "__main__":
    main()
