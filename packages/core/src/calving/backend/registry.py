"""The backends by name, all of which packages register."""

from __future__ import annotations

from calving.backend.interface import Backend
from calving.plugins import Registry

BACKENDS = Registry("backend", extras=("kafka", "redis", "zookeeper"))


def find(name: str) -> type[Backend]:
    """The backend with the entry point ``name``; no other backend is imported.

    :raises ConfigError: the backend is not installed (the text names the extra to install), or two packages claim the
        name.
    """
    backend: type[Backend] = BACKENDS.find(name, Backend)
    return backend
