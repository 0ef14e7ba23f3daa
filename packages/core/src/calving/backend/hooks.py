"""Finds backends: the entry point of a backend's name refers to a module, whose one hook returns a class.

The hook is a function ``calving_register_backend`` without parameters, marked with ``hookimpl``.
"""

from __future__ import annotations

import pluggy

from calving.backend.interface import Backend
from calving.plugins import Registry

BACKENDS = Registry("backend", extras=("kafka", "redis", "zookeeper"))

hookimpl = pluggy.HookimplMarker("calving")


def find(name: str) -> type[Backend]:
    """The backend with the entry point ``name``; no other backend is imported.

    :raises ConfigError: the backend is not installed (the text names the extra to install), or two packages claim the
        name.
    """
    found: type[Backend] = BACKENDS.find(name, Backend)
    return found
