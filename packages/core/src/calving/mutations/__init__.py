"""Finds the keys of changed rows in data files, and encodes the deletes of mutation tables.

A task writes changed rows into data files, and their keys into key files. A commit then searches the rows to delete::

    keys = every key of the commit's key files     # keys.py, two million at a time
    for file in files that may have one of them:   # candidates.py: partitions, bounds, sequence numbers
        rows = rows of the file with such a key    # lookup.py; cache.py has the keys of earlier files in sorted runs
        losers = rows that a later change replaces # ordering.py: by step, or by the order field
        delete the losers                          # iceberg/delete_files.py: positions, or a vector

``iceberg.resolution`` drives this, or hands the search to Spark's tasks if there are many rows.
"""
