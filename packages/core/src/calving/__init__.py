"""calving moves Kafka topics into Apache Iceberg tables, exactly once, on Spark.

::

    import calving

    sink = calving.load("sink.toml")
    for line in calving.validate(sink):
        print(line)
    calving.Worker(sink).run(until_caught_up=True)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from calving.version import __version__

if TYPE_CHECKING:
    from calving.api import Worker, build, load, validate
    from calving.errors import (
        BadRecordError,
        CalvingError,
        ConfigError,
        DataLossError,
    )
    from calving.settings.load import Sink
    from calving.status.board import Progress

__all__ = [
    "BadRecordError",
    "CalvingError",
    "ConfigError",
    "DataLossError",
    "Progress",
    "Sink",
    "Worker",
    "__version__",
    "build",
    "load",
    "validate",
]

_PLACES = {
    **dict.fromkeys(("Worker", "build", "load", "validate"), "calving.api"),
    **dict.fromkeys(("BadRecordError", "CalvingError", "ConfigError", "DataLossError"), "calving.errors"),
    "Progress": "calving.status.board",
    "Sink": "calving.settings.load",
}


def __getattr__(name: str) -> object:
    # These names are loaded at their first use: tasks import this package on every Python worker and use none of the
    # names.
    if name not in _PLACES:
        raise AttributeError(f"module 'calving' has no attribute '{name}'")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
