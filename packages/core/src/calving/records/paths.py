"""Names of fields that an update has changed: dotted paths into a row, whose steps may be numbers of elements."""

from __future__ import annotations

import re
from typing import NamedTuple

NUMBER = re.compile("0|[1-9][0-9]{0,8}")
"""The number of an element."""
_CUT = ".\0"
"""No field of BSON has a zero byte in its name."""


class FieldChange(NamedTuple):
    """A field that was changed; or, with a ``size``, an array that was cut off, and how many elements are left."""

    path: tuple[str, ...]
    size: int | None = None


def cut_name(name: str, size: int) -> str:
    """The name of the field, always null, that says how many elements an array has left."""
    return f"{name}{_CUT}{size}"


def change_of(name: str) -> FieldChange:
    """What the field of this name says."""
    path, _, size = name.partition(_CUT)
    return FieldChange(tuple(path.split(".")), int(size) if size else None)


def is_cut(name: str) -> bool:
    """Whether ``cut_name`` has made the name."""
    return _CUT in name
