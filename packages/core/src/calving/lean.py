"""Makes the processes of tasks cheap: no pandas where nobody needs it, and freed memory that is used again."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_MIB = 1024 * 1024
_MALLOC = (
    ("MALLOC_MMAP_THRESHOLD_", -3, 32 * _MIB),
    ("MALLOC_TRIM_THRESHOLD_", -1, 64 * _MIB),
    ("MALLOC_TOP_PAD_", -2, 16 * _MIB),
)
"""Settings of glibc's memory: the variable that a user may set, mallopt's number of the parameter, and our value."""


class _Refusing(MetaPathFinder):
    """Refuses the import of pandas in one thread. Another thread may import pandas meanwhile, as Spark Connect does."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "pandas" and threading.get_ident() == self._thread:
            raise ImportError("calving keeps pandas out of this thread")


class _PandasFinder(MetaPathFinder):
    """Makes pyarrow look for pandas again once other code has imported pandas, for example a user's transform."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "pandas" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _PandasLoader(spec.loader)
        return spec


class _PandasLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        import pyarrow.lib

        _ = pyarrow.lib._pandas_api.pd  # accessing it makes pyarrow look


def without_pandas() -> None:
    """Make pyarrow's one-time search for pandas fail, until other code imports pandas.

    pyarrow looks for pandas when it makes its first scalar. That happens when pyiceberg imports pyarrow's datasets. If
    pandas is installed, its import takes longer than everything else at start. Call this only in processes that run
    nothing but calving.
    """
    if "pandas" in sys.modules or any(isinstance(finder, _PandasFinder) for finder in sys.meta_path):
        return
    refusing = _Refusing()
    sys.meta_path.insert(0, refusing)
    try:
        import pyarrow.dataset  # noqa: F401 - to have it look
    finally:
        sys.meta_path.remove(refusing)
    sys.meta_path.insert(0, _PandasFinder())


def keep_freed_memory() -> None:
    """Make the C library keep up to 64 MiB of freed memory for each of its heaps, instead of returning it to the system
    at once. Call it before the process starts threads, and before it imports pyarrow.

    A task needs buffers of the same sizes for each block of records. Without this the system takes their pages away and
    clears new ones, block after block: a quarter of the CPU that fetching costs. Arrow's own allocator returns memory
    within a second, so Arrow takes the C library's, unless the user has set ``ARROW_DEFAULT_MEMORY_POOL``. Nothing
    happens without glibc, or if the user has set ``MALLOC_TRIM_THRESHOLD_``, ``MALLOC_TOP_PAD_`` or
    ``MALLOC_MMAP_THRESHOLD_``.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(variable in os.environ for variable, _, _ in _MALLOC):
        return
    for _, parameter, size in _MALLOC:
        mallopt(parameter, size)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


@cache
def freeze_imports(step: str) -> None:
    """Exclude all objects that exist now from garbage collection: nearly all belong to libraries that this process has
    imported for ``step``. Only the first call for each step does so.

    Spark collects the garbage of a Python process after each task, which takes 0.1 CPU s for objects that stay anyway.
    """
    gc.freeze()
