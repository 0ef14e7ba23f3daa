"""The process of which others are forked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_it_serves_a_process_that_has_very_many_files_open(tmp_path: Path) -> None:
    code = (
        "import os; from pathlib import Path; from harness.nursery import Forked\n"
        "held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]\n"
        f"print(Forked('platform', [], Path({str(tmp_path / 'log')!r}), {{}}).wait(60))"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout.split() == ["0"]
