"""Archives of the classes of a program in Java, parsed and verified once. Without one, a JVM spends up to half of its
start on this work.

The first JVM writes the archive when it ends. Java ignores an archive of another version, or of jars with other
modification times; the archive's name depends on all of these. Java does not check whether an archive is complete, and
crashes on an incomplete one. So an archive gets its name only after its JVM has ended without an error. Archives are in
the user's cache folder: about 110 MB for Spark, 50 MB for Kafka.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from calving.host import cache_folder, java

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
