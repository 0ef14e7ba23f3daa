"""What Spark writes to files of its own on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.jvm import java_options

pytestmark = pytest.mark.services

CANARY = "KaNaRi"
PROGRAM = """
import functools, json, os, pathlib, sys

remove, gone = os.unlink, []

def unlink(path, *more, **named):
    if os.path.isfile(path):
        gone.append(pathlib.Path(path).read_bytes())
    remove(path, *more, **named)

os.unlink = unlink

from calving.engine.classic import ClassicEngine

if __name__ == "__main__":
    properties, folder, canary = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
    engine = ClassicEngine("x", properties, ())
    large = functools.partial(max, canary * 400_000)  # Spark sends such a function apart from the task
    made = engine.map_job(str.upper, [canary]), engine.map_job(large, ["a"])
    assert made[0] == [canary.upper()] and made[1][0] == "a"
    files = [path.read_bytes() for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    print(len(gone) + len(files), sum(canary.encode() in text for text in (*gone, *files)))
    engine.close()
"""


@pytest.mark.parametrize(
    ("keys", "is_silent"),
    [({}, True), pytest.param({"spark.io.encryption.enabled": "false"}, False, marks=pytest.mark.long)],
)
def test_no_task_is_written_to_a_temporary_file(keys: dict[str, str], is_silent: bool, tmp_path: Path) -> None:
    """Unless the configuration says that Spark may: then it does, for a moment."""
    properties = {
        "spark.master": "local[1]",
        "spark.local.dir": str(tmp_path),
        "spark.driver.extraJavaOptions": java_options(),
        **keys,
    }
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), json.dumps(properties), str(tmp_path), CANARY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    files, shown = map(int, done.stdout.split())
    assert (files > 0 and shown == 0) if is_silent else shown > 0
