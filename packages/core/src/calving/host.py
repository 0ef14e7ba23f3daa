"""This machine: its Java, its cache folder, and the memory of this process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calving.errors import NotInstalledError


def java() -> str:
    """The path of the ``java`` command, the same command that PySpark finds.

    :raises NotInstalledError: Java is not installed.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if program is None and home:
        raise NotInstalledError(f"JAVA_HOME = {home}: it has no bin/java: correct it, or unset it for the java on PATH")
    if program is None:
        raise NotInstalledError(
            "Java was not found: install a JDK or JRE 17 or 21 and put it on PATH, or set JAVA_HOME"
        )
    return program


_LEAST_JAVA = 17


def check_java() -> None:
    """:raises NotInstalledError: Java is not installed, is too old for Spark, or does not run."""
    program = java()
    done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    if match is None:
        raise NotInstalledError(f"{program} -version does not say the version of Java: install a JDK or JRE 17 or 21")
    if int(match[1]) < _LEAST_JAVA:
        raise NotInstalledError(
            f"{program} is Java {match[1]}, too old for Spark: install a JDK or JRE 17 or 21 and put it on PATH, or set"
            " JAVA_HOME"
        )


def python_environment() -> dict[str, str]:
    """The environment in which another Python of this machine finds the modules that this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def cache_folder() -> Path:
    """calving's own cache folder of this user. It may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "calving"


_LIMITED = threading.Lock()


@contextmanager
def memory_limit(extra: int) -> Iterator[None]:
    """While this is open, the process cannot take more than ``extra`` bytes beyond what it has: what asks for more gets
    an error of its allocator, and so does a thread that starts. Only on Linux, and only once at a time, because the
    limit is of the whole process: elsewhere, and in other threads meanwhile, this does nothing.
    """
    taken = _data_bytes()
    if taken is None or not _LIMITED.acquire(blocking=False):
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [taken + extra, *(bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY)]
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        _LIMITED.release()


def resident_bytes() -> int | None:
    """The memory of the machine that this process has; None if the system does not tell it."""
    return _memory(1)


def _data_bytes() -> int | None:
    """The private memory of this process that can be written; None if the system does not tell it."""
    return _memory(5)


def _memory(place: int) -> int | None:
    try:
        return int(Path("/proc/self/statm").read_text().split()[place]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
