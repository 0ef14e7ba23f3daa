"""An archive of Spark's classes, parsed and verified once. Without it, a local JVM spends half of its start on this
work.

The first JVM writes the archive when it ends. Java ignores an archive of another version, or of jars with other
modification times; the archive's name depends on all of these. Java does not check whether an archive is complete, and
crashes on an incomplete one. So an archive gets its name only after its JVM has ended without an error. Archives are in
the user's cache folder, about 110 MB for each Spark.
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

_WRITING_SECONDS = 180
_LEFT_BEHIND_SECONDS = 3600


class ClassArchive:
    """The archive for one JVM that this process starts. ``options``: the Java options, which are ``base`` and the
    options for the archive.
    """

    def __init__(self, base: str) -> None:
        """:raises ConfigError: Java is not installed."""
        home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent).resolve()
        jars = sorted((jar.name, jar.stat().st_mtime_ns, jar.stat().st_size) for jar in home.glob("jars/*.jar"))
        binary = Path(java()).resolve()
        folder = cache_folder() / f"spark-{_digest(home)}"
        self._path = folder / f"{_digest(binary, binary.stat().st_mtime_ns, jars, base)}.jsa"
        self._partial: Path | None = None
        self.options = base
        if SparkContext._gateway is not None or " " in str(self._path):
            return  # the JVM runs already, or would take the path as two options
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
        jvm.stdin.close()  # the JVM ends when its input is closed
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            if jvm.wait(_WRITING_SECONDS) == 0:
                self._partial.rename(self._path)
                # Delete archives of a former Spark or Java.
                for other in self._path.parent.glob("*.jsa"):
                    if other != self._path:
                        other.unlink()


def _tidy(folder: Path) -> None:
    """Delete files of JVMs that were killed while they wrote an archive."""
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
