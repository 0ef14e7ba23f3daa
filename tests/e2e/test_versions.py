"""A sink that a former version has run, and left in the middle of a commit: this version continues it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from calving.services.process import Process
from calving.version import __version__
from harness.former import BEFORE_0_2_0, VERSION_0_1_0, path_of, unpacked
from harness.run import Run
from harness.topic import Topic
from harness.waiting import wait_for
from tests.cli.commands import Cli

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """The packages, and another folder, of a commit of the history."""

    @cache
    def tree(commit: str, more: str) -> Path:
        folder = unpacked(commit, tmp_path_factory.mktemp(commit) / "tree", more)
        if folder is None:
            pytest.skip(f"commit {commit} of the history is not here")
        return folder

    return tree


def run(former: Path, sink: Cli, *command: str, fault: str | None = None) -> int:
    """Run a command of a former version in its own process; its exit code."""
    env = {**os.environ, **path_of(former)}
    if fault is not None:
        env |= {"FAULT": fault, "BACKEND": str(sink.keys.get("iceberg.control.backend", "kafka"))}
    done = subprocess.run([sys.executable, *command, str(sink.config)], cwd=former, env=env, timeout=240, check=False)
    return done.returncode


def test_what_version_0_1_0_has_published_and_not_committed_is_committed_once_and_under_the_same_name_only(
    former: Callable[[str, str], Path],
    tmp_path: Path,
    topic: Callable[..., Topic],
    unique: str,
    keys: dict[str, str],
) -> None:
    old = former(VERSION_0_1_0, "tests")
    sink = Cli(tmp_path, topic(), unique)
    sink.keys |= keys
    sink.send(0, 300)
    where = f"import calving; assert calving.__file__.startswith({str(old / 'packages' / 'core')!r});"
    start = f"{where} from calving.cli.main import main; main()"
    assert run(old, sink, "-c", start, "run", "--until-caught-up") == 0
    sink.send(300, 500)
    assert run(old, sink, "-m", "tests.e2e.worker", fault="table:before:1") == -signal.SIGKILL
    assert len(sink.ids()) == 300
    sink.run_here()
    sink.assert_exactly_once(500)
    sink.send(500, 600)
    sink.run_here()
    sink.assert_exactly_once(600)
    sink.keys |= {"name": f"renamed-{unique}", "iceberg.control.topic": f"control-renamed-{unique}"}
    sink.refused("--from")


@pytest.mark.parametrize(
    "settings",
    [{}, {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.default-id-columns": "id"}],
    ids=["append", "upsert"],
)
def test_what_the_tree_before_0_2_0_has_buffered_and_parked_is_committed_once(
    former: Callable[[str, str], Path], tmp_path: Path, servers: str, unique: str, settings: dict[str, str]
) -> None:
    old = former(BEFORE_0_2_0, "harness")
    sink = Run(tmp_path, servers, unique, settings={"iceberg.batch.max-records": "20", **settings})
    broken = sink.tables[1]
    worker = Process(
        [sys.executable, "-P", "-m", "harness.worker", str(sink.config)],
        tmp_path / "old.log",
        {**path_of(old), "FAULT": f"table={broken}:broken:@{tmp_path}", "PARK_BEHIND": "20"},
    )
    try:
        sink.produce(200)
        sink.wait_until_committed()
        (tmp_path / "table-broken").touch()
        sink.produce(400)
        wait_for(lambda: sink.committed() == 400 and any(tmp_path.rglob("calving-parked-*")))
    finally:
        worker.signal(signal.SIGKILL)
        worker.stop()
    (tmp_path / "table-broken").unlink()
    try:
        sink.start()
        sink.produce(100)
        sink.wait_until_committed(90)
    finally:
        sink.close()
    sink.assert_exactly_once()
    versions = {
        str(s.summary["engine-version"])
        for name in sink.tables
        for s in sink.catalog.load_table(name).metadata.snapshots
        if s.summary is not None
    }
    assert versions == {"0.1.0", __version__}
