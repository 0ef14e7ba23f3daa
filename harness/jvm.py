"""Options for the JVMs of Spark that tests start. They live for seconds, and cost a third less with these."""

from __future__ import annotations

import fcntl
import functools
import subprocess
import sys
from pathlib import Path

from calving.engine.classic import class_archive
from calving.engine.spark import LOCAL_JAVA
from calving.host import cache_folder

_WRITE = "from calving.engine.interface import open_engine; open_engine('spark', 'test', {'spark.master': 'local[1]'}).close()"


@functools.cache
def java_options() -> str:
    """``LOCAL_JAVA``, and the archive of Spark's classes, for every JVM with the classpath of Spark's own scripts.

    The first process writes the archive, and others wait for it: if several started at once, each would write one.
    """
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "spark-archive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        archive = class_archive()
        if archive.will_be_written:
            archive.end(None)
            subprocess.run([sys.executable, "-c", _WRITE], capture_output=True, check=False)
            archive = class_archive()
        written = not archive.will_be_written
        archive.end(None)
    return " ".join([LOCAL_JAVA, *archive.options]) if written else LOCAL_JAVA


def spark() -> dict[str, str]:
    """Settings of a driver and its executors."""
    return {f"spark.{part}.extraJavaOptions": java_options() for part in ("driver", "executor")}


def write_defaults(folder: Path) -> None:
    """Give these settings to programs with ``SPARK_CONF_DIR`` = ``folder``."""
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in spark().items()))
