"""Ends a compaction by Iceberg's Java library that began earlier:
``python -m tests.readback.compaction CATALOG TABLE SNAPSHOT OLD NEW``.

It has read the data file OLD as of SNAPSHOT and written its rows to NEW. It commits as Iceberg's own action does: checked from
that snapshot on, with its sequence number. Prints what Java says.
"""

from __future__ import annotations

import sys
from typing import Any

from py4j.protocol import Py4JJavaError

from harness.spark_reader import session


def main() -> None:
    where, name, snapshot, old, new = sys.argv[1:]
    with session(where) as spark:
        java: Any = spark._jvm
        table = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"iceberg.{name}")
        rewrite = table.newRewrite().validateFromSnapshot(int(snapshot))
        rewrite.dataSequenceNumber(table.snapshot(int(snapshot)).sequenceNumber())
        read = _file(table, int(snapshot), old)
        written = java.org.apache.iceberg.DataFiles.builder(table.spec()).copy(read).withPath(new).build()
        try:
            rewrite.deleteFile(read).addFile(written).commit()
        except Py4JJavaError as error:
            print(f"REFUSED {error.java_exception.getMessage()}")
        else:
            print("LANDED")


def _file(table: Any, snapshot: int, path: str) -> Any:
    tasks = table.newScan().useSnapshot(snapshot).planFiles().iterator()
    while tasks.hasNext():
        if (file := tasks.next().file()).location() == path:
            return file.copy()
    raise LookupError(f"snapshot {snapshot} does not have {path}")


if __name__ == "__main__":
    main()
