"""How backends are found: an entry point names a module, its one hook returns a class."""

from __future__ import annotations

import pluggy

from calving.backend.interface import Backend
from calving.errors import ConfigError

GROUP = "calving.backends"
OURS = ("kafka", "redis", "zookeeper")

hookspec = pluggy.HookspecMarker("calving")
hookimpl = pluggy.HookimplMarker("calving")


class BackendSpec:
    @hookspec
    def calving_register_backend(self) -> type[Backend]:  # type: ignore[empty-body]
        """The backend class of this package."""


def find(name: str) -> type[Backend]:
    """The backend called ``name``.

    :raises ConfigError: it is not installed (the text names the extra to install), or two packages claim the name.
    """
    manager = pluggy.PluginManager("calving")
    manager.add_hookspecs(BackendSpec)
    manager.load_setuptools_entrypoints(GROUP)
    found: dict[str, type[Backend]] = {}
    for backend in manager.hook.calving_register_backend():
        other = found.setdefault(backend.name, backend)
        if other is not backend:
            raise ConfigError(f"two installed packages provide the backend '{backend.name}': {other} and {backend}")
    if name in found:
        return found[name]
    if name in OURS:
        raise ConfigError(f"the backend '{name}' is not installed: pip install \"calving[{name}]\"")
    raise ConfigError(f"there is no backend '{name}'; installed are: {', '.join(sorted(found))}")
