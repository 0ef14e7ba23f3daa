"""The wheel of calving-native, on which calving depends, and which no index has before a release."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path(__file__).parents[1]
WHEEL = os.environ.get("CALVING_NATIVE_WHEEL") or None
"""The wheel that ``make`` has built; None where there is no cargo."""


def options() -> list[str | Path]:
    """Options of uv, which say where the wheel is, or leave it out.

    The folders of ``UV_FIND_LINKS`` are named again, because an option replaces them. PySpark's wheel lies there; without it
    uv builds one from half a gigabyte of sources, and needs gigabytes of disk for that.
    """
    made: list[str | Path] = [folder for folder in os.environ.get("UV_FIND_LINKS", "").split(",") if folder]
    folders = [*made, (_ROOT / WHEEL).parent] if WHEEL else made
    links = [option for folder in folders for option in ("--find-links", folder)]
    return links if WHEEL else [*links, "--override", _ROOT / "without-native.txt"]
