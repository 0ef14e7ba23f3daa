"""A sink goes from one version to another and back, worker by worker, as the guide on upgrades says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import calving.version
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


def test_a_leader_of_a_former_version_commits_what_a_worker_of_this_one_has_landed(
    tmp_path: Path, servers: str, unique: str
) -> None:
    former = unpacked(BEFORE_0_2_0, tmp_path / "former", "harness")
    if former is None:
        pytest.skip(f"commit {BEFORE_0_2_0} of the history is not here")
    sink = Run(tmp_path, servers, unique, settings={"iceberg.tables.default-partition-by": "bucket(id, 50)"})
    sink.put_aside({"iceberg.tables.landing": "unpartitioned"})
    try:
        sink.start(former=former, aside=False)
        sink.produce(100)
        wait_for(lambda: sink.committed() == sink.sent)
        assert sink.produce_until_it_dies(sink.start("publish:after:1", aside=True))
        sink.wait_until_committed(90)
    finally:
        sink.close()
    sink.assert_exactly_once()
    files = sink.catalog.load_table("db.even").inspect.data_files()
    assert set(files["spec_id"].to_pylist()) == {0, 1}


def _ends_while_records_come(sink: Run, worker: Process) -> bool:
    sink.produce(50, 250)
    return worker.returncode is not None


ON_SPARK = {"iceberg.engine": "spark", "spark.master": "local[1]", "spark.ui.showConsoleProgress": "false"}


def test_a_worker_whose_executors_have_another_version_ends_with_a_sentence_and_the_others_go_on(
    tmp_path: Path, servers: str, unique: str
) -> None:
    other = tmp_path / "other" / "calving"
    shutil.copytree(Path(calving.version.__file__).parent, other)
    version = other / "version.py"
    version.write_text(version.read_text().replace(__version__, "0.0.9"))
    sink = Run(tmp_path, servers, unique, settings=ON_SPARK)
    sink.put_aside({"spark.executorEnv.PYTHONPATH": str(other.parent)})
    try:
        sink.start(aside=False)
        sink.produce(200)
        wait_for(lambda: sink.committed() == 200, 120)
        wrong = sink.start(aside=True)
        wait_for(partial(_ends_while_records_come, sink, wrong))
        sink.replaced.add(wrong)
        assert f"calving 0.0.9 is installed for Spark's workers, calving {__version__} for the driver" in (
            wrong.log.read_text()
        )
        sink.produce(200)
        sink.wait_until_committed(120)
    finally:
        sink.close()
    assert wrong.returncode == 2
    sink.assert_exactly_once()
