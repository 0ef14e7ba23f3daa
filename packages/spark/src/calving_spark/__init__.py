"""Spark's own streams and batches into Iceberg tables, exactly once, without jars.

The data source ``calving`` writes data files in Spark's tasks, and commits them in one snapshot for each
micro-batch. The ledger of the stream is in that same snapshot, so a repeated batch finds itself there and adds
nothing::

    stream = df.writeStream.format("calving").option("table", "lake.orders").option("sink", "orders")
    stream.options(**catalog).option("checkpointLocation", folder).start()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calving_spark.foreach import write_batch

__all__ = ["__version__", "write_batch"]
__version__ = "0.2.0.dev0"


def __getattr__(name: str) -> object:
    # Loaded at its first use, because tasks import this package, too, and do not use it.
    if name != "write_batch":
        raise AttributeError(f"module 'calving_spark' has no attribute '{name}'")
    from calving_spark.foreach import write_batch

    return write_batch
