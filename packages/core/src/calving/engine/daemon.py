"""Spark's Python daemon with the data plane imported before it forks its workers (``spark.python.daemon.module``)."""

import gc
import sys

from calving.lean import without_pandas


def drop_archives() -> None:
    """Spark puts its Python sources on the path as archives, which hold no compiled code and are read again by every
    worker. Where they lie inside the installed package, that package takes their place.
    """
    for folder in list(sys.path):
        sources = f"{folder}/pyspark/python/lib/"
        for entry in [e for e in sys.path if e.startswith(sources) and e.endswith(".zip")]:
            sys.path.remove(entry)
            sys.path_importer_cache.pop(entry, None)


def preload() -> None:
    """Import what every worker needs, and no pandas. It stays: to collect garbage meanwhile, or to let a collection
    unshare its pages after the fork, is a waste.
    """
    gc.disable()
    import pyspark.worker  # noqa: F401 - Spark 4.3 would leave it to every worker

    without_pandas()
    import calving.tasks.task  # noqa: F401

    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    drop_archives()
    preload()
    from pyspark.daemon import manager

    manager()
