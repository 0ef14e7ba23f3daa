"""Ports for services: nobody gets one that another has been promised."""

from __future__ import annotations

import subprocess
import sys

import pytest

from calving.services import process


def test_each_call_gets_a_port_of_its_own(twenty: set[int]) -> None:
    assert len(twenty) == 20


def test_another_process_gets_none_of_the_ports_that_a_living_process_has_got(twenty: set[int]) -> None:
    """Even before a service listens on them."""
    code = f"from calving.services import process; process._PORTS = {process._PORTS}"
    code += "; print(*(process.free_port() for _ in range(5)))"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert twenty.isdisjoint(map(int, told.stdout.split()))


@pytest.fixture
def twenty(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Ports of this process, of thirty."""
    first = process.free_port()
    monkeypatch.setattr(process, "_PORTS", range(first, first + 30))
    return {process.free_port() for _ in range(20)}
