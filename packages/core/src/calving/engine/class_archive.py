"""Spark's classes, parsed and verified once: half of what a local JVM spends until its first task runs.

The first JVM writes them when it ends. Java passes by an archive of another version, or of jars with other times: its
name tells them all. It does not look whether one is whole, and falls over one that is torn: so it gets its name only
once its JVM has ended well. It lies in the user's cache, about 110 MB for each Spark.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import subprocess
import time
from pathlib import Path

import pyspark
from pyspark import SparkContext

from calving.host import cache_folder, java

log = logging.getLogger(__name__)

_WRITING_SECONDS = 60
_LEFT_BEHIND_SECONDS = 3600


class ClassArchive:
    """For one JVM that this process starts. ``options``: Java options, ``base`` and those for the archive."""

    def __init__(self, base: str) -> None:
        """:raises ConfigError: there is no Java."""
        home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent).resolve()
        jars = sorted((jar.name, jar.stat().st_mtime_ns, jar.stat().st_size) for jar in home.glob("jars/*.jar"))
        binary = Path(java()).resolve()
        folder = cache_folder() / f"spark-{_digest(home)}"
        self._path = folder / f"{_digest(binary, binary.stat().st_mtime_ns, jars, base)}.jsa"
        self._partial: Path | None = None
        self.options = base
        if SparkContext._gateway is not None or " " in str(self._path):
            return  # the JVM runs already, or would take the path for two options
        if self._path.exists():
            self.options = f"{base} -XX:SharedArchiveFile={self._path} -Xlog:cds*=off"
        elif _writable(self._path.parent):
            _tidy(self._path.parent)
            self._partial = self._path.with_suffix(f".{os.getpid()}")
            self.options = f"{base} -XX:ArchiveClassesAtExit={self._partial} -Xlog:cds*=off"

    def close(self) -> None:
        """Call it once Spark has stopped. If the archive is missing, end the JVM, and wait some seconds for it."""
        gateway = SparkContext._gateway
        jvm = getattr(gateway, "proc", None)
        if self._partial is None or gateway is None or not isinstance(jvm, subprocess.Popen) or jvm.stdin is None:
            return
        log.info("writing an archive of Spark's classes for later starts, which takes some seconds, once")
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        jvm.stdin.close()  # it ends when its input is closed
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            if jvm.wait(_WRITING_SECONDS) == 0:
                self._partial.rename(self._path)
                # Those of a Spark or a Java that was here before.
                for other in self._path.parent.glob("*.jsa"):
                    if other != self._path:
                        other.unlink()


def _tidy(folder: Path) -> None:
    """Files of JVMs that were killed while they wrote."""
    for left in folder.iterdir():
        with contextlib.suppress(OSError):
            if left.suffix != ".jsa" and time.time() - left.stat().st_mtime > _LEFT_BEHIND_SECONDS:
                left.unlink()


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
