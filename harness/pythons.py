"""Versions of Python on this machine."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path

from calving.errors import NotInstalledError


def python(minor: int) -> str:
    """An interpreter of Python 3.``minor``: pyenv's, or the one on PATH. pyenv's commands on PATH refuse to run where no
    version is chosen.

    :raises NotInstalledError: there is none.
    """
    found = next(iter(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")), None)
    program = found or shutil.which(f"python3.{minor}")
    if program is None:
        raise NotInstalledError(f"this machine has no Python 3.{minor}")
    return str(program)


def another_python() -> str:
    """An interpreter of another minor version of Python 3.

    :raises NotInstalledError: there is none.
    """
    for minor in {11, 12, 13} - {sys.version_info.minor}:
        with contextlib.suppress(NotInstalledError):
            return python(minor)
    raise NotInstalledError("this machine has no other Python")
