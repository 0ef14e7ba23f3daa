"""A sink that version 0.1.0 has run, and left in the middle of a commit: this version continues it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.topic import Topic
from tests.cli.commands import Cli

pytestmark = pytest.mark.services

COMMIT = "fb7aac6"
"""Version 0.1.0 in the history of this repository."""
DISTRIBUTIONS = ("core", "backend-kafka", "backend-redis", "backend-zookeeper")


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and tests of version 0.1.0."""
    command = ["git", "archive", COMMIT, "packages", "tests"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, check=False)
    if done.returncode:
        # Shallow clones and source archives have no history.
        pytest.skip(f"version 0.1.0 is commit {COMMIT} of the history, which is not here")
    folder = tmp_path_factory.mktemp("0.1.0")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    for name in DISTRIBUTIONS:
        _describe(folder / "packages" / name)
    return folder


def _describe(package: Path) -> None:
    """Leave the metadata of an installed distribution beside its code: its name, and its entry points."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    folder = package / "src" / f"{project['name'].replace('-', '_')}-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
    groups = project.get("entry-points", {})
    lines = [line for group, points in groups.items() for line in (f"[{group}]", *map(" = ".join, points.items()))]
    (folder / "entry_points.txt").write_text("\n".join(lines))


def run(former: Path, sink: Cli, *command: str, fault: str | None = None) -> int:
    """Run a command of version 0.1.0 in its own process; its exit code."""
    path = [str(former), *(str(former / "packages" / name / "src") for name in DISTRIBUTIONS)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    if fault is not None:
        env |= {"FAULT": fault, "BACKEND": str(sink.keys.get("iceberg.control.backend", "kafka"))}
    done = subprocess.run([sys.executable, *command, str(sink.config)], cwd=former, env=env, timeout=240, check=False)
    return done.returncode


def test_what_version_0_1_0_has_published_and_not_committed_is_committed_once_and_under_the_same_name_only(
    former: Path, tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]
) -> None:
    sink = Cli(tmp_path, topic(), unique)
    sink.keys |= keys
    sink.send(0, 300)
    where = "import calving; assert 'packages/core' in calving.__file__ and '0.1.0' in calving.__file__;"
    start = f"{where} from calving.cli.main import main; main()"
    assert run(former, sink, "-c", start, "run", "--until-caught-up") == 0
    sink.send(300, 500)
    assert run(former, sink, "-m", "tests.e2e.worker", fault="table:before:1") == -signal.SIGKILL
    assert len(sink.ids()) == 300
    sink.run_here()
    sink.assert_exactly_once(500)
    sink.send(500, 600)
    sink.run_here()
    sink.assert_exactly_once(600)
    sink.keys |= {"name": f"renamed-{unique}", "iceberg.control.topic": f"control-renamed-{unique}"}
    sink.refused("--from")
