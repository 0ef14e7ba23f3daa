"""Prints, at the end of a run, which broken rules were noticed by how many seeds."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.getreports(kind)]
    lines = [str(line) for r in reports for name, line in r.user_properties if name == "simulation"]
    if lines:
        terminalreporter.section("broken rules: seeds that noticed, of those that were run until five had")
        terminalreporter.write("\n".join(sorted(lines)) + "\n")
