"""The data source ``calving``, where Spark looks for it.

Spark imports every module of the top level whose name begins with ``pyspark_``, and registers its ``DefaultSource``. So
nobody has to register it::

    df.write.format("calving").mode("append").option("table", "lake.orders").options(**catalog).save()
"""

from calving_spark.source import DefaultSource

__all__ = ["DefaultSource"]
