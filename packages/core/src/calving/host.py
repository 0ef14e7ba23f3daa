"""Facts about this machine: its Java, and its cache folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from calving.errors import NotInstalledError


def java() -> str:
    """The path of the ``java`` command, the same command that PySpark finds.

    :raises NotInstalledError: Java is not installed.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise NotInstalledError(
            "Java was not found: install a JDK or JRE 17 or 21 and put it on PATH, or set JAVA_HOME"
        )
    return found


def cache_folder() -> Path:
    """calving's own cache folder of this user. It may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "calving"
