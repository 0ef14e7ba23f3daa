"""Workers of one sink with different settings name each other, and what differs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.run import Run
from harness.waiting import wait_for

pytestmark = pytest.mark.services

KEY = "iceberg.tables.evolve-schema-enabled"


def test_workers_name_the_one_with_other_settings_until_it_is_gone(
    tmp_path: Path, servers: str, unique: str, keys: dict[str, str]
) -> None:
    sink = Run(tmp_path, servers, unique, settings=keys)
    sink.put_aside({KEY: "true"})
    try:
        one, other = sink.start(aside=False), sink.start(aside=True)
        sink.produce(100)
        wait_for(lambda: KEY in _degraded(one.log) and KEY in _degraded(other.log))
        assert str(sink.aside) in _degraded(one.log)
        assert str(sink.config) in _degraded(other.log)
        wait_for(lambda: any(KEY in reason for reason in _status(sink.config)["reasons"]))
        other.kill()
        sink.replaced.add(other)
        wait_for(lambda: "no longer DEGRADED: settings-differ" in one.log.read_text())
        sink.produce(100)
        sink.wait_until_committed(60)
        wait_for(lambda: _status(sink.config)["health"] == "OK")
    finally:
        sink.close()
    sink.assert_exactly_once()


def test_two_sinks_that_have_one_name_by_mistake_are_named_by_host_and_file(
    tmp_path: Path, servers: str, unique: str
) -> None:
    one = Run(_folder(tmp_path, "one"), servers, unique)
    same = {"name": unique, "iceberg.control.topic": f"control-{unique}"}
    other = Run(_folder(tmp_path, "other"), servers, f"{unique}-2", settings=same)
    try:
        first, second = one.start(), other.start()
        one.produce(50)
        other.produce(50)
        wait_for(lambda: "topics" in _degraded(first.log) and "topics" in _degraded(second.log))
        assert str(other.config) in _degraded(first.log)
        assert str(one.config) in _degraded(second.log)
    finally:
        one.close()
        other.close()


def _folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


def _status(config: Path) -> dict[str, Any]:
    start = "from calving.cli.main import main; main()"
    command = [sys.executable, "-c", start, "status", str(config), "--json"]
    shown: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, timeout=120, check=False).stdout)
    return shown


def _degraded(log: Path) -> str:
    """The last line of a worker's log on other settings."""
    lines = [line for line in log.read_text().splitlines() if " DEGRADED: settings-differ: " in line]
    return lines[-1] if lines else ""
