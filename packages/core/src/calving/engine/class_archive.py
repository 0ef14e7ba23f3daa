"""Spark's classes, parsed and verified once: half of what a local JVM spends until its first task runs.

The JVM makes the archive when it ends and checks it when it starts: one that is torn, or is of other jars or of another
Java, is not used. It lies in the user's cache, about 110 MB for each Spark.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pyspark

from calving.host import cache_folder, java


def options(base: str) -> str:
    """Java options: ``base``, and to read the archive, or to leave one if there is none.

    :raises ConfigError: there is no Java.
    """
    binary = Path(java()).resolve()
    parts = (binary, binary.stat().st_mtime_ns, pyspark.__file__, pyspark.__version__, base)
    archive = cache_folder() / f"spark-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}.jsa"
    if archive.exists():
        how = f"-XX:SharedArchiveFile={archive}"
    elif _writable(archive.parent) and " " not in str(archive):
        how = f"-XX:ArchiveClassesAtExit={archive}"
    else:
        return base
    return f"{base} {how} -Xlog:cds*=off"


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
