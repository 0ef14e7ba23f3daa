"""The demo from nothing but wheels, on each version of Python that is supported, each with another version of PySpark."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.packaging.test_wheels import ROOT, uv

pytestmark = pytest.mark.services


@pytest.mark.parametrize(("python", "spark"), [("3.11", "4.0.5"), ("3.12", "4.1.4"), ("3.13", "4.3.0")])
def test_the_demo_runs_from_wheels(tmp_path: Path, python: str, spark: str) -> None:
    for package in ("core", "backend-kafka"):
        uv("build", "--quiet", "--wheel", "--out-dir", tmp_path / "dist", ROOT / "packages" / package)
    uv("venv", "--quiet", "--no-python-downloads", "--python", python, tmp_path / "env")
    program = tmp_path / "env" / "bin" / "python"
    uv(
        "pip",
        "install",
        "--quiet",
        "--python",
        program,
        f"pyspark=={spark}",
        *sorted((tmp_path / "dist").glob("*.whl")),
    )
    # Outside of the sources, and with nothing of this environment.
    done = subprocess.run(
        [program.with_name("calving"), "demo", "--records", "20000"],
        cwd=tmp_path,
        env={
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "VIRTUAL"))
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
