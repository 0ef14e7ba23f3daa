"""Prints, at the end of a run, which broken rules were noticed by how many seeds. Decodes a parked file once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pytest

from calving.iceberg import parking


@pytest.fixture(autouse=True)
def a_parked_file_is_decoded_once() -> Iterator[None]:
    """Coordinators read the same files again and again: a sixth of the CPU of the simulation. A file never changes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parking, "_from_bytes", lru_cache(maxsize=4096)(parking._from_bytes))
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.getreports(kind)]
    lines = [str(line) for r in reports for name, line in r.user_properties if name == "simulation"]
    if lines:
        terminalreporter.section("broken rules: seeds that noticed, of those that were run until enough had")
        terminalreporter.write("\n".join(sorted(lines)) + "\n")
