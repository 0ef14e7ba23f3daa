"""How backends are found: an entry point of that name names a module, its one hook returns a class."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import cast

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
    """The backend called ``name``, which is the name of its entry point, too; no other is imported.

    :raises ConfigError: it is not installed (the text names the extra to install), or two packages claim the name.
    """
    installed = entry_points(group=GROUP)
    modules = sorted({entry.value for entry in installed.select(name=name)})
    if len(modules) > 1:
        raise ConfigError(f"several installed packages provide the backend '{name}': {', '.join(modules)}")
    if modules:
        manager = pluggy.PluginManager("calving")
        manager.add_hookspecs(BackendSpec)
        manager.load_setuptools_entrypoints(GROUP, name)
        (found,) = manager.hook.calving_register_backend()
        return cast("type[Backend]", found)
    if name in OURS:
        raise ConfigError(f"the backend '{name}' is not installed: pip install \"calving[{name}]\"")
    raise ConfigError(f"there is no backend '{name}'; installed are: {', '.join(sorted(installed.names))}")
