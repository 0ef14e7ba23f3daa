"""A sink that a former version has run, and left in the middle of a commit: this version continues it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from calving.services.process import Process
from calving.version import __version__
from harness.run import Run
from harness.topic import Topic
from harness.waiting import wait_for
from tests.cli.commands import Cli

pytestmark = pytest.mark.services

VERSION_0_1_0 = "fb7aac6"
"""Version 0.1.0 in the history of this repository."""
BEFORE_0_2_0 = "c58fc62"
"""The last commit that called itself 0.1.0, too. It parks commits, and changes rows by position."""
DISTRIBUTIONS = ("core", "backend-kafka", "backend-redis", "backend-zookeeper")


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """The packages, and another folder, of a commit of the history."""

    @cache
    def unpacked(commit: str, more: str) -> Path:
        command = ["git", "archive", commit, "packages", more]
        done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, check=False)
        if done.returncode:
            # Shallow clones and source archives have no history.
            pytest.skip(f"commit {commit} of the history is not here")
        folder = tmp_path_factory.mktemp(commit)
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        for name in DISTRIBUTIONS:
            _describe(folder / "packages" / name)
        return folder

    return unpacked


def _describe(package: Path) -> None:
    """Leave the metadata of an installed distribution beside its code: its name, and its entry points."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    folder = package / "src" / f"{project['name'].replace('-', '_')}-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
    groups = project.get("entry-points", {})
    lines = [line for group, points in groups.items() for line in (f"[{group}]", *map(" = ".join, points.items()))]
    (folder / "entry_points.txt").write_text("\n".join(lines))


def path_of(former: Path) -> dict[str, str]:
    """The variable that makes Python import this version's packages."""
    path = [str(former), *(str(former / "packages" / name / "src") for name in DISTRIBUTIONS)]
    return {"PYTHONPATH": os.pathsep.join(path)}


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
