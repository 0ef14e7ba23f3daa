"""The wheel of calving-native, on which calving depends, and which no index has before a release."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path(__file__).parents[1]
WHEEL = os.environ.get("CALVING_NATIVE_WHEEL") or None
"""The wheel that ``make`` has built; None where there is no cargo."""


def options() -> list[str | Path]:
    """Options of uv, which say where the wheel is, or leave it out."""
    return ["--find-links", (_ROOT / WHEEL).parent] if WHEEL else ["--override", _ROOT / "without-native.txt"]
