"""The demo from nothing but wheels, on each version of Python that is supported, each with another version of PySpark."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness import native_wheel
from harness.pythons import python
from tests.packaging.test_wheels import ROOT, uv

pytestmark = pytest.mark.services
BACKENDS = ("kafka", "redis", "zookeeper")
_LOAD_BACKENDS = """
from importlib.metadata import entry_points
print(*sorted(point.name for point in entry_points(group="calving.backends") if point.load()))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of every distribution. That of the decoders in Rust needs cargo, as for users without a wheel for their system."""
    folder = tmp_path_factory.mktemp("dist")
    for package in ("core", *(f"backend-{name}" for name in BACKENDS), *(["native"] if shutil.which("cargo") else [])):
        uv("build", "--quiet", "--wheel", "--out-dir", folder, ROOT / "packages" / package)
    return sorted(folder.glob("*.whl"))


@pytest.mark.parametrize(("minor", "spark"), [(11, "4.0.5"), (12, "4.1.4"), (13, "4.3.0")])
def test_the_demo_runs_from_wheels(wheels: list[Path], tmp_path: Path, minor: int, spark: str) -> None:
    uv("venv", "--quiet", "--no-python-downloads", "--python", python(minor), tmp_path / "env")
    program = tmp_path / "env" / "bin" / "python"
    # uv's cache knows a wheel by its folder and version, not by what it holds.
    rebuilt = [f"--refresh-package={wheel.name.partition('-')[0].replace('_', '-')}" for wheel in wheels]
    left_out = [] if shutil.which("cargo") else native_wheel.options()
    uv("pip", "install", "--quiet", "--python", program, *rebuilt, *left_out, f"pyspark=={spark}", *wheels)

    def run(*command: str | Path) -> str:
        # Outside of the sources, and with nothing of this environment.
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "VIRTUAL"))
        }
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert run(program, "-c", _LOAD_BACKENDS).split() == sorted([*BACKENDS, "memory"])
    if shutil.which("cargo"):
        assert "native decoders: in use" in run(program.with_name("calving"), "version")
    run(program.with_name("calving"), "demo", "--records", "20000")
