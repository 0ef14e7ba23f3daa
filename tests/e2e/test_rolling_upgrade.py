"""A sink goes from one version to another and back, worker by worker, as the guide on upgrades says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calving.services.process import Process
from calving.version import __version__
from harness.former import BEFORE_0_2_0, unpacked
from harness.run import Run
from harness.waiting import wait_for

pytestmark = pytest.mark.services


def status_of(sink: Run) -> dict[str, Any]:
    start = "from calving.cli.main import main; main()"
    command = [sys.executable, "-c", start, "status", str(sink.config), "--json"]
    said: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, timeout=120, check=False).stdout)
    return said


def replace(sink: Run, old: Process, former: Path | None) -> Process:
    """A worker of the other version, and once it has joined, the end of the old one; records go on."""
    new = sink.start(former=former)
    while "batch finished" not in new.log.read_text():
        sink.produce(50, 250)
    old.stop()
    sink.replaced.add(old)
    sink.produce(100)
    return new


def test_workers_are_replaced_one_by_one_there_and_back_and_no_record_is_lost_or_doubled(
    tmp_path: Path, servers: str, unique: str
) -> None:
    former = unpacked(BEFORE_0_2_0, tmp_path / "former", "harness")
    if former is None:
        pytest.skip(f"commit {BEFORE_0_2_0} of the history is not here")
    sink = Run(tmp_path, servers, unique)
    try:
        workers = [sink.start(former=former) for _ in range(2)]
        sink.produce(100)
        wait_for(lambda: sink.committed() == sink.sent)
        workers = [replace(sink, worker, None) for worker in workers]
        wait_for(lambda: (status := status_of(sink))["health"] == "OK" and status["versions"] == [__version__])
        for worker in workers:
            replace(sink, worker, former)
        sink.wait_until_committed(90)
    finally:
        sink.close()
    sink.assert_exactly_once()
