"""A former version of calving, from the history of this repository, to run beside this one."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

VERSION_0_1_0 = "fb7aac6"
"""Version 0.1.0."""
BEFORE_0_2_0 = "c58fc62"
"""The last commit that called itself 0.1.0, too. It parks commits, and changes rows by position."""
_DISTRIBUTIONS = ("core", "backend-kafka", "backend-redis", "backend-zookeeper")


def unpacked(commit: str, folder: Path, *more: str) -> Path | None:
    """The packages of a commit, and ``more`` of its folders, below ``folder``, which is returned. None if the commit is
    not here: shallow clones and source archives have no history.
    """
    command = ["git", "archive", commit, "packages", *more]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, check=False)
    if done.returncode:
        return None
    folder.mkdir()
    subprocess.run(["tar", "-x"], cwd=folder, input=done.stdout, check=True)
    for name in _DISTRIBUTIONS:
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


def path_of(former: Path) -> dict[str, str]:
    """The variable that makes Python import this version's packages."""
    path = [str(former), *(str(former / "packages" / name / "src") for name in _DISTRIBUTIONS)]
    return {"PYTHONPATH": os.pathsep.join(path)}
