"""A Spark Python daemon whose first task fails, or never ends, after it has written its files."""

import os
import time
from pathlib import Path

from pyspark.daemon import manager

from calving.tasks import task

MARKER = Path(os.environ.get("FLAKY_MARKER", "/nonexistent"))
_run_json = task.run_json


def run_json(text: str) -> str:
    result = _run_json(text)
    try:
        MARKER.touch(exist_ok=False)
    except FileExistsError:
        return result
    if os.environ.get("FLAKY_HANGS"):
        time.sleep(600)
    raise RuntimeError("the executor was lost after it had written its files")


task.run_json = run_json

if __name__ == "__main__":
    manager()
