"""Spark's own streams and batches into Iceberg tables, exactly once, without jars.

The data source ``calving`` writes data files in Spark's tasks, and commits them in one snapshot for each
micro-batch. The ledger of the stream is in that same snapshot, so a repeated batch finds itself there and adds
nothing::

    stream = df.writeStream.format("calving").option("table", "lake.orders").option("sink", "orders")
    stream.options(**catalog).option("checkpointLocation", folder).start()
"""

__version__ = "0.2.0.dev0"
