"""Compares places of files. An entry of the control log may name a file anywhere, because anybody may write entries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

_SAME = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb", "gcs": "gs"}
"""Schemes that are other names of one storage."""
_LOCATION = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(.*)", re.DOTALL)
_STEPS = re.compile(r"[/\\]")
_CUT = re.compile(r"[\x00-\x1f\x7f?#]")
"""Characters at which a storage library may cut a path off, or which it may leave out: then it takes another file."""
_SLASHES = re.compile(r"/{2,}")


class _Place(NamedTuple):
    scheme: str
    authority: str
    path: str

    @staticmethod
    def of(text: str) -> _Place:
        scheme, authority, path = _LOCATION.fullmatch(text).groups()  # type: ignore[union-attr]  # it matches any text
        scheme = (scheme or "file").lower()
        return _Place(_SAME.get(scheme, scheme), authority or "", path)


@lru_cache(maxsize=1_000)
def _root(location: str) -> _Place:
    """A location that many files are compared with, its path with a slash at the end."""
    place = _Place.of(location)
    return place._replace(path=place.path.rstrip("/") + "/")


def is_below(path: str, location: str) -> bool:
    """Whether the file ``path`` is below ``location``. A path with a step such as ``..`` is never below, because a
    storage may take this step for the way out; nor is one with ``?`` or ``#`` after the location, because PyArrow would
    read and delete the file before this character. Only names of one storage, such as ``s3`` and ``s3a``, are the same:
    a bucket and a path are compared letter by letter.
    """
    place, root = _Place.of(path), _root(location)
    folder = root.path
    if place[:2] != root[:2] or not place.path.startswith(folder):
        return False
    below = place.path[len(folder) :]
    inside = _STEPS.split(below)
    return _CUT.search(below) is None and inside[-1] != "" and not any(step in (".", "..") for step in inside)


def is_below_any(path: str, locations: Iterable[str]) -> bool:
    """Whether the file ``path`` is below one of these locations."""
    return any(is_below(path, location) for location in locations)


def one_name(path: str) -> str:
    """The same text for all names that a storage may have for one file."""
    place = _Place.of(path)
    return f"{place.scheme}://{place.authority}{_SLASHES.sub('/', place.path)}"
