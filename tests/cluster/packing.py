"""An environment with calving, packed as the manual says, for Spark to ship."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

from harness import native_wheel
from tests.cli.commands import Cli

ROOT = Path(__file__).parents[2]
_PAGE = ROOT / "docs" / "how-to" / "cluster.md"


class Packed:
    """``archive``: made by the manual's commands."""

    def __init__(self, folder: Path) -> None:
        self.archive = folder / "env.tar.gz"
        made = folder / "made"
        _uv("venv", "--quiet", "--python", sys.executable, made)
        for package in ("core", "backend-kafka"):
            _uv("build", "--quiet", "--wheel", "--out-dir", folder / "dist", ROOT / "packages" / package)
        pinned = ("--constraint", ROOT / "requirements.lock", f"pyspark=={pyspark.__version__}")
        target = ("--python", made / "bin" / "python", "--find-links", folder / "dist")
        # uv's cache knows a wheel by its folder and version, not by what it holds.
        rebuilt = [f"--refresh-package={name}" for name in ("calving", "calving-kafka", "calving-native")]
        _uv(
            "pip",
            "install",
            "--quiet",
            *target,
            *native_wheel.options(),
            *rebuilt,
            *pinned,
            "calving[kafka]",
            "venv-pack",
        )
        page = _PAGE.read_text()
        (command,) = re.findall(r"^ *(venv-pack .*)$", page, re.MULTILINE)
        env = {**os.environ, "VIRTUAL_ENV": str(made), "PATH": f"{made / 'bin'}:{os.environ['PATH']}"}
        subprocess.run(f"{command} --compress-level 1 --quiet", shell=True, check=True, cwd=folder, env=env)
        shutil.rmtree(made)
        (script,) = re.findall(r'^```python title="run.py"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
        self._script = folder / "run.py"
        self._script.write_text(script)

    def submit(self, sink: Cli, master: str) -> None:
        """The sink, until it has caught up, through spark-submit."""
        settings = {"spark.pyspark.python": "./env/bin/python", "spark.pyspark.driver.python": sys.executable}
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", master]
        command += ["--archives", f"{self.archive}#env"]
        command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        command += [str(self._script), "run", "--until-caught-up", str(sink.config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def _uv(*arguments: str | Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    program = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    done = subprocess.run([program, *map(str, arguments)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
