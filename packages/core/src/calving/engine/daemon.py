"""Spark's Python daemon with the data plane imported before it forks its workers (``spark.python.daemon.module``)."""

import gc
import sys

from calving.lean import keep_freed_memory, without_pandas


def drop_archives() -> None:
    """Replace Spark's archives on the path by the installed package, if they are inside this package. Spark puts its
    Python sources on the path as archives, which hold no compiled code, so every worker reads them again.
    """
    for folder in list(sys.path):
        sources = f"{folder}/pyspark/python/lib/"
        for entry in [e for e in sys.path if e.startswith(sources) and e.endswith(".zip")]:
            sys.path.remove(entry)
            sys.path_importer_cache.pop(entry, None)


def preload() -> None:
    """Import and make what every worker needs, and no pandas. All of it stays in memory for ever, so garbage is not
    collected meanwhile, and later collections leave their pages shared after the fork.
    """
    gc.disable()
    import pyspark.worker  # noqa: F401 - Spark 4.3 would leave it to every worker

    without_pandas()
    import calving.tasks.task  # noqa: F401
    from calving.tasks.spec import reader

    reader()
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    drop_archives()
    keep_freed_memory()
    preload()
    from pyspark.daemon import manager

    manager()
