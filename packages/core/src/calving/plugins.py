"""Parts that settings choose by name: calving's own, and those that other packages register.

A package registers a part by an entry point of the group ``calving.<what>s``. The entry point names the part itself,
``package.module:Class``, or a module whose pluggy hook ``calving_register_<what>`` returns it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from calving.errors import ConfigError
from calving.wording import meant

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


@dataclass(frozen=True, slots=True)
class Registry:
    """All parts of one kind. A part is imported only when it is looked up."""

    what: str
    """One word for a part of this kind, such as ``converter``."""
    own: Mapping[str, str] = field(default_factory=dict)
    """calving's own parts by name, as ``module:attribute``. Another package cannot take these names."""
    extras: Collection[str] = ()
    """Names that come with the extra of calving of the same name."""
    theirs: Mapping[str, str] = field(default_factory=dict)
    """Names of other projects' parts, with the names of those here that do the same."""
    direct: bool = False
    """Whether ``module:attribute`` is accepted as a name."""
    also: tuple[str, ...] = ()
    """Other accepted forms of a name, for the error that lists the names."""

    def find(self, name: str, base: type = object) -> Any:
        """The part of this name.

        :raises ConfigError: there is no such part, several packages claim the name, the part cannot be loaded, or it is
            not a subclass of ``base`` (if one is given).
        """
        if name in self.own:
            return _load(self.own[name])
        try:
            part = _load(name) if self._is_direct(name) else self._loaded(self._entry(name))
        except ConfigError:
            raise
        except Exception as error:  # whatever modules of other packages raise
            is_absent = isinstance(error, ImportError | AttributeError)
            why = f"is it installed here, and spelt right? ({error})" if is_absent else error
            raise ConfigError(f"the {self.what} '{name}' cannot be loaded: {why}") from error
        if base is not object and not (isinstance(part, type) and issubclass(part, base)):
            raise ConfigError(f"the {self.what} '{name}' is not a subclass of {base.__module__}.{base.__qualname__}")
        return part

    def check(self, name: str) -> None:
        """Check a name without importing anything.

        :raises ConfigError: there is no part of this name, or several packages claim the name.
        """
        if name not in self.own and not self._is_direct(name):
            self._entry(name)

    def unknown(self, name: str) -> ConfigError:
        """The error for an unknown name, which lists the known names."""
        if name in self.extras:
            return ConfigError(f"the {self.what} '{name}' is not installed: pip install \"calving[{name}]\"")
        short = name.rpartition(".")[2].partition("$")[0]
        if short in self.theirs:
            return ConfigError(f"there is no {self.what} '{name}'; {self.theirs[short]} does the same")
        if hint := meant(short, [*self.own, *self._entries().names], 0.6):
            return ConfigError(f"there is no {self.what} '{name}'{hint}")
        there = [*self.own, *sorted(self._entries().names), *self.also, *(["module:name"] if self.direct else [])]
        return ConfigError(f"there is no {self.what} '{name}'; there are: {', '.join(there)}")

    def _is_direct(self, name: str) -> bool:
        return self.direct and ":" in name

    def _entry(self, name: str) -> EntryPoint:
        by_target = {entry.value: entry for entry in self._entries().select(name=name)}
        if not by_target:
            raise self.unknown(name)
        if len(by_target) > 1:
            claims = ", ".join(sorted(by_target))
            raise ConfigError(f"several installed packages provide the {self.what} '{name}': {claims}")
        return next(iter(by_target.values()))

    def _entries(self) -> EntryPoints:
        # Imported here, because a sink that uses only calving's own parts does not need it.
        from importlib.metadata import entry_points

        return entry_points(group=f"calving.{self.what}s")

    def _loaded(self, entry: EntryPoint) -> Any:
        loaded = entry.load()
        return self._hooked(loaded) if isinstance(loaded, ModuleType) else loaded

    def _hooked(self, module: ModuleType) -> Any:
        import pluggy

        manager = pluggy.PluginManager("calving")
        manager.register(module)
        hook = getattr(manager.hook, f"calving_register_{self.what}", None)
        returned = hook() if hook is not None else []
        if not returned:
            raise ImportError(f"the module {module.__name__} has no hook calving_register_{self.what} that returns it")
        return returned[0]


def _load(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)
