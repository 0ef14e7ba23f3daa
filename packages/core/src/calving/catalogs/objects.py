"""Properties of REST catalogs that pyiceberg takes as objects within objects: their TLS, and their login."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_OBJECTS = ("auth", "ssl")
_SHAPES: Mapping[str, Callable[[str], object]] = {
    "refresh_margin": int,
    "expires_in": int,
    "scopes": lambda text: [scope.strip() for scope in text.split(",")],
}
"""Parts of a login that are no text."""


def with_objects(properties: Mapping[str, str]) -> dict[str, Any]:
    """The properties, and those of a login and of TLS as pyiceberg wants them: ``ssl.client.key`` is ``key`` in the
    object ``client`` in the object ``ssl``.
    """
    out: dict[str, Any] = dict(properties)
    for name, text in properties.items():
        *path, last = name.split(".")
        if path and path[0] in _OBJECTS:
            here = out
            for part in path:
                here = here.setdefault(part, {})
            here[last] = _SHAPES.get(last, str)(text)
    return out
