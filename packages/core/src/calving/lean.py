"""A process of our own starts with less."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _Refusing(MetaPathFinder):
    """Of one thread: another may import pandas meanwhile, as Spark Connect does."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "pandas" and threading.get_ident() == self._thread:
            raise ImportError("this process makes no frames")


def without_pandas() -> None:
    """Have pyarrow find out, which it does once, that there is no pandas.

    It looks as soon as it makes its first scalar, on import of its datasets, which pyiceberg does; where pandas happens
    to be installed that takes longer than everything else at start. Only for processes that are ours alone: what others
    hand to pyarrow afterwards is no frame to it.
    """
    if "pandas" in sys.modules:
        return
    refusing = _Refusing()
    sys.meta_path.insert(0, refusing)
    try:
        import pyarrow.dataset  # noqa: F401 - to have it look
    finally:
        sys.meta_path.remove(refusing)
