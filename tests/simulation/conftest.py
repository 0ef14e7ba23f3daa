"""Prints, at the end of a run, which broken rules were noticed by how many seeds. Decodes an entry or a parked file once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pytest

from calving.backend import entries
from calving.iceberg import parking
from calving.wire import codec


@pytest.fixture(autouse=True)
def what_is_stored_is_decoded_once() -> Iterator[None]:
    """Members read the same entries, and coordinators the same files, again and again: a quarter of the CPU of the simulation.
    Neither ever changes.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "decode", lru_cache(maxsize=4096)(codec.decode))
        patch.setattr(parking, "_from_bytes", lru_cache(maxsize=4096)(parking._from_bytes))
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.getreports(kind)]
    lines = [str(line) for r in reports for name, line in r.user_properties if name == "simulation"]
    if lines:
        terminalreporter.section("broken rules: seeds that noticed, of those that were run until enough had")
        terminalreporter.write("\n".join(sorted(lines)) + "\n")
