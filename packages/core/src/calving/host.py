"""This machine: its Java, its cache folder, and the memory of this process; and archives of the classes of a program in
Java, parsed and verified once. Without one, a JVM spends up to half of its start on this work.

The first JVM writes the archive when it ends. Java ignores an archive of another version, or of jars with other
modification times; the archive's name depends on all of these. Java does not check whether an archive is complete, and
crashes on an incomplete one. So an archive gets its name only after its JVM has ended without an error. Archives are in
the user's cache folder: about 110 MB for Spark, 50 MB for Kafka.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
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


WRITING_SECONDS = 180
"""A JVM may take so long to write its archive and to end."""
_LEFT_BEHIND_SECONDS = 3600
_ENDED_WELL = (0, 143)
"""Exit codes of a JVM that ended by itself, and after SIGTERM."""


class ClassArchive:
    """The archive for one JVM that this process starts.

    ``options``: Java's options for the archive. ``will_be_written``: the JVM writes the archive when it ends. Only one
    JVM of this process does so at a time.
    """

    def __init__(self, name: str, home: Path, jars: Iterable[Path], java_options: Sequence[str]) -> None:
        """``home``: where the program is installed. ``java_options``: the other options of the JVM.

        :raises ConfigError: Java is not installed.
        """
        binary = Path(java()).resolve()
        stamps = sorted((jar.name, jar.stat().st_mtime_ns, jar.stat().st_size) for jar in jars)
        made_of = _digest(binary, binary.stat().st_mtime_ns, stamps, *java_options)
        self._path = cache_folder() / f"{name}-{_digest(home.resolve())}" / f"{made_of}.jsa"
        self._partial = self._path.with_suffix(f".{os.getpid()}")
        self.options: list[str] = []
        self.will_be_written = False
        if " " in str(self._path):
            return  # Spark would take the path as two options
        if self._path.exists():
            self.options = [f"-XX:SharedArchiveFile={self._path}", "-Xlog:cds*=off"]
        elif _writable(self._path.parent):
            _tidy(self._path.parent)
            with contextlib.suppress(FileExistsError):
                self._partial.touch(exist_ok=False)
                self.will_be_written = True
                self.options = [f"-XX:ArchiveClassesAtExit={self._partial}", "-Xlog:cds*=off"]

    def end(self, code: int | None) -> None:
        """Call it once the JVM has ended with this code. None: it was killed, or runs on."""
        if not self.will_be_written:
            return
        self.will_be_written = False
        with contextlib.suppress(OSError):
            if code not in _ENDED_WELL or not self._partial.stat().st_size:
                self._partial.unlink()
                return
            self._partial.rename(self._path)
            # Delete archives of a former version of the program or of Java.
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
