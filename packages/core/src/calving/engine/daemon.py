"""Spark's Python daemon with the data plane imported before it forks its workers (``spark.python.daemon.module``)."""

from pyspark.daemon import manager

import calving.data.task  # noqa: F401

if __name__ == "__main__":
    manager()
