"""Data files: layout, partitions, formats, statistics.

The writer of one table gets rows in the table's Arrow schema, and returns the files' metadata when it is closed::

    writer = TableWriter(table_spec, task_number, limits)
    writer.write(rows)         # partitioned, and sorted if the table has a sort order
    writer.flush_largest()     # whenever the writers of a task hold too much
    files = writer.close()     # one DataFile each: path, partition, counts, bounds
    writer.discard()           # instead, after an error: deletes what it has written

``formats`` has Parquet, ORC and Avro behind one interface; ``changes`` and ``mutations`` are for tables whose rows
change: operations, the last change of a key, and key files.
"""
